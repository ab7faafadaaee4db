package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/limits"
	"github.com/holdfast-io/holdfast/limit"
)

// decisionJSON is what a limiter has decided, for programs. Times are in milliseconds, rounded up; -1: never.
type decisionJSON struct {
	Name       string `json:"name"`
	Key        string `json:"key"`
	Allowed    bool   `json:"allowed"`
	Remaining  string `json:"remaining"`
	Limit      string `json:"limit"`
	RetryAfter int64  `json:"retry_after_ms"`
	ResetAfter int64  `json:"reset_after_ms"`
}

// rateFlags are a rate in a command line.
type rateFlags struct {
	rate, algorithm string
	burst, initial  int64
}

func (a *app) limitCommand() *cobra.Command {
	c := &cobra.Command{Use: "limit", Short: "Let something happen at most at a rate, with everybody", Args: subcommand,
		Long: `A limiter has one rate, and any number of keys (a user, an address), each with all
of the rate for itself. The first command with --rate makes it; from then on a rate
that differs is refused, and commands need none.`,
		Example: `  holdfast limit ask mails alice --rate 100/1h && ./mail.sh alice
  holdfast limit peek mails alice
  holdfast limit set mails --rate 1000/day`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(a.limitAsk(), a.limitPeek(), a.limitReset(), a.limitSet(), a.limitDelete())
	return c
}

func (f *rateFlags) add(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&f.rate, "rate", "", "what is allowed: 100/1m, or by the calendar (UTC) 100/hour, /day, /month, /year")
	c.Flags().Int64Var(&f.burst, "burst", 0, "what may happen at once after a pause (the count of the rate)")
	c.Flags().Int64Var(&f.initial, "initial", 0, "what a new key may do at once (the burst)")
	c.Flags().StringVar(&f.algorithm, "algorithm", "", "gcra, token-bucket, fixed-window, sliding-window or sliding-log (gcra)")
	return c
}

const rateHint = "rates are a count and a time, such as 100/1m or 100/day"

// parse is the rate; without --rate that of the limiter.
func (f *rateFlags) parse() (r limit.Rate, err error) {
	if f.rate == "" {
		if f.algorithm != "" || f.burst != 0 || f.initial != 0 {
			return r, usagef("add --rate 100/1m", "--burst, --initial and --algorithm are of a --rate")
		}
		return r, nil
	}
	if r, err = limits.ParseRate(f.rate); err != nil {
		return r, usagef(rateHint, "%v", err)
	}
	r.Burst, r.Initial = f.burst, f.initial
	if f.algorithm != "" {
		if r.Algorithm, err = limit.ParseAlgorithm(f.algorithm); err != nil {
			return r, usagef("there are gcra, token-bucket, fixed-window, sliding-window and sliding-log", "%q is no algorithm", f.algorithm)
		}
	}
	if err := r.Check(); err != nil {
		return r, usagef(rateHint, "%v", err)
	}
	return r, nil
}

// limiting asks the limiter of the first argument about the key of the second, if there is one.
func (a *app) limiting(f *rateFlags, run func(ctx context.Context, l *holdfast.Limiter, name, key string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		rate, err := f.parse()
		if err != nil {
			return err
		}
		return a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error {
			key := ""
			if len(args) > 1 {
				key = args[1]
			}
			return run(ctx, s.Limiter(args[0], rate), args[0], key)
		})(c, args)
	}
}

func (a *app) limitAsk() *cobra.Command {
	return a.deciding(&cobra.Command{Use: "ask NAME [KEY]", Short: "Take 1, or --cost; exit with 1 if that is refused",
		Example: "  holdfast limit ask mails alice --rate 100/1h && ./mail.sh alice"}, "what to take, all or nothing", (*holdfast.Limiter).AllowN)
}

func (a *app) limitPeek() *cobra.Command {
	return a.deciding(&cobra.Command{Use: "peek NAME [KEY]", Short: "Tell what ask would, and take nothing",
		Example: "  holdfast limit peek mails alice"}, "what would be taken", (*holdfast.Limiter).Peek)
}

// deciding makes c print a decision about a cost.
func (a *app) deciding(c *cobra.Command, usage string, decide func(l *holdfast.Limiter, ctx context.Context, key string, cost int64) (limit.Decision, error)) *cobra.Command {
	var f rateFlags
	var cost int64
	c.Args = cobra.RangeArgs(1, 2)
	c.RunE = a.limiting(&f, func(ctx context.Context, l *holdfast.Limiter, name, key string) error {
		d, err := decide(l, ctx, key, cost)
		return a.printDecision(name, key, d, err)
	})
	c.Flags().Int64Var(&cost, "cost", 1, usage)
	return f.add(c)
}

func (a *app) limitReset() *cobra.Command {
	return &cobra.Command{Use: "reset NAME [KEY]", Short: "Make a key as if it had never been used", Args: cobra.RangeArgs(1, 2),
		Example: "  holdfast limit reset mails alice",
		RunE: a.limiting(&rateFlags{}, func(ctx context.Context, l *holdfast.Limiter, _, key string) error {
			return l.Reset(ctx, key)
		})}
}

func (a *app) limitSet() *cobra.Command {
	var f rateFlags
	c := &cobra.Command{Use: "set NAME --rate RATE", Short: "Set the rate for everybody; every key begins anew", Args: cobra.ExactArgs(1),
		Example: "  holdfast limit set mails --rate 1000/day"}
	c.RunE = func(c *cobra.Command, args []string) error {
		rate, err := f.parse()
		if err == nil && rate.Count == 0 {
			err = usagef("add --rate 100/1m", "there is no rate to set")
		}
		if err != nil {
			return err
		}
		return a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error {
			return s.Limiter(args[0], limit.Rate{}).SetRate(ctx, rate)
		})(c, args)
	}
	return f.add(c)
}

func (a *app) limitDelete() *cobra.Command {
	return &cobra.Command{Use: "delete NAME", Short: "Forget the limiter, its rate and all its keys", Args: cobra.ExactArgs(1),
		Example: "  holdfast limit delete mails",
		RunE: a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error {
			return s.Limiter(args[0], limit.Rate{}).Delete(ctx)
		})}
}

// printDecision tells a decision; a refusal is also an exit code.
func (a *app) printDecision(name, key string, d limit.Decision, err error) error {
	if err != nil {
		return err
	}
	out := decisionJSON{name, key, d.Allowed, strconv.FormatInt(d.Remaining, 10), strconv.FormatInt(d.Limit, 10), millis(d.RetryAfter), millis(d.ResetAfter)}
	if err := a.print().value(out, "%d of %d left", d.Remaining, d.Limit); err != nil || d.Allowed {
		return err
	}
	if d.RetryAfter == limit.Never {
		return &failure{code: exitNo, err: fmt.Errorf("limit %q: %d is more than the %d that there can ever be", name, d.Asked, d.Limit), hint: "ask for less, or set another rate"}
	}
	return &failure{code: exitNo, err: fmt.Errorf("limit %q: refused by the rate", name), hint: "try again in " + d.RetryAfter.Round(time.Millisecond).String()}
}

// millis rounds up: a caller that comes then is not early.
func millis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

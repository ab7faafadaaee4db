package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/drivertest"
)

// checking is a run of the conformance suite.
type checking struct {
	a       *app
	bar     *bar
	verbose bool
	kept    int
	broken  int
}

func (a *app) checkCommand() *cobra.Command {
	var (
		c       = &checking{a: a}
		run     string
		at      int
		timeout time.Duration
	)
	cmd := &cobra.Command{Use: "check [URL]", Short: "Check that a backend keeps its promises", Args: cobra.MaximumNArgs(1),
		Long: `Run the conformance suite against a live backend: every promise that the backend
declares, with many clients at a time. Names of the suite begin with drivertest/,
so that it can run beside other work; it takes some of the backend's power. Exits
with 1 if a promise is not kept.`,
		Example: "  holdfast check redis://localhost\n  holdfast check --run '^Mutex/' file:///var/lock/app"}
	f := cmd.Flags()
	f.StringVar(&run, "run", "", "only cases with a name that matches this regular expression, such as '^Mutex/'")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "tell every case with its promise")
	f.IntVar(&at, "parallel", 16, "how many cases run at a time")
	f.DurationVar(&timeout, "case-timeout", time.Minute, "how long one case may take")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		match, err := regexp.Compile(run)
		if err != nil {
			return usagef("see holdfast check --help", "--run: %w", err)
		}
		if at < 1 || timeout <= 0 {
			return usagef("both are above 0", "--parallel %d or --case-timeout %s makes no sense", at, timeout)
		}
		if len(args) == 1 {
			a.url = args[0]
		}
		return untilSignal(func(ctx context.Context) error { return c.check(ctx, match, at, timeout) })
	}
	return cmd
}

func (c *checking) check(ctx context.Context, match *regexp.Regexp, at int, timeout time.Duration) error {
	where, err := c.a.backend()
	if err != nil {
		return err
	}
	if where == "mem:" {
		return usagef("holdfast check mem://x checks a shared one", "mem: is a memory of its own for each client, and cannot be checked")
	}
	s, err := c.a.openWithin(ctx) // a memory lives as long as somebody has it open
	if err != nil {
		return err
	}
	defer s.Close()
	h := drivertest.URL(where)
	h.Select = func(k drivertest.Case) bool { return match.MatchString(k.Name) }
	h.Parallel, h.Timeout = at, timeout
	c.bar = newBar(c.a.errOut)
	err = drivertest.Check(ctx, h, c.tell)
	c.bar.clear()
	return c.verdict(ctx, err)
}

// caseJSON is a case for programs.
type caseJSON struct {
	Case    string  `json:"case"`
	Promise string  `json:"promise"`
	Kept    bool    `json:"kept"`
	Error   string  `json:"error,omitempty"`
	Seconds float64 `json:"seconds"`
}

// tell is called after every case, one at a time.
func (c *checking) tell(k drivertest.Case, err error, took time.Duration) {
	j := caseJSON{Case: k.Name, Promise: k.Promise, Kept: err == nil, Seconds: took.Seconds()}
	p := c.a.print()
	c.bar.clear()
	if err != nil {
		c.broken++
		j.Error = errors.Unwrap(err).Error()
		_ = p.value(j, "BROKEN  %s: %s\n        instead: %s", k.Name, k.Promise, j.Error)
	} else {
		c.kept++
		if c.verbose || c.a.json {
			_ = p.value(j, "kept    %s: %s (%s)", k.Name, k.Promise, span(took))
		}
	}
	c.bar.text(fmt.Sprintf("%d promises kept, %d broken; last %s", c.kept, c.broken, k.Name))
}

func (c *checking) verdict(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case c.kept+c.broken == 0 && err == nil:
		return usagef("holdfast check -v without --run lists the cases", "no case matches")
	case c.broken == 0 && err != nil:
		return err
	}
	text := fmt.Sprintf("%d promises kept, %d broken", c.kept, c.broken)
	if perr := c.a.print().value(map[string]int{"kept": c.kept, "broken": c.broken}, "%s", text); perr != nil {
		return perr
	}
	if c.broken > 0 {
		return &failure{code: exitNo}
	}
	return nil
}

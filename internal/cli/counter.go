package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
)

// counting is a counter of either sort; numbers travel as text.
type counting interface {
	add(ctx context.Context, by string, down bool) (string, error)
	load(ctx context.Context) (string, error)
	store(ctx context.Context, to string) (string, error)
	swap(ctx context.Context, old, new string) (value string, swapped bool, err error)
	Delete(ctx context.Context) error
}

// counterJSON is a counter for programs. The value is text of digits, since an
// int64 does not fit into the numbers of every JSON reader.
type counterJSON struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Swapped *bool  `json:"swapped,omitempty"`
}

func (a *app) counterCommand() *cobra.Command {
	c := &cobra.Command{Use: "counter", Short: "Count together with everybody", Args: subcommand,
		Long: `Counters are 0 until they are changed, and stop at the ends of their range. With
--unsigned they are 0 to 2⁶⁴-1, else -2⁶³ to 2⁶³-1; that is decided by the first
change.`,
		Example: `  holdfast counter add orders
  holdfast counter add orders 10
  holdfast counter get orders`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	var unsigned bool
	c.PersistentFlags().BoolVar(&unsigned, "unsigned", false, "count from 0 to 2⁶⁴-1")
	of := func(s *holdfast.Space, name string) counting {
		if unsigned {
			return unsignedCounter{s.Counter(name).Unsigned()}
		}
		return signedCounter{s.Counter(name)}
	}
	c.AddCommand(a.counterGet(of), a.counterAdd(of, false), a.counterAdd(of, true), a.counterSet(of), a.counterSwap(of), a.counterDelete(of))
	return c
}

type counterOf = func(s *holdfast.Space, name string) counting

func (a *app) counterGet(of counterOf) *cobra.Command {
	return &cobra.Command{Use: "get NAME", Short: "Print the value", Args: cobra.ExactArgs(1), Example: "  holdfast counter get orders",
		RunE: a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error {
			v, err := of(s, args[0]).load(ctx)
			return a.printCounter(args[0], v, err)
		})}
}

func (a *app) printCounter(name, value string, err error) error {
	if err != nil {
		return err
	}
	return a.print().value(counterJSON{Name: name, Value: value}, "%s", value)
}

func (a *app) counterAdd(of counterOf, down bool) *cobra.Command {
	verb, short := "add", "Add 1, or N, and print the sum"
	if down {
		verb, short = "sub", "Subtract 1, or N, and print the difference"
	}
	return &cobra.Command{Use: verb + " NAME [N]", Short: short, Args: cobra.RangeArgs(1, 2), Example: "  holdfast counter " + verb + " orders 10",
		RunE: a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error {
			by := "1"
			if len(args) == 2 {
				by = args[1]
			}
			v, err := of(s, args[0]).add(ctx, by, down)
			return a.printCounter(args[0], v, err)
		})}
}

func (a *app) counterSet(of counterOf) *cobra.Command {
	return &cobra.Command{Use: "set NAME N", Short: "Set the value", Args: cobra.ExactArgs(2), Example: "  holdfast counter set orders 0",
		RunE: a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error {
			v, err := of(s, args[0]).store(ctx, args[1])
			return a.printCounter(args[0], v, err)
		})}
}

func (a *app) counterSwap(of counterOf) *cobra.Command {
	return &cobra.Command{Use: "cas NAME OLD NEW", Short: "Set the value to NEW if it is OLD; exit with 1 if it is not", Args: cobra.ExactArgs(3), Example: "  holdfast counter cas version 6 7",
		RunE: a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error {
			v, swapped, err := of(s, args[0]).swap(ctx, args[1], args[2])
			if err != nil {
				return err
			}
			if !swapped {
				return &failure{code: exitNo, err: fmt.Errorf("compare and swap %q: it is not %s", args[0], args[1]), hint: "holdfast counter get " + argument(args[0]) + " tells what it is"}
			}
			return a.print().value(counterJSON{args[0], v, &swapped}, "%s", v)
		})}
}

func (a *app) counterDelete(of counterOf) *cobra.Command {
	return &cobra.Command{Use: "delete NAME", Short: "Forget the counter", Args: cobra.ExactArgs(1), Example: "  holdfast counter delete orders",
		RunE: a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error { return of(s, args[0]).Delete(ctx) })}
}

// badNumber says what a number may be.
func badNumber(text string, err error) error {
	if errors.Is(err, strconv.ErrRange) {
		return usagef("counters are -2⁶³ to 2⁶³-1, with --unsigned 0 to 2⁶⁴-1", "%s is out of range", text)
	}
	return usagef("numbers are digits, such as 10; negative ones need -- before the name and no --unsigned", "%q is no number", text)
}

type signedCounter struct{ *holdfast.Counter }

func parseSigned(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, badNumber(text, err)
	}
	return n, nil
}

func (c signedCounter) add(ctx context.Context, by string, down bool) (string, error) {
	n, err := parseSigned(by)
	if err == nil && down && n == -1<<63 {
		err = badNumber(by, strconv.ErrRange)
	}
	if err != nil {
		return "", err
	}
	if down {
		n = -n
	}
	v, err := c.Add(ctx, n)
	return strconv.FormatInt(v, 10), err
}

func (c signedCounter) load(ctx context.Context) (string, error) {
	v, err := c.Load(ctx)
	return strconv.FormatInt(v, 10), err
}

func (c signedCounter) store(ctx context.Context, to string) (string, error) {
	n, err := parseSigned(to)
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(n, 10), c.Store(ctx, n)
}

func (c signedCounter) swap(ctx context.Context, old, new string) (value string, swapped bool, err error) {
	was, err := parseSigned(old)
	if err != nil {
		return "", false, err
	}
	n, err := parseSigned(new)
	if err != nil {
		return "", false, err
	}
	swapped, err = c.CompareAndSwap(ctx, was, n)
	return strconv.FormatInt(n, 10), swapped, err
}

type unsignedCounter struct{ *holdfast.UnsignedCounter }

func parseUnsigned(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, badNumber(text, err)
	}
	return n, nil
}

func (c unsignedCounter) add(ctx context.Context, by string, down bool) (string, error) {
	n, err := parseUnsigned(by)
	if err != nil {
		return "", err
	}
	change := c.Add
	if down {
		change = c.Sub
	}
	v, err := change(ctx, n)
	return strconv.FormatUint(v, 10), err
}

func (c unsignedCounter) load(ctx context.Context) (string, error) {
	v, err := c.Load(ctx)
	return strconv.FormatUint(v, 10), err
}

func (c unsignedCounter) store(ctx context.Context, to string) (string, error) {
	n, err := parseUnsigned(to)
	if err != nil {
		return "", err
	}
	return strconv.FormatUint(n, 10), c.Store(ctx, n)
}

func (c unsignedCounter) swap(ctx context.Context, old, new string) (value string, swapped bool, err error) {
	was, err := parseUnsigned(old)
	if err != nil {
		return "", false, err
	}
	n, err := parseUnsigned(new)
	if err != nil {
		return "", false, err
	}
	swapped, err = c.CompareAndSwap(ctx, was, n)
	return strconv.FormatUint(n, 10), swapped, err
}

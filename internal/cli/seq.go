package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
)

// numbersJSON are numbers of a sequence for programs.
type numbersJSON struct {
	Name  string `json:"name"`
	First uint64 `json:"first,string"`
	Last  uint64 `json:"last,string"`
}

// maxNumbers is how many numbers are printed one by one; more are named by their
// first and last.
const maxNumbers = 10_000

func (a *app) seqCommand() *cobra.Command {
	c := &cobra.Command{Use: "seq", Short: "Draw numbers that nobody else gets", Args: subcommand,
		Example: "  holdfast seq next order-ids\n  holdfast seq next -n 100 order-ids",
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() }}
	var start uint64
	c.PersistentFlags().Uint64Var(&start, "start", 1, "the first number of a new sequence")
	of := func(s *holdfast.Space, name string) *holdfast.Sequence {
		return s.Sequence(name, holdfast.StartAt(start))
	}
	c.AddCommand(a.seqNext(of), a.seqCurrent(of), a.seqDelete(of))
	return c
}

type sequenceOf = func(s *holdfast.Space, name string) *holdfast.Sequence

func (a *app) seqNext(of sequenceOf) *cobra.Command {
	var n uint64
	c := &cobra.Command{Use: "next NAME", Short: "Draw the next number, or the next so many", Args: cobra.ExactArgs(1),
		Long:    fmt.Sprintf("Draw the next number, or the next so many: one a line, or, above %d,\nthe first and the last.", maxNumbers),
		Example: "  holdfast seq next order-ids\n  holdfast seq next -n 3 order-ids",
		RunE: a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error {
			first, err := of(s, args[0]).Reserve(ctx, n)
			if err != nil {
				return err
			}
			return a.printNumbers(args[0], first, n)
		})}
	c.Flags().Uint64VarP(&n, "number", "n", 1, "how many")
	return c
}

func (a *app) printNumbers(name string, first, n uint64) error {
	j := numbersJSON{Name: name, First: first, Last: first + n - 1}
	if n > maxNumbers {
		return a.print().value(j, "%d %d", j.First, j.Last)
	}
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprint(first+i))
	}
	return a.print().value(j, "%s", strings.Join(lines, "\n"))
}

func (a *app) seqCurrent(of sequenceOf) *cobra.Command {
	return &cobra.Command{Use: "current NAME", Short: "Print the first number that nobody has drawn", Args: cobra.ExactArgs(1), Example: "  holdfast seq current order-ids",
		RunE: a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error {
			v, err := of(s, args[0]).Current(ctx)
			if err != nil {
				return err
			}
			return a.print().value(map[string]any{"name": args[0], "current": digits(v)}, "%d", v)
		})}
}

func (a *app) seqDelete(of sequenceOf) *cobra.Command {
	return &cobra.Command{Use: "delete NAME", Short: "Forget the sequence: it begins anew, with numbers that were drawn before", Args: cobra.ExactArgs(1), Example: "  holdfast seq delete order-ids",
		RunE: a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error { return of(s, args[0]).Delete(ctx) })}
}

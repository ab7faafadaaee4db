// Package cli is the holdfast program: run it with [Main].
//
// Commands are thin: each family has a file that turns arguments into calls of
// package holdfast and what they return into text or JSON. A new family is a
// method of app that returns a *cobra.Command, and a line in commands. The status
// of nodes is in member.go, that of a run in pipeline.go and pipelinetree.go.
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast"
	_ "github.com/holdfast-io/holdfast/all" // every URL
	"github.com/holdfast-io/holdfast/internal/child"
)

// app is one run of the program.
type app struct {
	in, out, errOut *os.File

	// The settings that every command has.
	url     string
	config  string
	json    bool
	timeout time.Duration

	began bool     // the command line was understood
	words []string // the command line
	notes notes
	gone  chan os.Signal // set: readers of the output may leave
	used  []io.Closer    // to be closed when all is told
}

// Main runs the program with its arguments, the first being the command, and
// returns its exit code.
func Main(args []string) int {
	if len(args) == 1 && args[0] == child.WardenArg {
		return child.Warden(os.Stdin, os.Stderr)
	}
	a := &app{in: os.Stdin, out: os.Stdout, errOut: os.Stderr}
	return a.main(args)
}

func (a *app) main(args []string) int {
	a.words = args
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	cmd, err := root.ExecuteC()
	if err != nil && !a.began {
		a.asksForJSON(root.PersistentFlags().Lookup("json"))
		err = usage(cmd, err)
	}
	a.told()
	code := a.report(err)
	for _, s := range a.used {
		_ = s.Close()
	}
	if a.gone != nil {
		signal.Stop(a.gone)
	}
	return code
}

// commands are all there are; more can be added here.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.lockCommand(), a.rlockCommand(), a.wlockCommand(), a.semCommand(), a.electCommand(), a.runCommand(), a.sessionCommand(),
		a.counterCommand(), a.seqCommand(), a.kvCommand(), a.limitCommand(),
		a.watchCommand(), a.lsCommand(), a.showCommand(), a.releaseCommand(), a.guardCommand(), a.pipelineCommand(),
		a.serveCommand(), a.edgeCommand(), a.statusCommand(), a.memberCommand(), a.snapshotCommand(),
		a.sweepCommand(), a.checkCommand(), a.benchCommand(), a.completionCommand(), a.versionCommand(),
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "Take turns safely: locks, semaphores, elections, counters, sequences and keys",
		Long: `holdfast takes turns from the shell, on any backend that has a URL.

Settings come from flags, else from the environment (HOLDFAST_URL for --url), else
from the configuration file. Without a URL it works on files of your own account,
with nothing to install.`,
		Example: `  holdfast lock nightly -- ./backup.sh
  holdfast lock --try nightly -- ./backup.sh
  holdfast sem --limit 3 gpu -- ./train.sh
  holdfast counter add orders
  holdfast show nightly`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: a.prepare,
		Args:              subcommand,
	}
	version := root.Flags().Bool("version", false, "print what this program was built from")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *version {
			return a.printVersion()
		}
		return cmd.Help()
	}
	root.CompletionOptions.DisableDefaultCmd = true
	p := root.PersistentFlags()
	p.StringVar(&a.url, "url", "", "backend, such as file:///var/lock/app, postgres://host/db or redis://host or holdfast://host (default: files of your account)")
	p.StringVar(&a.config, "config", "", "configuration file (default: holdfast/config.yaml in your configuration directory)")
	p.BoolVar(&a.json, "json", false, "print JSON, errors too")
	p.DurationVar(&a.timeout, "timeout", 30*time.Second, "how long the backend may take to answer")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, flagError(cmd, err)) })
	root.SetHelpCommand(helpCommand())
	root.AddCommand(a.commands()...)
	a.completeArguments(root)
	return root
}

// prepare comes before every command. Flags that are missing are looked for here, since cobra
// does it when the command counts as begun.
func (a *app) prepare(cmd *cobra.Command, _ []string) error {
	if err := a.settle(cmd); err != nil {
		return usage(cmd, err)
	}
	if err := errors.Join(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
		return usage(cmd, err)
	}
	if a.timeout <= 0 {
		return usagef("give a time above 0, or leave the flag out for 30s", "--timeout %s is no time in which a backend could answer", a.timeout)
	}
	a.began = true
	return nil
}

// asking is a command that asks the backend and prints the answer: with a Space,
// until the timeout or a signal ends it.
func (a *app) asking(run func(ctx context.Context, s *holdfast.Space, args []string) error) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		return untilSignal(func(ctx context.Context) error {
			ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, errTimeout)
			defer cancel()
			s, err := a.open(ctx)
			if err != nil {
				return err
			}
			defer leave(ctx, s)
			return unanswered(run(ctx, s, args))
		})
	}
}

// listing is asking for what comes in pages: the timeout is for each of them.
func (a *app) listing(run func(p *patience, s *holdfast.Space, args []string) error) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		return untilSignal(func(ctx context.Context) error {
			p, cancel := a.patience(ctx)
			defer cancel()
			s, err := a.open(p)
			if err != nil {
				return err
			}
			defer leave(p, s)
			return unanswered(run(p, s, args))
		})
	}
}

// closeAtEnd closes what a command has used when its error is told: a backend that does not answer
// takes some seconds for that.
func (a *app) closeAtEnd(s io.Closer) { a.used = append(a.used, s) }

// leave closes what a command has used. After the timeout it does not wait for that: a backend that has
// not answered would take as long again for the end of a session, which ends by itself.
func leave(ctx context.Context, s io.Closer) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.Close()
	}()
	if context.Cause(ctx) != errTimeout {
		<-closed
	}
}

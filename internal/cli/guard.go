package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/guard/guardfile"
)

// guarding are the settings of the commands about guards.
type guarding struct {
	dir      string
	commands bool
	shell    bool
	issues   string
	gitHub   string
	repo     string
	wait     time.Duration
	recheck  time.Duration
}

func (a *app) guardCommand() *cobra.Command {
	c := &cobra.Command{Use: "guard", Short: "Say whether work may begin, why not, and wait until it may", Args: subcommand,
		Long: `Decide the guards of a YAML or JSON file: locks, semaphores, counters, elections and
keys of the backend, branches of the git repository, files, sessions, issues and
commands. Exit code 0: passed; 1: blocked, by something that is so or that is not known.`}
	c.AddCommand(a.guardLint(), a.guardEval(), a.guardExplain(), a.guardWait(), a.schema("guard", guardfile.Schema))
	return c
}

// schema is the command that prints the JSON Schema of files.
func (a *app) schema(of string, text func() []byte) *cobra.Command {
	c := &cobra.Command{Use: "schema", Short: "Print the JSON Schema of files of " + of + "s, for editors", Args: cobra.NoArgs,
		Example: "  holdfast " + of + " schema > " + of + ".schema.json"}
	c.RunE = func(*cobra.Command, []string) error {
		b := text()
		if a.json {
			var line bytes.Buffer
			if err := json.Compact(&line, b); err != nil {
				return err
			}
			b = append(line.Bytes(), '\n')
		}
		_, err := a.out.Write(b)
		return err
	}
	return c
}

func (a *app) guardLint() *cobra.Command {
	c := &cobra.Command{Use: "lint FILE", Short: "Check a file of guards", Args: cobra.ExactArgs(1), Example: "  holdfast guard lint guards.yaml"}
	c.RunE = func(_ *cobra.Command, args []string) error {
		guards, err := readGuards(args[0])
		if err != nil {
			return &failure{code: exitNo, err: err}
		}
		return a.print().value(map[string]int{"guards": len(guards)}, "guards: %d", len(guards))
	}
	return c
}

// maxGuardFile bounds what is read; the parser says how long a file may be.
const maxGuardFile = guardfile.MaxSize + 1

func readGuards(path string) ([]guardfile.Guard, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxGuardFile))
	if err != nil {
		return nil, err
	}
	guards, err := guardfile.Parse(path, b)
	if err != nil {
		return nil, err
	}
	return guards, decidable(path, guards)
}

// decidable refuses what only the gatherer knows that it could never find out.
func decidable(path string, guards []guardfile.Guard) error {
	var errs []error
	for i := range guards {
		if err := decider().Check(&guards[i].When); err != nil {
			errs = append(errs, &guardfile.Error{File: path, Line: guards[i].Line, Column: guards[i].Column, Text: err.Error()})
		}
	}
	return errors.Join(errs...)
}

// decider has every source that a command may have, to know what can be decided; it asks nobody.
func decider() *gather.Gatherer {
	return gather.New(gather.Config{Issues: &gather.IssueFile{}})
}

// flags adds those that say where facts come from.
func (g *guarding) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&g.dir, "dir", ".", "where files and the git repository are")
	f.BoolVar(&g.commands, "commands", false, "run the commands of custom_check")
	f.BoolVar(&g.shell, "shell", false, "with --commands, let a shell read them; give it only if the file is your own")
	f.StringVar(&g.issues, "issues", "", "issues in a JSON file")
	f.StringVar(&g.repo, "repo", "", "issues of this GitHub repository, owner/name; GITHUB_TOKEN is its token")
	f.StringVar(&g.gitHub, "github", "", "another server that speaks like GitHub")
	c.PreRun = func(*cobra.Command, []string) { g.fix() }
}

// fix makes the paths absolute: what is at a path is looked at also when the directory that the program was started in was
// replaced meanwhile. If it is gone already they stay relative, and the gatherer tells.
func (g *guarding) fix() {
	for _, path := range []*string{&g.dir, &g.issues} {
		if whole, err := filepath.Abs(*path); err == nil && *path != "" {
			*path = whole
		}
	}
}

func (a *app) guardEval() *cobra.Command {
	var g guarding
	c := &cobra.Command{Use: "eval FILE [GUARD…]", Short: "Decide guards, one line each", Args: cobra.MinimumNArgs(1), Example: "  holdfast guard eval guards.yaml merge"}
	g.flags(c)
	c.RunE = a.guards(&g, func(p *printer, name string, _ *guard.Condition, r guard.Result) error {
		return p.value(guardJSON(name, r), "%s: %s", name, r.Outcome)
	})
	return c
}

func (a *app) guardExplain() *cobra.Command {
	var g guarding
	c := &cobra.Command{Use: "explain FILE [GUARD…]", Short: "Decide guards, and say why", Args: cobra.MinimumNArgs(1), Example: "  holdfast guard explain guards.yaml merge"}
	g.flags(c)
	c.RunE = a.guards(&g, explained)
	return c
}

func explained(p *printer, name string, c *guard.Condition, r guard.Result) error {
	return p.value(guardJSON(name, r), "%s: %s%s", name, r.Outcome, guardTree(c, r))
}

func (a *app) guardWait() *cobra.Command {
	var g guarding
	c := &cobra.Command{Use: "wait FILE GUARD", Short: "Wait until a guard passes, and tell what it waits for", Args: cobra.ExactArgs(2),
		Long: `Wait until the guard passes. What it waits for is printed each time that it changes. What
is true then may not be true any more when the next command runs: what has to stay true
has to be held (holdfast run).`,
		Example: "  holdfast guard wait --wait 2h guards.yaml merge && ./merge.sh"}
	g.flags(c)
	c.Flags().DurationVar(&g.wait, "wait", 0, "wait so long at most (default: without a limit)")
	c.Flags().DurationVar(&g.recheck, "recheck", 30*time.Second, "look at everything so often, whatever was told")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := positive(c.Flags(), "wait", "recheck"); err != nil {
			return err
		}
		chosen, err := chooseGuards(args[0], args[1:])
		if err != nil {
			return err
		}
		return untilSignal(func(ctx context.Context) error { return a.waitGuard(ctx, &g, &chosen[0]) })
	}
	return c
}

// positive refuses durations that were given and are not above 0: such a wait would be
// one without a limit.
func positive(f *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		if d, err := f.GetDuration(name); err == nil && f.Changed(name) && d <= 0 {
			return usagef("give a time above 0, or leave the flag out", "--%s %s is no time to wait", name, d)
		}
	}
	return nil
}

// guards is a command that decides guards and prints each.
func (a *app) guards(g *guarding, tell func(*printer, string, *guard.Condition, guard.Result) error) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		chosen, err := chooseGuards(args[0], args[1:])
		if err != nil {
			return err
		}
		return untilSignal(func(ctx context.Context) error {
			return a.gathering(ctx, g, func(from *gather.Gatherer) error {
				blocked := false
				for i := range chosen {
					r := from.Evaluate(ctx, &chosen[i].When)
					blocked = blocked || r.Outcome != guard.Passed
					if err := tell(a.print(), chosen[i].Name, &chosen[i].When, r); err != nil {
						return err
					}
				}
				return blockedIf(blocked)
			})
		})
	}
}

// blockedIf is the exit code alone: the reasons are printed already.
func blockedIf(blocked bool) error {
	if blocked {
		return &failure{code: exitNo}
	}
	return nil
}

func chooseGuards(path string, names []string) ([]guardfile.Guard, error) {
	all, err := readGuards(path)
	if err != nil {
		return nil, &failure{code: exitUsage, err: err, hint: "holdfast guard lint tells all that is wrong with a file"}
	}
	if len(names) == 0 {
		return all, nil
	}
	var chosen []guardfile.Guard
	for _, name := range names {
		i := slices.IndexFunc(all, func(g guardfile.Guard) bool { return g.Name == name })
		if i < 0 {
			return nil, usagef("holdfast guard eval FILE lists them", "%s has no guard %q", path, name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// gathering calls f with what finds the facts.
func (a *app) gathering(ctx context.Context, g *guarding, f func(*gather.Gatherer) error) error {
	opening, cancel := context.WithTimeoutCause(ctx, a.timeout, errTimeout)
	defer cancel()
	s, err := a.open(opening)
	if err != nil {
		return err
	}
	a.closeAtEnd(s)
	return f(gather.New(g.config(s, a.timeout)))
}

func (g *guarding) config(s *holdfast.Space, timeout time.Duration) gather.Config {
	c := gather.Config{Space: s, Dir: g.dir, Timeout: timeout}
	if g.commands {
		c.Commands = &gather.Commands{Shell: g.shell, Dir: g.dir, Timeout: timeout}
	}
	switch {
	case g.issues != "":
		c.Issues = &gather.IssueFile{Path: g.issues}
	case g.repo != "" || g.gitHub != "":
		c.Issues = &gather.GitHub{URL: g.gitHub, Repo: g.repo, Token: os.Getenv("GITHUB_TOKEN")}
	}
	return c
}

func (a *app) waitGuard(ctx context.Context, g *guarding, chosen *guardfile.Guard) error {
	return a.gathering(ctx, g, func(from *gather.Gatherer) error {
		during := ctx
		if g.wait > 0 {
			bounded, cancel := context.WithTimeout(ctx, g.wait)
			defer cancel()
			during = bounded
		}
		var printing error
		_, err := from.Wait(during, &chosen.When, gather.WaitOptions{Recheck: g.recheck, Told: func(r guard.Result) {
			printing = errors.Join(printing, explained(a.print(), chosen.Name, &chosen.When, r))
		}})
		if err != nil && ctx.Err() == nil {
			return &failure{code: exitTimeout, err: fmt.Errorf("guard %q is still blocked after %s: %w", chosen.Name, g.wait, err), hint: "give it more time with --wait"}
		}
		return errors.Join(err, printing)
	})
}

// guardTree is a line for every part of a condition, the leaves with a mark.
func guardTree(c *guard.Condition, r guard.Result) string {
	var b strings.Builder
	rest := r.Reasons
	var walk func(c *guard.Condition, depth int)
	walk = func(c *guard.Condition, depth int) {
		indent := "\n" + strings.Repeat("  ", depth)
		if len(c.Of) == 0 && len(rest) > 0 && rest[0].Kind == c.Kind {
			b.WriteString(indent + rest[0].String())
			rest = rest[1:]
			return
		}
		b.WriteString(indent + string(c.Kind))
		for i := range c.Of {
			walk(&c.Of[i], depth+1)
		}
	}
	walk(c, 1)
	return b.String()
}

// reasonJSON is the reason of a leaf for programs.
type reasonJSON struct {
	Path     string     `json:"path"`
	Kind     guard.Kind `json:"kind"`
	Outcome  string     `json:"outcome"`
	Decides  bool       `json:"decides"`
	Want     string     `json:"want"`
	Got      string     `json:"got"`
	Since    *time.Time `json:"since,omitempty"`
	Revision uint64     `json:"revision,omitempty"`
	Source   string     `json:"source,omitempty"`
	Hint     string     `json:"hint,omitempty"`
}

func guardJSON(name string, r guard.Result) any {
	reasons := []reasonJSON{}
	for _, l := range r.Reasons {
		j := reasonJSON{Path: l.Path, Kind: l.Kind, Outcome: l.Outcome.String(), Decides: l.Decides, Want: l.Want, Got: l.Got, Revision: l.Revision, Source: l.Source, Hint: l.Hint}
		if !l.Since.IsZero() {
			since := l.Since.UTC()
			j.Since = &since
		}
		reasons = append(reasons, j)
	}
	return struct {
		Guard   string       `json:"guard"`
		Outcome string       `json:"outcome"`
		Reasons []reasonJSON `json:"reasons"`
	}{name, r.Outcome.String(), reasons}
}

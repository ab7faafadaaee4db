package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/child"
	"github.com/holdfast-io/holdfast/internal/owner"
)

// holding is a command that runs another one while something is held.
type holding struct {
	a        *app
	try      bool
	wait     time.Duration // negative: without a limit
	ttl      time.Duration
	minHold  time.Duration
	maxHold  time.Duration
	grace    time.Duration
	owner    string
	meta     string
	conflict int

	// expand makes the names of the arguments before --; nil: they are.
	expand func(args []string) ([]string, error)
	// take acquires what the names mean.
	take taker
	// limiters are what a start takes from, once everything is held.
	limiters limiters
}

// newHolding makes the command around take.
func (a *app) newHolding(c *cobra.Command, take taker) *cobra.Command {
	return (&holding{a: a, take: take}).command(c)
}

// command fills in what all such commands have.
func (h *holding) command(c *cobra.Command) *cobra.Command {
	h.flags(c.Flags())
	c.Args = func(c *cobra.Command, args []string) error { return checkSplit(c, args, 1) }
	c.RunE = func(c *cobra.Command, args []string) error {
		at := c.ArgsLenAtDash()
		names := args[:at]
		if h.expand != nil {
			var err error
			if names, err = h.expand(names); err != nil {
				return err
			}
		}
		return h.run(c.Flags(), names, args[at:])
	}
	return c
}

// checkSplit wants at least so many names, then -- and a command.
func checkSplit(c *cobra.Command, args []string, names int) error {
	at := c.ArgsLenAtDash()
	switch {
	case at < 0:
		return errors.New("there is no command; put it behind --")
	case at < names:
		return errors.New("there is no name before --")
	case at == len(args):
		return errors.New("there is no command behind --")
	}
	return nil
}

func (h *holding) flags(f *pflag.FlagSet) {
	f.BoolVar(&h.try, "try", false, "do not wait: exit with 75 if it is held")
	f.DurationVar(&h.wait, "wait", -1, "how long to wait for the turn, then exit with 124; 0 is --try (default: without a limit)")
	f.DurationVar(&h.ttl, "ttl", 0, "how long the hold outlives the last sign of life (default 30s; files need none)")
	f.DurationVar(&h.minHold, "min-hold", 0, "keep the name taken at least so long, for jobs that must run once a slot")
	f.DurationVar(&h.maxHold, "max-hold", 0, "lose the hold after so long, however alive the command is")
	f.StringVar(&h.owner, "owner", "", "the holder's name, for people (default: host/process/command)")
	f.StringVar(&h.meta, "meta", "", "text that is shown with the hold")
	f.IntVarP(&h.conflict, "conflict-exit-code", "E", exitHeld, "exit code if it is held")
	h.graceFlag(f)
	f.Lookup("wait").DefValue = ""
}

func (h *holding) graceFlag(f *pflag.FlagSet) {
	f.DurationVar(&h.grace, "grace", 5*time.Second, "from SIGTERM to SIGKILL when the hold is lost; at most a quarter of its time to live")
}

// check refuses what makes no sense before anything is asked.
func (h *holding) check(f *pflag.FlagSet) error {
	switch {
	case f.Changed("wait") && h.wait < 0:
		return usagef("leave --wait out to wait without a limit", "--wait %s is negative", h.wait)
	case h.try && h.wait > 0:
		return usagef("use one of them", "--try does not wait, --wait does")
	case h.grace < 0:
		return usagef("0 kills at once", "--grace %s is negative", h.grace)
	case f.Changed("min-hold") && len(h.limiters) > 0:
		return usagef("leave one of them out", "--min-hold would keep the name for nobody when a limiter of --limiter refuses the start")
	case h.conflict < 0 || h.conflict > 255:
		return usagef("exit codes are 0 to 255", "--conflict-exit-code %d is none", h.conflict)
	}
	return nil
}

// options are the hold's, without those that were left out.
func (h *holding) options(f *pflag.FlagSet, command string) []holdfast.HoldOption {
	opts := []holdfast.HoldOption{h.ownerOption(command), holdfast.Meta(h.meta)}
	for name, option := range map[string]holdfast.HoldOption{
		"ttl": holdfast.TTL(h.ttl), "min-hold": holdfast.MinHold(h.minHold), "max-hold": holdfast.MaxHold(h.maxHold),
	} {
		if f.Changed(name) {
			opts = append(opts, option)
		}
	}
	return opts
}

func (h *holding) ownerOption(command string) holdfast.Owner {
	if h.owner != "" {
		return holdfast.Owner(h.owner)
	}
	return holdfast.Owner(owner.Of(command))
}

// run waits for the turn, runs the command, and gives the turn back.
func (h *holding) run(f *pflag.FlagSet, names, command []string) error {
	if err := h.check(f); err != nil {
		return err
	}
	path, err := find(command[0])
	if err != nil {
		return err
	}
	h.a.outliveReaders()
	sigs := catch()
	defer sigs.stop()
	s, err := h.a.openSoon(sigs)
	if err != nil {
		return err
	}
	h.a.closeAtEnd(s)
	t, err := h.begin(sigs, s.With(append(h.options(f, path), h.onWait(s, names, h.ownerOption(path)))...), names)
	if err != nil {
		return err
	}
	status, err := h.child(path, command, sigs, append(t.env, "HOLDFAST_URL="+h.a.url)).Run(t)
	return h.outcome(status, err, t.release())
}

// turn is what a command runs under.
type turn struct {
	child.Hold
	release func() error
	env     []string
}

// begin waits until all is held and the limiters allow the start, as long as the flags
// say, or until a signal.
func (h *holding) begin(sigs *signals, s *holdfast.Space, names []string) (t turn, err error) {
	ctx, done := sigs.during(context.Background())
	t, err = h.start(ctx, s, names)
	if asked := done(); asked != nil && err == nil { // a signal that came with the grant
		_ = t.release()
		err = asked
	}
	return t, err
}

// start is begin until ctx ends.
func (h *holding) start(ctx context.Context, s *holdfast.Space, names []string) (t turn, err error) {
	if h.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.wait)
		defer cancel()
	}
	if t, err = h.acquire(ctx, s, names); err != nil {
		return t, err
	}
	if err = h.limit(ctx, s, t); err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = t.release()
	}
	return t, err
}

// acquire takes what is named.
func (h *holding) acquire(ctx context.Context, s *holdfast.Space, names []string) (turn, error) {
	if len(names) == 0 {
		return turn{Hold: noHold{}, release: func() error { return nil }}, nil
	}
	hold, err := h.take(ctx, s, names, h.tries())
	if errors.Is(err, holdfast.ErrHeld) {
		f := failureOf(err)
		f.code = h.conflict
		return turn{}, f
	}
	if err != nil {
		return turn{}, err
	}
	return turn{hold, hold.Release, holdEnv(hold, names)}, nil
}

// tries: it does not wait.
func (h *holding) tries() bool { return h.try || h.wait == 0 }

// noHold lets a command run that nothing is held for.
type noHold struct{}

func (noHold) Done() <-chan struct{}       { return nil }
func (noHold) Err() error                  { return nil }
func (noHold) Deadline() (time.Time, bool) { return time.Time{}, false }

// onWait tells people which holder they wait for.
func (h *holding) onWait(s *holdfast.Space, names []string, me holdfast.Owner) holdfast.HoldOption {
	return holdfast.OnWait(func(place int) {
		if isTerminal(h.a.errOut) {
			go h.tellWait(s, names, string(me), place)
		}
	})
}

func (h *holding) tellWait(s *holdfast.Space, names []string, me string, place int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	name, by := awaited(ctx, s, names, me)
	text := fmt.Sprintf("waiting for %q, place %d", name, place)
	if by != "" {
		text += ", held by " + plain(by)
	}
	h.a.note(text)
}

// awaited is the name that an owner waits for, and its holder: of several it may hold some already.
func awaited(ctx context.Context, s *holdfast.Space, names []string, me string) (name, by string) {
	for _, name := range names {
		r, err := s.Inspect(ctx, name)
		waits := len(names) == 1 || slices.ContainsFunc(r.Waiters, func(c holdfast.Claim) bool { return c.Owner == me })
		if err == nil && waits && len(r.Holders) > 0 {
			return name, r.Holders[0].Owner
		}
	}
	return strings.Join(names, ", "), ""
}

// find looks a command up before anything is taken for it.
func find(command string) (string, error) {
	path, err := exec.LookPath(command)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, fs.ErrPermission):
		return "", &failure{code: exitCannotRun, err: err, hint: "make it executable: chmod +x " + argument(command)}
	}
	if info, there := os.Stat(command); there == nil && info.IsDir() {
		return "", &failure{code: exitCannotRun, err: err, hint: "it is a directory: name a program in it"}
	}
	return "", &failure{code: exitNotFound, err: err, hint: "commands are not run by a shell; for shell syntax use -- sh -c '…'"}
}

func (h *holding) child(path string, command []string, sigs *signals, env []string) *child.Command {
	return &child.Command{
		Path: path, Args: command, Env: append(os.Environ(), env...),
		Stdin: h.a.in, Stdout: h.a.out, Stderr: h.a.errOut, Notes: h.a.errOut,
		Grace: h.grace, Signals: sigs.c, Note: h.a.note,
	}
}

// holdEnv tells the command its names and tokens.
func holdEnv(hold *holdfast.Hold, names []string) []string {
	tokens := map[string]uint64{}
	for _, n := range names {
		tokens[n] = uint64(hold.TokenOf(n))
	}
	all, _ := json.Marshal(tokens) // a map of strings to numbers
	return []string{
		"HOLDFAST_LOCK=" + strings.Join(names, "\n"),
		"HOLDFAST_TOKEN=" + strconv.FormatUint(uint64(hold.Token()), 10),
		"HOLDFAST_TOKENS=" + string(all),
	}
}

// outcome is the exit code of it all: a loss first, then the command's own.
func (h *holding) outcome(status child.Status, err, released error) error {
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return err
	case errors.Is(err, child.ErrNoWarden):
		return &failure{code: exitFailed, err: err, hint: "it needs /proc, and room for one more process"}
	case errors.Is(err, syscall.ENOEXEC):
		return &failure{code: exitCannotRun, err: err, hint: "scripts need a first line such as #!/bin/sh"}
	case err != nil:
		return &failure{code: exitCannotRun, err: err}
	case status.NotStarted:
		return lostBefore(status.Lost)
	case status.Lost != nil:
		return &failure{code: exitLost, err: fmt.Errorf("the hold was lost and the command ended: %w", status.Lost), hint: "run it again; what it wrote is told apart by its token"}
	}
	if released != nil {
		h.a.note("giving back: " + released.Error())
	}
	if status.Code != 0 {
		return &failure{code: status.Code}
	}
	return nil
}

// lostBefore: the command did not start, since what it was to hold was lost.
func lostBefore(why error) error {
	return &failure{code: exitLost, err: fmt.Errorf("the hold was lost before the command started: %w", why), hint: "run it again"}
}

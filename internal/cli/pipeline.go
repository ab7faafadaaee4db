package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/guard/guardfile"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// piping are the settings of the commands about pipelines.
type piping struct {
	guarding
	id       string
	priority int
	params   []string
	resume   bool
	check    bool
	ttl      time.Duration
	grace    time.Duration
}

func (a *app) pipelineCommand() *cobra.Command {
	c := &cobra.Command{Use: "pipeline", Short: "Run phases that wait for the right moment, and say why they wait", Args: subcommand,
		Long: `Run the pipelines of YAML or JSON files: phases that wait for conditions, hold locks and
semaphores while their command runs, and are started again or asked about when their
runner was lost. A run is named pipeline/number. Exit code 1: it is blocked, or has not
ended well.`}
	c.AddCommand(a.pipelineRun(), a.pipelineList(), a.pipelineStatus(), a.pipelineWhy(), a.pipelineCancel(), a.pipelineApprove(), a.schema("pipeline", guardfile.PipelineSchema))
	return c
}

func (a *app) pipelineRun() *cobra.Command {
	var g piping
	c := &cobra.Command{Use: "run FILE | --resume RUN", Short: "Submit a run of a pipeline and run it, or go on with one", Args: cobra.ExactArgs(1),
		Long: `Submit a run of the file's pipeline, and run it until it has ended. Where it stands is
printed each time that it changes, on standard error; the output of its commands goes to
standard output. ^C cancels the run (exit code 130), unless another program runs it. SIGTERM and SIGHUP
end the command, and leave the run. If this program is killed, its command is killed too, and
--resume goes on with the run: with the definition that it began with.`,
		Example: `  holdfast pipeline run release.yaml --param branch=feature/x
  holdfast pipeline run --resume release/7
  holdfast pipeline run --check release.yaml`}
	g.flags(c)
	f := c.Flags()
	f.StringArrayVar(&g.params, "param", nil, "a parameter of the file, name=value; repeat it for several")
	f.StringVar(&g.id, "id", "", "name the run (default: the next number)")
	f.IntVar(&g.priority, "priority", 0, "more is earlier, under the policy priority")
	f.BoolVar(&g.resume, "resume", false, "the argument is a run; go on with it")
	f.BoolVar(&g.check, "check", false, "only read the file, and say what is wrong with it")
	f.DurationVar(&g.wait, "wait", 0, "leave the run, for --resume, when it has waited for one thing so long (default: without a limit)")
	f.DurationVar(&g.recheck, "recheck", 30*time.Second, "look at everything so often, whatever was told")
	f.DurationVar(&g.ttl, "ttl", 0, "how long what is held outlives the last sign of life (default 30s; files need none)")
	f.DurationVar(&g.grace, "grace", 5*time.Second, "from SIGTERM to SIGKILL when a command has to end")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := positive(f, "wait", "recheck", "ttl"); err != nil {
			return err
		}
		if g.grace < 0 {
			return usagef("0 kills at once", "--grace %s is negative", g.grace)
		}
		if err := g.sensible(f, args[0]); err != nil {
			return err
		}
		return a.runPipeline(&g, args[0])
	}
	return c
}

// sensible refuses what would be ignored, or could not be run, before anything is asked.
func (g *piping) sensible(f *pflag.FlagSet, arg string) error {
	for _, name := range []string{"id", "param", "priority", "check"} {
		if g.resume && f.Changed(name) {
			return usagef("leave it out, or submit a new run of a file", "--%s means nothing to --resume: the run %s goes on as it was submitted", name, arg)
		}
	}
	if info, err := os.Stat(g.dir); err != nil || !info.IsDir() || !filepath.IsAbs(g.dir) { // relative: the working directory is gone
		return usagef("name the directory that the commands of the phases begin in, which has to be there", "--dir %s is no directory", g.dir)
	}
	return nil
}

// runPipeline reads the file before it asks the backend.
func (a *app) runPipeline(g *piping, arg string) error {
	if g.resume {
		r, err := run.ParseRef(arg)
		if err != nil {
			return err
		}
		return a.runUntilSignal(g, func(context.Context, *run.Pipelines) (run.Ref, error) { return r, nil })
	}
	given, err := g.values()
	if err != nil {
		return err
	}
	if g.check && len(given) == 0 {
		given = nil
	}
	file, err := readPipeline(arg, given)
	if err != nil {
		return &failure{code: exitUsage, err: err, hint: "holdfast pipeline run --check FILE tells all that is wrong with a file"}
	}
	if g.check {
		return a.print().value(map[string]any{"pipeline": file.Definition.Name, "phases": len(file.Definition.Phases)}, "%s: %d phases", file.Definition.Name, len(file.Definition.Phases))
	}
	return a.runUntilSignal(g, func(ctx context.Context, p *run.Pipelines) (run.Ref, error) {
		ref, err := p.Submit(ctx, run.Submission{Definition: &file.Definition, ID: g.id, Priority: g.priority, Params: file.Values})
		if errors.Is(err, fs.ErrExist) {
			there := run.Ref{Pipeline: file.Definition.Name, ID: g.id}.String()
			err = &failure{code: exitNo, err: err, hint: "name it otherwise with --id, or go on with it: holdfast pipeline run --resume " + argument(there)}
		}
		return ref, err
	})
}

// values are the parameters of the command line.
func (g *piping) values() (map[string]string, error) {
	given := map[string]string{}
	for _, text := range g.params {
		name, v, ok := strings.Cut(text, "=")
		if _, twice := given[name]; !ok || twice {
			return nil, usagef("write --param name=value, each once", "--param %q is no parameter, or is there twice", text)
		}
		given[name] = v
	}
	return given, nil
}

func readPipeline(path string, given map[string]string) (*guardfile.Pipeline, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxGuardFile))
	if err != nil {
		return nil, err
	}
	file, err := guardfile.ParsePipeline(path, b, given)
	if err != nil {
		return nil, err
	}
	valued := given != nil || !slices.ContainsFunc(file.Params, func(p guardfile.Param) bool { return p.Default == nil })
	for i := range file.Definition.Phases {
		if err := decidablePhase(&file.Definition.Phases[i], valued); err != nil {
			at := file.Places[i]
			return nil, &guardfile.Error{File: path, Line: at[0], Column: at[1], Text: err.Error()}
		}
	}
	if err := (&run.Submission{Definition: &file.Definition, Params: file.Values}).Check(); err != nil {
		return nil, fmt.Errorf("%s:1: %w", path, err) // it is too long as a whole
	}
	return file, nil
}

// decidablePhase refuses what only the gatherer knows that it could never be told, or never find out. The latter is
// known once all parameters have their values.
func decidablePhase(ph *pipeline.Phase, valued bool) error {
	if _, err := gather.ParsePatterns(ph.WakeOn); err != nil {
		return fmt.Errorf("phase %q: wake_on: %w", ph.Name, err)
	}
	for _, c := range []*guard.Condition{ph.When, ph.Until} {
		if c == nil || !valued {
			continue
		}
		if err := decider().Check(c); err != nil {
			return fmt.Errorf("phase %q: %w", ph.Name, err)
		}
	}
	return nil
}

// runUntilSignal runs a run; the first signal cancels it, the second leaves it.
func (a *app) runUntilSignal(g *piping, begin func(context.Context, *run.Pipelines) (run.Ref, error)) error {
	a.outliveReaders()
	sigs := catch()
	defer sigs.stop()
	s, err := a.openSoon(sigs)
	if err != nil {
		return err
	}
	defer s.Close()
	if g.ttl > 0 {
		s = s.With(holdfast.TTL(g.ttl))
	}
	tree := &liveTree{screen: newScreen(a.out, a.errOut, !a.json && isTerminal(a.errOut)), json: a.json, theirs: g.resume}
	p, err := run.New(run.Config{Space: s, Gatherer: gather.New(g.config(s, a.timeout)), Runner: &processes{a, g, tree}, Recheck: g.recheck, Told: tree.told, OnError: tree.stalled})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	ref, err := begin(ctx, p)
	if err != nil {
		return err
	}
	rep, err := p.Report(ctx, ref)
	if err != nil {
		return err
	}
	return a.runShown(ctx, stop, g, p, sigs, tree, &rep)
}

// runShown runs a run to its end, and returns when all of it was shown.
func (a *app) runShown(ctx context.Context, stop context.CancelCauseFunc, g *piping, p *run.Pipelines, sigs *signals, tree *liveTree, rep *run.Report) error {
	ref := rep.Ref
	tree.begin(rep)
	if rep.Runner != "" {
		tree.note(fmt.Sprintf("another program runs %s: %s; this one goes on with it if that one is lost", ref, plain(rep.Runner)))
	}
	var watching sync.WaitGroup
	var asked error
	watching.Go(func() { asked = onSignals(ctx, sigs, p, ref, tree, stop) })
	tree.bound(g.wait, stop)
	state, err := p.Run(ctx, ref)
	cause := context.Cause(ctx)
	stop(nil)
	watching.Wait()
	tree.stop()
	if err := tree.end(sigs.c); err != nil {
		return err
	}
	if state.Status == "" || state.Status == rep.State.Status && state.Reason == "" { // it was left before it had begun
		state = rep.State
	}
	if state.Reason == "" && !tree.here {
		state.Reason = "another program runs it, or is about to"
	}
	if err == nil && tree.cut { // what follows is a line of its own
		fmt.Fprintln(a.out)
	}
	rep.State = state
	return a.outcomeOf(rep, err, cmp.Or(asked, cause))
}

var errBlocked = errors.New("it has been blocked for too long")

// outcomeOf is the exit code of a run.
func (a *app) outcomeOf(rep *run.Report, err, cause error) error {
	ref, s := rep.Ref, &rep.State
	if err != nil {
		if _, ok := errors.AsType[signalled](cause); ok {
			return cause
		}
		if errors.Is(cause, errBlocked) {
			return &failure{code: exitTimeout, err: fmt.Errorf("%s is still %s: %s", ref, s.Status, cmp.Or(s.Reason, "it has not been looked at for so long")), hint: hintFor(ref, s.Status)}
		}
		return err
	}
	err = a.print().value(reportJSON(&run.Report{Ref: ref, Definition: rep.Definition, State: *s}), "%s: %s", ref, s.Status)
	if err != nil && !errors.Is(err, syscall.EPIPE) { // a reader that has gone needs no more
		return err
	}
	_, bySignal := errors.AsType[signalled](cause)
	switch {
	case s.Status == pipeline.Done:
		return nil
	case s.Status == pipeline.Cancelled && bySignal:
		return cause
	}
	return &failure{code: exitNo, err: fmt.Errorf("%s is %s: %s", ref, s.Status, s.Reason)}
}

// hintFor is what has to be done next for a run that was left.
func hintFor(ref run.Ref, status pipeline.Status) string {
	if status == pipeline.Unknown {
		return "say how its command ended: holdfast pipeline approve " + argument(ref.String())
	}
	return "go on with holdfast pipeline run --resume " + argument(ref.String())
}

// onSignals cancels the run with ^C. Any other signal that means an end, as a machine that is
// shut down sends, leaves the run for the next runner; so does a second one, however long the
// first takes, and ^C of a program that only stands by. It returns the first when ctx ends; nil:
// none came.
func onSignals(ctx context.Context, sigs *signals, p *run.Pipelines, ref run.Ref, tree *liveTree, stop context.CancelCauseFunc) (asked error) {
	var cancelling sync.WaitGroup
	defer cancelling.Wait()
	for {
		select {
		case <-ctx.Done():
			return asked
		case sig := <-sigs.c:
			if slices.Contains(forCommands, sig) {
				continue
			}
			why := signalled{sig.(syscall.Signal)}
			if asked != nil || why.Signal != syscall.SIGINT || tree.standsBy() {
				asked = cmp.Or(asked, error(why))
				tree.note(ref.String() + " is left to the next runner")
				stop(why)
				continue
			}
			asked = why
			cancelling.Go(func() {
				if err := p.Cancel(ctx, ref, why.Error()); err != nil {
					stop(why)
					return
				}
				tree.note(ref.String() + " is cancelled; a second signal leaves it")
			})
		}
	}
}

// ofRun is a command about one run.
func (a *app) ofRun(do func(ctx context.Context, p *run.Pipelines, s *holdfast.Space, r run.Ref) error) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		r, err := run.ParseRef(args[0])
		if err != nil {
			return err
		}
		return a.asking(func(ctx context.Context, s *holdfast.Space, _ []string) error {
			p, err := run.New(run.Config{Space: s})
			if err != nil {
				return err
			}
			return do(ctx, p, s, r)
		})(nil, nil)
	}
}

func (a *app) pipelineList() *cobra.Command {
	var all bool
	c := &cobra.Command{Use: "list PIPELINE", Short: "List the runs of a pipeline that have not ended", Args: cobra.ExactArgs(1), Example: "  holdfast pipeline list release"}
	c.Flags().BoolVar(&all, "all", false, "also those that have ended and are kept")
	c.RunE = a.asking(func(ctx context.Context, s *holdfast.Space, args []string) error {
		p, err := run.New(run.Config{Space: s})
		if err != nil {
			return err
		}
		list, rows := []*statusJSON{}, [][]string{}
		var failed error // the last
		for rep, err := range p.List(ctx, args[0]) {
			if err != nil {
				failed = err
				break
			}
			if st := &rep.State; all || !st.Status.Ended() {
				list = append(list, reportJSON(&rep))
				rows = append(rows, []string{rep.Ref.String(), string(st.Status), cmp.Or(st.Phase, "-"), cmp.Or(rep.Runner, "-")})
			}
		}
		return cmp.Or(a.print().table(list, []string{"RUN", "STATUS", "PHASE", "RUNNER"}, rows), failed)
	})
	return c
}

func (a *app) pipelineStatus() *cobra.Command {
	c := &cobra.Command{Use: "status RUN", Short: "Tell where a run stands", Args: cobra.ExactArgs(1), Example: "  holdfast pipeline status release/7",
		Long: `Tell where a run stands, as it was kept last. Exit code 1: it is blocked, asks how a command
ended, or has not ended well.`}
	c.RunE = a.ofRun(func(ctx context.Context, p *run.Pipelines, _ *holdfast.Space, r run.Ref) error {
		rep, err := p.Report(ctx, r)
		if err != nil {
			return err
		}
		if err := a.print().value(reportJSON(&rep), "%s", reportTree(&rep, nil)); err != nil {
			return err
		}
		return blockedIf(!slices.Contains([]pipeline.Status{pipeline.Done, pipeline.Launching, pipeline.Running, pipeline.Pausing}, rep.State.Status))
	})
	return c
}

func (a *app) pipelineWhy() *cobra.Command {
	var g guarding
	c := &cobra.Command{Use: "why RUN", Short: "Say why a run does not go on, by what is so now", Args: cobra.ExactArgs(1), Example: "  holdfast pipeline why release/7",
		Long: `Say why a run does not go on: its condition is decided anew, with what is so now; what its
phase holds and its place in the queue are looked at. Exit code 1: it is blocked; 0 also for a
run that has ended, well or not, which status tells.`}
	g.flags(c)
	c.RunE = a.ofRun(func(ctx context.Context, p *run.Pipelines, s *holdfast.Space, r run.Ref) error {
		rep, err := p.Report(ctx, r)
		if err != nil {
			return err
		}
		now := a.lookAt(ctx, s, &g, &rep)
		j := reportJSON(&rep)
		j.Why = now.reasons
		if now.condition != nil {
			j.Guard = guardJSON(rep.State.Phase, now.result)
		}
		if err := a.print().value(j, "%s", reportTree(&rep, now)); err != nil {
			return err
		}
		return blockedIf(!rep.State.Status.Ended() && (len(now.reasons) > 0 || now.condition != nil && now.result.Outcome != guard.Passed))
	})
	return c
}

// nowIs is what is so now.
type nowIs struct {
	condition *guard.Condition
	result    guard.Result
	reasons   []string
}

// lookAt finds out what a run waits for.
func (a *app) lookAt(ctx context.Context, s *holdfast.Space, g *guarding, rep *run.Report) *nowIs {
	now := &nowIs{}
	ph := phaseOf(rep)
	switch rep.State.Status {
	case pipeline.Queued:
		if rep.State.Reason != "" {
			now.reasons = append(now.reasons, rep.State.Reason)
		}
	case pipeline.Acquiring:
		now.reasons = append(now.reasons, holders(ctx, s, ph.Holds)...)
	case pipeline.Unknown:
		now.reasons = append(now.reasons, rep.State.Reason+": holdfast pipeline approve "+argument(rep.Ref.String()))
	case pipeline.Launching:
		if rep.State.Reason != "" {
			now.reasons = append(now.reasons, rep.State.Reason)
		}
	}
	if now.condition = rep.Definition.Waits(&rep.State); now.condition != nil {
		now.result = gather.New(g.config(s, a.timeout)).Evaluate(ctx, now.condition)
	}
	if rep.Runner == "" && !rep.State.Status.Ended() {
		now.reasons = append(now.reasons, "no program runs it: holdfast pipeline run --resume "+argument(rep.Ref.String()))
	}
	return now
}

// holders tells which of the holds others have.
func holders(ctx context.Context, s *holdfast.Space, wants []pipeline.Want) (lines []string) {
	for _, w := range wants {
		r, err := s.Inspect(ctx, w.Name)
		switch {
		case err != nil:
			lines = append(lines, err.Error())
		case len(r.Holders) > 0 && w.Kind == "semaphore":
			lines = append(lines, fmt.Sprintf("the semaphore %q has %d of %d free, and %d wait", w.Name, r.Limit-r.Used, r.Limit, r.Waiting))
		case len(r.Holders) > 0:
			h := &r.Holders[0]
			lines = append(lines, fmt.Sprintf("the %s %q is held by %s for %s, and %d wait", w.Kind, w.Name, plain(h.Owner), span(h.Held), r.Waiting))
		}
	}
	return lines
}

func (a *app) pipelineCancel() *cobra.Command {
	var reason string
	c := &cobra.Command{Use: "cancel RUN", Short: "End a run; its command is ended first", Args: cobra.ExactArgs(1), Example: "  holdfast pipeline cancel release/7"}
	c.Flags().StringVar(&reason, "reason", "it was cancelled by hand", "what its log says")
	c.RunE = a.ofRun(func(ctx context.Context, p *run.Pipelines, _ *holdfast.Space, r run.Ref) error {
		return a.say(ctx, p, r, p.Cancel(ctx, r, reason))
	})
	return c
}

func (a *app) pipelineApprove() *cobra.Command {
	var again, failed bool
	c := &cobra.Command{Use: "approve RUN", Short: "Say how a command ended that nobody saw the end of", Args: cobra.ExactArgs(1), Example: "  holdfast pipeline approve release/7\n  holdfast pipeline approve --again release/7",
		Long: `Say how the command of a lost runner ended: well, so that the run goes on, or with --failed
not, or with --again that it may be started once more.`}
	c.Flags().BoolVar(&again, "again", false, "it may be started again")
	c.Flags().BoolVar(&failed, "failed", false, "it has failed")
	c.MarkFlagsMutuallyExclusive("again", "failed")
	c.RunE = a.ofRun(func(ctx context.Context, p *run.Pipelines, _ *holdfast.Space, r run.Ref) error {
		answer := pipeline.Succeeded
		switch {
		case again:
			answer = pipeline.Again
		case failed:
			answer = pipeline.DidFail
		}
		return a.say(ctx, p, r, p.Answer(ctx, r, answer))
	})
	return c
}

// say prints where a run stands after something was said about it; what cannot be said any
// more is a no.
func (a *app) say(ctx context.Context, p *run.Pipelines, r run.Ref, err error) error {
	if err != nil {
		f := *failureOf(err)
		if f.code == exitUsage {
			rep, _ := p.Report(ctx, r)
			f.code, f.hint = exitNo, hintAfterNo(r, &rep)
		}
		return &f
	}
	rep, err := p.Report(ctx, r)
	if err != nil {
		return err
	}
	return a.print().value(reportJSON(&rep), "%s: %s", r, rep.State.Status)
}

// hintAfterNo is what tells more of a run of which something could not be said.
func hintAfterNo(r run.Ref, rep *run.Report) string {
	switch s := rep.State.Status; {
	case s == "" || s.Ended():
		return "holdfast pipeline status " + argument(r.String()) + " tells where it stands"
	case rep.Runner == "":
		return "no program runs it: holdfast pipeline run --resume " + argument(r.String())
	}
	return "holdfast pipeline why " + argument(r.String()) + " tells what it waits for"
}

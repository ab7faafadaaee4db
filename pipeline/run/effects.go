package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/pipeline"
)

// about is an event of the attempt that an effect is of.
func about(kind pipeline.EventKind, f *pipeline.Effect) pipeline.Event {
	return pipeline.Event{Kind: kind, Phase: f.Phase, Attempt: f.Attempt}
}

// waits tells why an attempt waits.
func (a *active) waits(ctx context.Context, f *pipeline.Effect, o guard.Outcome, reason string) {
	e := about(pipeline.Checked, f)
	e.Outcome, e.Reason = o, reason
	a.send(ctx, message{task: ctx, event: e})
}

// check waits until the condition passes, and tells what it waits for.
func (a *active) check(ctx context.Context, f *pipeline.Effect) {
	r, err := a.p.gatherer.Wait(ctx, f.Condition, gather.WaitOptions{Recheck: a.p.recheck, Events: wakesOf(phaseOf(a.Definition, f.Phase)), Told: func(r guard.Result) {
		if r.Outcome != guard.Passed {
			a.waits(ctx, f, r.Outcome, reasonOf(r))
		}
	}})
	switch {
	case err != nil && ctx.Err() == nil:
		a.waits(ctx, f, guard.Error, err.Error())
	case err == nil && r.Outcome == guard.Passed:
		a.waits(ctx, f, guard.Passed, "")
	}
}

// wakesOf are the events that wake a phase. A pattern that is none any more, of a run which an earlier build took, has none.
func wakesOf(ph *pipeline.Phase) (all []gather.Pattern) {
	for _, text := range ph.WakeOn {
		if p, err := gather.ParsePattern(text); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// reasonOf is what stands in the way, one leaf a line. It is never empty: a run that is blocked without a reason
// would count as not looked at yet, and keep what it took from limiters counted.
func reasonOf(r guard.Result) string {
	var lines []string
	for _, reason := range r.Reasons {
		if reason.Decides {
			lines = append(lines, reason.String())
		}
	}
	if len(lines) == 0 {
		return "the condition has not passed, with what the phase has itself"
	}
	return strings.Join(lines, "\n")
}

// acquire waits until everything is held.
func (a *active) acquire(ctx context.Context, f *pipeline.Effect) {
	queued := make(chan struct{}, 1) // told once: the place of a waiter changes often
	s := a.p.space.With(holdfast.OnWait(func(int) {
		select {
		case queued <- struct{}{}:
			go a.waits(ctx, f, guard.Failed, "it waits for "+namesOf(f.Holds))
		default:
		}
	}))
	for try := 0; ; try++ {
		h, err := s.AcquireAll(ctx, wantsOf(s, f.Holds)...)
		if err == nil {
			e := about(pipeline.Acquired, f)
			e.Token = uint64(h.Token())
			a.send(ctx, message{task: ctx, event: e, hold: h})
			return
		}
		if ctx.Err() != nil || a.refused(ctx, f, a.p.otherLimit(ctx, f.Holds, err)) {
			return
		}
		a.waits(ctx, f, guard.Error, err.Error())
		if !pause(ctx, try) {
			return
		}
	}
}

// refused fails the attempt if what it wants can never be had: to wait for it would have no end.
// What a backend cannot do it may be able to when all of its servers are of one version again.
func (a *active) refused(ctx context.Context, f *pipeline.Effect, err error) bool {
	if !errors.Is(err, fs.ErrInvalid) {
		return false
	}
	e := about(pipeline.Refused, f)
	e.Reason = err.Error()
	a.send(ctx, message{task: ctx, event: e})
	return true
}

// otherLimit is the error of holds of which a semaphore has another limit than the definition says, which is the same as a cost
// that a limiter never allows; of others it is err.
func (p *Pipelines) otherLimit(ctx context.Context, holds []pipeline.Want, err error) error {
	if !errors.Is(err, holdfast.ErrConflict) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, w := range holds {
		if is, e := p.space.Inspect(ctx, w.Name); e == nil && w.Kind == "semaphore" && is.Kind.String() == w.Kind && is.Limit != w.Limit {
			return fmt.Errorf("the semaphore %q has the limit %d, and the phase holds it with %d: submit it with the limit %[2]d, or set that of the semaphore to %[3]d: %w", w.Name, is.Limit, w.Limit, fs.ErrInvalid)
		}
	}
	return err
}

func wantsOf(s *holdfast.Space, list []pipeline.Want) (all []holdfast.Want) {
	for _, w := range list {
		switch w.Kind {
		case "read":
			all = append(all, s.RWMutex(w.Name).Reader().Want())
		case "write":
			all = append(all, s.RWMutex(w.Name).Writer().Want())
		case "semaphore":
			all = append(all, s.Semaphore(w.Name, w.Limit).Want(w.Weight))
		default:
			all = append(all, s.Mutex(w.Name).Want())
		}
	}
	return all
}

func namesOf(list []pipeline.Want) string {
	var names []string
	for _, w := range list {
		names = append(names, fmt.Sprintf("the %s %q", w.Kind, w.Name))
	}
	return strings.Join(names, " and ")
}

// command is one that runs.
type command struct {
	phase   string
	attempt int
	under   *both
	halt    chan struct{}       // closed: it is to end
	halted  bool                // it was to end before it had, and not for what it ran under; when done has its end
	code    int                 // with which it ended, whatever that counts as; when done has its end
	done    chan pipeline.Event // has its end, for leave
}

// toEnd reports that it is to end.
func (c *command) toEnd() bool {
	select {
	case <-c.halt:
		return true
	default:
		return false
	}
}

// start runs the command of a phase, unless it is to end already, or what it is to run under is over: then nobody
// may start it here, and the attempt waits again. What a command that does not start has taken
// from limiters is given back.
func (a *active) start(f *pipeline.Effect) {
	bound, unbind := context.WithCancel(context.Background())
	h, undo := a.under(bound), a.undo
	c := &command{phase: f.Phase, attempt: f.Attempt, under: h, halt: make(chan struct{}), done: make(chan pipeline.Event, 1)}
	a.command, a.undo = c, nil
	run := &Command{Ref: a.Ref, Phase: f.Phase, Attempt: f.Attempt, Args: f.Run, Env: a.env(), Hold: h, Stop: c.halt}
	a.tasks.Go(func() {
		defer unbind()
		end, started := a.end(c, run)
		if !started && undo != nil {
			undo()
		}
		select {
		case a.msgs <- message{event: end, undo: func() { c.done <- end }}:
		case <-a.ctx.Done():
			c.done <- end
		}
	})
}

// end runs the command, and is what has become of it.
func (a *active) end(c *command, run *Command) (e pipeline.Event, started bool) {
	e = pipeline.Event{Kind: pipeline.NotStarted, Phase: c.phase, Attempt: c.attempt}
	if run.Hold.Err() != nil || a.ctx.Err() != nil || c.toEnd() {
		return e, false
	}
	exit, err := a.p.runner.Run(run)
	if err == nil && exit.NotStarted {
		return e, false
	}
	c.halted = c.toEnd() && !exit.Itself && !exit.Lost
	c.code = exit.Code
	switch {
	case err != nil:
		e.Reason = "its command cannot be run: " + err.Error()
		exit = Exit{Code: exitCannotRun, Tail: err.Error()}
		if errors.Is(err, fs.ErrNotExist) {
			exit.Code, e.Final = exitNotFound, true
		}
		c.code, c.halted = exit.Code, false // it never ran
	case exit.Lost: // a failure, however well it takes the signal
		e.Reason = c.under.lostReason(exit.Code)
	}
	e.Kind, e.Code, e.Tail = pipeline.Exited, exit.Code, exit.Tail
	return e, err == nil
}

// The exit codes of commands that never began.
const (
	exitCannotRun = 126
	exitNotFound  = 127
)

// stop has the command end.
func (a *active) stop() {
	if a.command != nil && !a.command.toEnd() {
		close(a.command.halt)
	}
}

// env tells a command what it runs under.
func (a *active) env() []string {
	env := []string{
		"HOLDFAST_PIPELINE=" + a.Pipeline, "HOLDFAST_RUN=" + a.ID, "HOLDFAST_PHASE=" + a.State.Phase,
		"HOLDFAST_ATTEMPT=" + strconv.Itoa(a.State.Attempt), "HOLDFAST_RUNNER_TOKEN=" + strconv.FormatUint(uint64(a.l.Token()), 10),
	}
	for _, name := range slices.Sorted(maps.Keys(a.Params)) {
		env = append(env, "HOLDFAST_PARAM_"+name+"="+a.Params[name])
	}
	if a.hold == nil {
		return env
	}
	tokens := map[string]uint64{}
	for _, w := range phaseOf(a.Definition, a.State.Phase).Holds {
		tokens[w.Name] = uint64(a.hold.TokenOf(w.Name))
	}
	all, _ := json.Marshal(tokens) // a map of texts to numbers
	return append(env, "HOLDFAST_TOKEN="+strconv.FormatUint(uint64(a.hold.Token()), 10), "HOLDFAST_TOKENS="+string(all))
}

// both is the leadership and, if a phase holds something, that.
type both struct {
	over  context.Context
	parts []*holdfast.Hold
}

func (a *active) under(ctx context.Context) *both {
	b := &both{over: a.l.Bind(ctx), parts: []*holdfast.Hold{a.l.Hold}}
	if a.hold != nil {
		b.over, b.parts = a.hold.Bind(b.over), append(b.parts, a.hold)
	}
	return b
}

func (b *both) Done() <-chan struct{} { return b.over.Done() }

func (b *both) Err() error {
	var errs []error
	for _, h := range b.parts {
		errs = append(errs, h.Err())
	}
	return errors.Join(errs...)
}

// lostReason is why a command has failed that was ended because this was over, or about to be.
func (b *both) lostReason(code int) string {
	what, why := "what it held was lost", b.parts[len(b.parts)-1].Err()
	if len(b.parts) == 1 || why == nil && b.parts[0].Err() != nil {
		what, why = "its runner had lost the run", b.parts[0].Err()
	}
	if why == nil { // it is ended before others can have it
		why = errors.New("it could not be renewed in time")
	}
	return fmt.Sprintf("%s while its command ran: %v; the command was ended, with exit code %d", what, why, code)
}

func (b *both) Deadline() (first time.Time, ok bool) {
	for _, h := range b.parts {
		if t, has := h.Deadline(); has && (!ok || t.Before(first)) {
			first, ok = t, true
		}
	}
	return first, ok
}

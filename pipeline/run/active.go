package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/pipeline"
)

// active is a run that this program runs.
type active struct {
	p *Pipelines
	*view
	l    *holdfast.Leadership
	ctx  context.Context // ends with the leadership
	msgs chan message
	wake chan struct{} // its keys may have changed

	since   time.Time          // when this runner found the run in its status
	task    context.CancelFunc // ends what is waited for
	tasks   sync.WaitGroup
	until   *time.Timer
	silent  bool // what is waited for has said nothing yet
	overdue bool // the wait was over when it began: it ends with the first that is said
	recheck *time.Timer
	reasons reasons
	hold    *holdfast.Hold
	ended   *holdfast.Hold // was lost, and is given up when the command has ended
	undo    func()         // gives back what was taken from limiters for a command that has not started; nil: nothing
	command *command
	left    *unkept
}

// message is what a task has to say: an event, with what belongs to it if it is taken.
type message struct {
	task  context.Context // nil: no task said it; one of a task that has ended is late
	event pipeline.Event
	hold  *holdfast.Hold
	// undo gives back what was taken, if the event is not.
	undo func()
}

// lead runs a run under a leadership.
func (p *Pipelines) lead(ctx context.Context, r Ref, l *holdfast.Leadership, left *unkept) (pipeline.State, error) {
	during, cancel := context.WithCancel(ctx)
	defer cancel()
	v, err := p.load(ctx, r)
	if err == nil {
		err = left.keep(ctx, p, v)
	}
	if err != nil || v.State.Status.Ended() {
		return stateOf(v), err
	}
	a := &active{
		p: p, view: v, l: l, left: left, ctx: l.Bind(during), msgs: make(chan message), wake: make(chan struct{}, 1), task: func() {},
		until: stopped(), recheck: stopped(), reasons: reasons{due: stopped()},
	}
	defer a.until.Stop()
	defer a.reasons.due.Stop()
	defer a.recheck.Stop()
	defer p.events.Subscribe(a.interest())()
	defer p.sweepFor(a)()
	if v.Definition.Places > 0 { // its queue has to be looked at, too
		a.recheck.Reset(p.between())
	}
	err = a.loop()
	cancel()
	return a.State, errors.Join(err, a.leave())
}

func stateOf(v *view) (s pipeline.State) {
	if v != nil {
		s = v.State
	}
	return s
}

func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

func (p *Pipelines) between() time.Duration {
	return p.recheck - p.recheck/10 + rand.N(p.recheck/5+1)
}

// interest is what the run is woken by, besides what it waits for: events that others
// write, and the queue.
func (a *active) interest() gather.Interest {
	i := gather.Interest{Inputs: []guard.Input{{Source: guard.SourceKey, Name: a.head()}}, Changed: func(...guard.Input) { a.look() }}
	if a.Definition.Places > 0 {
		i.Inputs = append(i.Inputs, guard.Input{Source: guard.SourceKey, Name: queueKey(a.Pipeline)})
		i.Events = []gather.Pattern{{Kind: "election", Verb: "*", Glob: prefix + literal(a.Pipeline) + "/*"}}
	}
	return i
}

// literal is a name as a glob that matches it alone.
func literal(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

func (a *active) look() {
	select {
	case a.wake <- struct{}{}:
	default: // it is about to look
	}
}

// loop does what has to be done until the run has ended, or the leadership has.
func (a *active) loop() error {
	if err := a.takeOver(); err != nil {
		return err
	}
	if err := a.perform(pipeline.State{}, a.effects); err != nil {
		return err
	}
	for !a.State.Status.Ended() {
		var err error
		select {
		case <-a.ctx.Done():
			return context.Cause(a.ctx)
		case m := <-a.msgs:
			err = a.hearTask(m)
		case <-a.lost():
			err = a.loseHold()
		case <-a.until.C:
			err = a.take(message{event: a.of(pipeline.Ticked)})
		case <-a.reasons.due.C:
			err = a.hear(a.reasons.last)
		case <-a.wake:
			err = a.catchUp()
		case <-a.recheck.C:
			a.recheck.Reset(a.p.between())
			err = a.catchUp()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeOver does not try for ever, so that what is wrong is told.
func (a *active) takeOver() error {
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	return a.p.takeOver(ctx, a.view, a.l)
}

// hear takes a message. Before the end of a command is kept it is known whether what it ran
// under had lasted so long.
func (a *active) hear(m message) error {
	e := &m.event
	late := m.task != nil && m.task.Err() != nil
	waits := e.Kind == pipeline.Checked && e.Outcome != guard.Passed
	holding := a.State.Status == pipeline.Blocked && (a.hold != nil || a.undo != nil) // and has to give it back now
	if waits && !late && a.State.Status == pipeline.Blocked {
		a.giveBack()
	}
	if late || waits && !holding && !a.reasons.now(&m, &a.State) {
		m.back()
		return nil
	}
	if ends(e) && a.hold != nil && a.hold.Err() != nil {
		if err := a.loseHold(); err != nil {
			m.back()
			return err
		}
	}
	return a.take(m)
}

// of is an event of the attempt that the run is in.
func (a *active) of(kind pipeline.EventKind) pipeline.Event {
	return pipeline.Event{Kind: kind, Phase: a.State.Phase, Attempt: a.State.Attempt}
}

func (a *active) lost() <-chan struct{} {
	if a.hold == nil {
		return nil
	}
	return a.hold.Done()
}

// loseHold tells that what was held is lost.
func (a *active) loseHold() error {
	e := a.of(pipeline.Lost)
	e.Token = uint64(a.hold.Token())
	if err := a.hold.Err(); err != nil {
		e.Reason = err.Error()
	}
	a.hold, a.ended = nil, a.hold
	if a.command == nil {
		a.giveUp()
	}
	return a.take(message{event: e})
}

// giveUp confirms a loss: nothing runs under it any more, and the next may have it.
func (a *active) giveUp() {
	if a.ended != nil {
		_ = a.ended.Release() // it is lost, as is known
		a.ended = nil
	}
}

// take keeps an event, and does what follows. One that does not fit any more is dropped.
func (a *active) take(m message) error {
	for {
		before := a.State
		effects, err := a.write(m.event)
		switch {
		case err == nil:
			if m.hold != nil {
				a.hold = m.hold
			}
			a.launched(&m)
			a.forgetCommand(&m.event)
			return a.perform(before, effects)
		case errors.Is(err, errChanged):
			if err = a.catchUp(); err == nil && !a.State.Status.Ended() {
				continue
			}
		case a.ctx.Err() == nil && !passing(err) && !errors.Is(err, errNotYet):
			err = a.drop(m.event, err)
		}
		m.back()
		if m.event.Kind == pipeline.Launched && err != nil { // it may have been kept, and nothing is started
			*a.left = unkept{a.of(pipeline.NotStarted), a.Token}
		}
		return notYetIsFine(err)
	}
}

// launched keeps what a start took from limiters until the command starts; also while the
// condition is checked again before that, as the holds are kept.
func (a *active) launched(m *message) {
	if m.event.Kind == pipeline.Launched && m.undo != nil {
		a.undo = m.undo
	}
}

// giveBack gives back what was taken from limiters for a start that is not to be now.
func (a *active) giveBack() {
	if a.undo != nil {
		a.undo()
		a.undo = nil
	}
}

// starts reports that the run may be about to start a command with what it took from limiters.
func (a *active) starts(before *pipeline.State) bool {
	s := &a.State
	same := before.Phase == s.Phase && before.Attempt == s.Attempt
	return same && (s.Status == pipeline.Blocked || s.Status == pipeline.Launching || s.Status == pipeline.Running)
}

// drop is the error of an event that was not kept: none if it came late.
func (a *active) drop(e pipeline.Event, err error) error {
	if _, _, unfit := a.Definition.Step(a.State, e); unfit != nil {
		return nil
	}
	return err
}

func notYetIsFine(err error) error {
	if errors.Is(err, errNotYet) {
		return nil
	}
	return err
}

// back gives back what came with an event that was not taken.
func (m *message) back() {
	if m.hold != nil {
		_ = m.hold.Release()
	}
	if m.undo != nil {
		m.undo()
	}
}

// ends reports that there is no command any more after the event.
func ends(e *pipeline.Event) bool {
	return e.Kind == pipeline.Exited || e.Kind == pipeline.NotStarted
}

// forgetCommand is after the event by which a command has ended.
func (a *active) forgetCommand(e *pipeline.Event) {
	if ends(e) {
		a.command = nil
		a.giveUp()
	}
}

// catchUp takes the events that others have written: those that cancel, and that answer.
func (a *active) catchUp() error {
	now, err := a.p.load(a.ctx, a.Ref)
	if err != nil {
		if passing(err) && a.ctx.Err() == nil {
			a.recheck.Reset(min(settling, a.p.between()))
			return nil
		}
		return err
	}
	if now.Token != a.Token {
		return fmt.Errorf("%w: another runner has it", errChanged)
	}
	if err := a.replay(now); err != nil || a.State.Status.Ended() {
		return err
	}
	return a.queueTurn()
}

// replay takes the events up to now, one by one. A backend that has forgotten events that it had
// kept, as after a failover to a server that did not have them yet, has another run than this one
// knows: that one is taken over anew.
func (a *active) replay(now *view) error {
	if now.Seq < a.Seq || now.Seq == a.Seq && now.By != a.By {
		return fmt.Errorf("%w: the backend has forgotten events of %s", errChanged, a.Ref)
	}
	if now.Seq == a.Seq {
		a.rev = now.rev
		return nil
	}
	events, err := a.p.log(a.ctx, a.Ref, a.Seq, now.Seq)
	if err != nil {
		return err
	}
	for _, e := range events {
		before := a.State
		next, effects, err := a.Definition.Step(a.State, e)
		if err != nil {
			return fmt.Errorf("pipeline: the log of %s: %w", a.Ref, err)
		}
		a.State = next
		a.Seq++
		if a.Seq == now.Seq {
			a.record, a.rev = now.record, now.rev
		}
		a.forgetCommand(&e)
		if err := a.perform(before, effects); err != nil {
			return err
		}
	}
	return nil
}

// log reads the events after one up to another.
func (p *Pipelines) log(ctx context.Context, r Ref, after, upTo int) (events []pipeline.Event, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for entry, err := range p.space.KV().Range(ctx, r.log(), holdfast.AfterKey(r.event(after))) {
		var e pipeline.Event
		if err == nil {
			err = json.Unmarshal(entry.Value, &e)
		}
		if err != nil {
			return nil, fmt.Errorf("pipeline: read the log of %s: %w", r, err)
		}
		events = append(events, e)
	}
	if len(events) < upTo-after {
		return nil, fmt.Errorf("%w: more than %d events at once", errChanged, MaxEvents)
	}
	return events[:upTo-after], nil
}

// perform does what follows from an event.
func (a *active) perform(before pipeline.State, effects []pipeline.Effect) error {
	s := &a.State
	if before.Status != s.Status || before.Phase != s.Phase || before.Attempt != s.Attempt {
		a.since = time.Now()
		a.task()
		a.until.Stop()
		a.silent, a.overdue = false, false
	}
	if !a.starts(&before) {
		a.giveBack()
	}
	a.p.told(a.Ref, *s)
	queued := false
	for i := range effects {
		f := &effects[i]
		switch f.Kind {
		case pipeline.Enqueue:
			queued = true
		case pipeline.Check:
			a.begin(func(ctx context.Context) { a.check(ctx, f) })
		case pipeline.Acquire:
			a.begin(func(ctx context.Context) { a.acquire(ctx, f) })
		case pipeline.Launch:
			undo := a.undo
			a.undo = nil
			a.begin(func(ctx context.Context) { a.launch(ctx, f, undo) })
		case pipeline.Start:
			a.start(f)
		case pipeline.Stop:
			a.stop()
		case pipeline.Release:
			a.release()
		case pipeline.WakeAt:
			a.wakeAt(f.At)
		}
	}
	if queued {
		return a.queueTurn()
	}
	return nil
}

// begin waits for something else from now on.
func (a *active) begin(f func(ctx context.Context)) {
	a.task()
	ctx, cancel := context.WithCancel(a.ctx)
	a.task, a.silent = cancel, true
	a.tasks.Go(func() { f(ctx) })
}

// send gives a message to the loop; if that does not want it any more, what came with it is
// given back.
func (a *active) send(ctx context.Context, m message) {
	select {
	case a.msgs <- m:
	case <-ctx.Done():
		m.back()
	}
}

// release gives back what is held.
func (a *active) release() {
	if a.hold != nil {
		_ = a.hold.Release() // a hold that is lost meanwhile needs none
		a.hold = nil
	}
}

// keepEnd keeps the end of a command on top of what others have written meanwhile, unless
// another runner has the run.
func (a *active) keepEnd(e pipeline.Event) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), patience)
	defer cancel()
	for {
		_, err := a.p.put(ctx, a.view, e, nil)
		if !errors.Is(err, errChanged) {
			return err
		}
		now, err := a.p.load(ctx, a.Ref)
		if err != nil {
			return err
		}
		if now.Token != a.Token {
			return fmt.Errorf("%w: another runner has it", errChanged)
		}
		a.view = now
	}
}

// leave ends everything that was begun. The end of a command is kept as long as no other
// runner has the run: this one has seen it.
func (a *active) leave() error {
	a.task()
	var err error
	if c := a.command; c != nil {
		e := a.endOf(c)
		if err = a.keepEnd(e); err != nil {
			*a.left = unkept{e, a.Token}
			err = fmt.Errorf("pipeline: how the command of %s ended was not kept: %w", a.Ref, err)
		}
		a.p.told(a.Ref, a.State)
	}
	a.tasks.Wait()
	a.giveUp()
	a.giveBack()
	a.release()
	return err
}

// endOf is the end of a command that runs, or has ended: one that runs is ended here, which is
// a failure whatever its exit code.
func (a *active) endOf(c *command) pipeline.Event {
	select {
	case e := <-c.done:
		return e
	default:
	}
	a.stop()
	e := <-c.done
	if e.Kind == pipeline.NotStarted || !c.halted { // it has ended by itself meanwhile
		return e
	}
	e.Reason = fmt.Sprintf("its runner was ended, and ended the command, with exit code %d", c.code)
	if a.l.Err() != nil {
		e.Reason = fmt.Sprintf("its runner had lost the run, and ended the command, with exit code %d", c.code)
	}
	return e
}

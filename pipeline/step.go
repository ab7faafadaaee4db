package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/guard"
)

// Step is what an event makes of a run: its next state, and what the runner has to do. An
// event that does not fit is an error that changes nothing: it came late, twice, or for
// another attempt. The definition has to have passed [Definition.Check].
//
// A clock that was set back does not take the run back: time stands still for it until the
// clock has caught up.
func (d *Definition) Step(s State, e Event) (State, []Effect, error) {
	m := &step{d: d, s: s, at: e.At}
	if m.at.Before(s.Since) {
		m.at = s.Since
	}
	if err := m.take(&e); err != nil {
		return s, nil, fmt.Errorf("pipeline %q: event %q: %w", d.Name, e.Kind, err)
	}
	return m.s, m.out, nil
}

// step is one step.
type step struct {
	d   *Definition
	s   State
	at  time.Time
	out []Effect
	// reserved: what the start takes from limiters is taken.
	reserved bool
}

func (m *step) take(e *Event) error {
	switch {
	case e.Kind == Submitted:
		return m.submit()
	case m.s.Status == "":
		return errors.New("the run was not submitted")
	case m.s.Status.Ended():
		return fmt.Errorf("the run has ended: it is %s", m.s.Status)
	case m.s.Phase != "" && m.d.find(m.s.Phase) < 0:
		return fmt.Errorf("the run is in phase %q, which the definition does not have: go on with the definition that it began with", m.s.Phase)
	case e.Kind == Cancel:
		m.cancel(e.Reason)
		return nil
	case e.Kind == TakenOver:
		m.takeOver()
		return nil
	case e.Kind == Admitted:
		return m.admit()
	case e.Phase != m.s.Phase || e.Attempt != m.s.Attempt:
		return fmt.Errorf("it is of attempt %d of phase %q; the run is at attempt %d of phase %q", e.Attempt, e.Phase, m.s.Attempt, m.s.Phase)
	}
	return m.takeOfPhase(e)
}

// takeOfPhase takes an event of the attempt that the run is in.
func (m *step) takeOfPhase(e *Event) error {
	switch {
	case e.Kind == Checked && (m.s.Status == Blocked || m.s.Status == Verifying):
		m.checked(e)
	case e.Kind == Checked && e.Outcome != guard.Passed && (m.s.Status == Acquiring || m.s.Status == Launching):
		m.waits(e.Reason)
	case e.Kind == Acquired && m.s.Status == Acquiring && e.Token != 0:
		if m.s.Token = e.Token; m.waited() {
			m.checkAgain()
			return nil
		}
		m.goOn()
	case e.Kind == Launched && m.s.Status == Launching && m.waited():
		m.reserved = true
		m.checkAgain()
	case e.Kind == Launched && m.s.Status == Launching:
		m.s.Until = time.Time{}
		m.become(Running, "")
		m.effect(Effect{Kind: Start, Run: m.phase().Run})
	case e.Kind == Exited && (m.s.Status == Running || m.s.Status == Stopping):
		m.exited(e)
	case e.Kind == NotStarted && (m.s.Status == Running || m.s.Status == Stopping):
		m.notStarted()
	case e.Kind == Refused && (m.s.Status == Acquiring || m.s.Status == Launching):
		m.giveUp(e.Reason)
	case e.Kind == Lost && m.s.Token != 0 && e.Token == m.s.Token:
		m.lost(e.Reason)
	case e.Kind == Ticked && m.timed():
		m.ticked()
	case e.Kind == Answered && m.s.Status == Unknown:
		return m.answered(e.Answer)
	default:
		return fmt.Errorf("it does not fit: the run is %s", m.s.Status)
	}
	return nil
}

func (m *step) submit() error {
	if m.s.Status != "" {
		return fmt.Errorf("the run was submitted before: it is %s", m.s.Status)
	}
	m.become(Queued, "")
	m.effect(Effect{Kind: Enqueue})
	return nil
}

func (m *step) admit() error {
	if m.s.Status != Queued {
		return fmt.Errorf("the run has its place already: it is %s", m.s.Status)
	}
	m.enter(m.d.after(-1))
	return nil
}

// checked takes the outcome of When or Until. What is unknown waits as what is false does.
func (m *step) checked(e *Event) {
	switch {
	case e.Outcome != guard.Passed && m.s.Status == Blocked && (m.s.Token != 0 || m.first(e)):
		m.release()
		m.waits(e.Reason)
		m.request()
	case e.Outcome != guard.Passed:
		m.waits(e.Reason)
	case m.s.Status == Verifying:
		m.succeed()
	default:
		if m.s.Reason != "" {
			m.tell("resumed", "")
		}
		m.acquire()
	}
}

// waits notes what the run waits for.
func (m *step) waits(reason string) {
	if m.s.Reason != reason {
		m.s.Reason = reason
		m.tell("waiting", reason)
	}
}

// moment is how old the outcome of When may be when the command starts: after a longer wait
// for holds or limiters it is checked again.
const moment = 5 * time.Second

// waited reports that When has to be checked again before the command starts.
func (m *step) waited() bool {
	return !m.s.Ran && m.phase().When != nil && m.at.Sub(m.s.Since) >= moment
}

// checkAgain checks When before the command starts, without giving back what is held.
func (m *step) checkAgain() {
	if m.s.Ran || m.phase().When == nil {
		m.acquire()
		return
	}
	m.become(Blocked, "")
	m.request()
}

// acquire takes what the phase holds, if it holds anything that it does not have.
func (m *step) acquire() {
	if len(m.phase().Holds) == 0 || m.s.Token != 0 {
		m.goOn()
		return
	}
	m.become(Acquiring, "")
	m.request()
}

// goOn is after the holds: the command, or what comes after it.
func (m *step) goOn() {
	switch {
	case m.s.Ran || len(m.phase().Run) == 0:
		m.verify()
	default:
		m.become(Launching, "")
		m.request()
	}
}

// verify waits for Until, if there is one.
func (m *step) verify() {
	p := m.phase()
	if !m.s.Ran { // else it goes on verifying, until the same instant
		m.s.Ran, m.s.Until = true, time.Time{}
	}
	if p.Until == nil {
		m.succeed()
		return
	}
	if p.Within > 0 && m.s.Until.IsZero() {
		m.s.Until = m.at.Add(p.Within)
	}
	m.become(Verifying, "")
	m.request()
}

// request asks for what the status waits for.
func (m *step) request() {
	p := m.phase()
	switch m.s.Status {
	case Queued:
		m.effect(Effect{Kind: Enqueue})
	case Blocked:
		m.effect(Effect{Kind: Check, Condition: m.when()})
	case Acquiring:
		m.effect(Effect{Kind: Acquire, Holds: p.Holds})
	case Launching:
		m.effect(Effect{Kind: Launch, Limits: p.Limits})
	case Verifying:
		m.effect(Effect{Kind: Check, Condition: m.d.Waits(&m.s)})
	case Unknown:
		m.effect(Effect{Kind: Ask})
	}
	m.wakeAt()
}

// wakeAt asks for a tick when the wait is over, if it has an end.
func (m *step) wakeAt() {
	if !m.s.Until.IsZero() && m.timed() {
		m.effect(Effect{Kind: WakeAt, At: m.s.Until})
	}
}

// timed reports whether the status may have an end: what waits, by Wait before the command
// and by Within after it, also for holds that are lost meanwhile.
func (m *step) timed() bool {
	switch m.s.Status {
	case Blocked, Acquiring, Launching, Verifying, Pausing:
		return true
	}
	return false
}

func (m *step) exited(e *Event) {
	m.s.Code, m.s.Tail = e.Code, tail(e.Tail)
	switch {
	case m.s.Status == Stopping:
		m.end(Cancelled, m.s.Reason)
	case m.s.Lost:
		m.fail("what it held was lost while its command ran: " + cmp.Or(m.s.Reason, "it is not known why"))
	case e.Final:
		m.giveUp(e.Reason)
	case e.Code != 0 || e.Reason != "":
		m.fail(cmp.Or(e.Reason, fmt.Sprintf("its command ended with exit code %d", e.Code)))
	default:
		m.verify()
	}
}

// notStarted: the attempt waits again, and no retry is used. It may wait for as long as at its
// beginning: what it had waited before was enough.
func (m *step) notStarted() {
	if m.s.Status == Stopping {
		m.end(Cancelled, m.s.Reason)
		return
	}
	m.s.Lost = false
	m.waitFrom()
	m.checkAgain()
}

// lost: a command that runs without what it was to hold has to end; anything else waits
// for its holds again.
func (m *step) lost(why string) {
	m.s.Token = 0
	m.tell("lost", why)
	switch m.s.Status {
	case Running:
		m.s.Lost, m.s.Reason = true, why
		m.effect(Effect{Kind: Stop})
	case Launching:
		m.checkAgain()
	case Verifying:
		m.acquire()
	}
}

// ticked: a tick that comes early asks for nothing anew, so that a place in the queue of a
// lock is not lost by it.
func (m *step) ticked() {
	switch {
	case m.s.Until.IsZero() || m.at.Before(m.s.Until):
		m.wakeAt()
	case m.s.Status == Pausing:
		m.again()
	default:
		within := m.phase().Wait
		if m.s.Ran {
			within = m.phase().Within
		}
		m.fail(fmt.Sprintf("not so within %s: %s", within, cmp.Or(m.s.Reason, "nothing was found out")))
	}
}

func (m *step) answered(a Answer) error {
	switch a {
	case Succeeded:
		m.s.Ran = true
		m.acquire()
	case DidFail:
		m.fail("its command failed, as was answered")
	case Again:
		m.again()
	default:
		return fmt.Errorf("%q is none of the answers succeeded, failed, again", a)
	}
	return nil
}

func (m *step) cancel(reason string) {
	switch m.s.Status {
	case Running:
		m.become(Stopping, reason)
		m.effect(Effect{Kind: Stop})
	case Stopping:
	default:
		m.end(Cancelled, reason)
	}
}

// takeOver is what a runner finds that has taken the run over. What the last one held is
// lost, and its command has ended, nobody knows how.
func (m *step) takeOver() {
	m.s.Token = 0
	switch m.s.Status {
	case Running:
		if m.retries() {
			m.again()
			return
		}
		m.become(Unknown, "its runner was lost while the command ran: say how it ended")
		m.request()
	case Stopping:
		m.end(Cancelled, m.s.Reason)
	case Acquiring, Launching:
		m.checkAgain()
	case Verifying:
		m.acquire()
	default:
		m.request()
	}
}

// enter begins a phase.
func (m *step) enter(i int) {
	m.s.Phase, m.s.Attempt = m.d.Phases[i].Name, 1
	m.begin()
}

// again begins the phase once more.
func (m *step) again() {
	m.s.Attempt++
	m.begin()
}

func (m *step) begin() {
	m.s.Ran, m.s.Lost = false, false
	m.waitFrom()
	if m.phase().When == nil {
		m.acquire()
		return
	}
	m.become(Blocked, "")
	m.request()
}

// waitFrom has the Wait of the phase begin now, if it has one.
func (m *step) waitFrom() {
	m.s.Until = time.Time{}
	if wait := m.phase().Wait; wait > 0 {
		m.s.Until = m.at.Add(wait)
	}
}

// retries reports whether the phase may be started again.
func (m *step) retries() bool { return m.s.Attempt <= m.phase().Retries }

func (m *step) succeed() {
	m.release()
	p := m.phase()
	next := m.d.after(m.d.find(p.Name))
	switch {
	case p.Recovery:
		m.end(Failed, m.s.Failure)
	case next == len(m.d.Phases):
		m.end(Done, "")
	default:
		m.enter(next)
	}
}

// fail ends an attempt: the next one begins, or the phase has failed.
func (m *step) fail(reason string) {
	if !m.retries() {
		m.giveUp(reason)
		return
	}
	m.release()
	if pause := m.phase().Pause; pause > 0 {
		m.s.Until = m.at.Add(pause)
		m.become(Pausing, reason)
		m.request()
		return
	}
	m.again()
}

// giveUp ends a phase that has failed, whatever retries it has: the phase for failures is next, or nothing.
func (m *step) giveUp(reason string) {
	m.release()
	p := m.phase()
	m.s.Failed = append(slices.Clone(m.s.Failed), p.Name)
	first := cmp.Or(m.s.Failure, p.Name+": "+reason)
	if p.OnFailure == "" {
		m.end(Failed, first)
		return
	}
	m.s.Failure = first
	m.enter(m.d.find(p.OnFailure))
}

func (m *step) end(s Status, reason string) {
	m.release()
	m.s.Until = time.Time{}
	m.become(s, reason)
	m.effect(Effect{Kind: Leave})
}

func (m *step) release() {
	if m.s.Token != 0 {
		m.effect(Effect{Kind: Release, Token: m.s.Token})
		m.s.Token = 0
	}
}

// become changes the status. Blocked is told once it is known that the run waits.
func (m *step) become(s Status, reason string) {
	m.s.Status, m.s.Since, m.s.Reason = s, m.at, reason
	if s != Blocked && s != Verifying {
		m.tell(string(s), reason)
	}
}

func (m *step) tell(verb, reason string) {
	m.effect(Effect{Kind: Tell, Verb: verb, Reason: reason})
}

func (m *step) effect(f Effect) {
	f.Phase, f.Attempt = m.s.Phase, m.s.Attempt
	m.out = append(m.out, f)
}

// phase is the one that the run is in; before the first there is an empty one.
func (m *step) phase() *Phase {
	if i := m.d.find(m.s.Phase); i >= 0 {
		return &m.d.Phases[i]
	}
	return &Phase{}
}

// tail is the end of an output, from the beginning of a character on.
func tail(s string) string {
	if len(s) <= MaxTail {
		return s
	}
	s = s[len(s)-MaxTail:]
	for i := range utf8.UTFMax {
		if utf8.RuneStart(s[i]) {
			return s[i:]
		}
	}
	return s // it is no text
}

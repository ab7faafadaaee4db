package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
)

// Guard is one that is registered.
type Guard struct {
	ID string
	// Pipeline is told in events; the manager does not know pipelines.
	Pipeline  string
	Condition guard.Condition
	// WakeOn are events that have it look again, besides those of its inputs: kind:verb
	// or kind:name:verb, see [gather.ParsePattern].
	WakeOn []string
}

// watched is a guard that is waited for.
type watched struct {
	Guard
	when   guard.Condition // with what the manager knows
	cancel context.CancelCauseFunc
	done   chan struct{}
	result guard.Result // when done
	err    error

	told    chan struct{} // closed: nothing more is told
	news    chan struct{} // there is something to tell
	mu      sync.Mutex
	seen    guard.Result // the last
	pending []Event      // in order, the last of each verb
}

// RegisterGuard waits for the guard to pass, in the background: see [Manager.WaitGuard].
// An id has 1 to 256 bytes and no slash. One in use is refused, and what can never be looked for: see [gather.Gatherer.Check]. Semaphores that the manager knows by then, and nobody has used yet, have the slots that
// they were ensured with.
func (m *Manager) RegisterGuard(g Guard) error {
	events, err := gather.ParsePatterns(g.WakeOn)
	if err := errors.Join(err, m.gatherer.Check(&g.Condition), m.checkID(g.ID), g.checkTold()); err != nil {
		return fmt.Errorf("guard manager: register %q: %w", g.ID, err)
	}
	ctx, cancel := context.WithCancelCause(m.ctx)
	w := &watched{Guard: g, cancel: cancel, seen: guard.Result{Outcome: guard.NeedsInput}, done: make(chan struct{}), told: make(chan struct{}), news: make(chan struct{}, 1)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.guards[g.ID] != nil {
		cancel(nil)
		return fmt.Errorf("guard manager: register %q: %w", g.ID, fs.ErrExist)
	}
	if m.ctx.Err() != nil {
		cancel(nil)
		return fmt.Errorf("guard manager: register %q: %w", g.ID, errClosed)
	}
	w.when = g.Condition.WithLimits(m.slotsOf)
	m.guards[g.ID] = w
	m.all.Go(func() { m.follow(ctx, w, events) })
	m.all.Go(func() { m.tellAll(w) })
	return nil
}

// checkTold refuses texts that are too long for an event, which is a key.
func (g *Guard) checkTold() error {
	const most = 16 << 10
	if n := len(g.Pipeline) + len(strings.Join(g.WakeOn, "")); n > most {
		return fmt.Errorf("its events could not be told: pipeline and wake_on have %d bytes together, more than %d: %w", n, most, holdfast.ErrInvalid)
	}
	return nil
}

// slotsOf are the slots of a semaphore; 0: it is not known. m is locked.
func (m *Manager) slotsOf(name string) int64 {
	if r := m.semaphores[name]; r != nil {
		return r.slots
	}
	return 0
}

// checkID refuses ids of which no events could be told, nor forgotten. A call that has ended before it
// asks anything says what the backend would not take for a key.
func (m *Manager) checkID(id string) error {
	if id == "" || strings.Contains(id, "/") || len(id) > 256 {
		return fmt.Errorf("an id has 1 to 256 bytes and no slash: %w", holdfast.ErrInvalid)
	}
	if _, err := m.space.KV().Delete(ended(), keyOf("guard", "evaluating", id)); errors.Is(err, fs.ErrInvalid) {
		return fmt.Errorf("its events could not be told: %w", err)
	}
	return nil
}

// follow waits. What becomes of the guard is told beside it: a backend that does not answer
// delays nothing that is decided without it.
func (m *Manager) follow(ctx context.Context, w *watched, events []gather.Pattern) {
	defer close(w.done)
	w.add(Event{Kind: "guard", Verb: "evaluating", Name: w.ID, Pipeline: w.Pipeline, Condition: w.Condition.Kind, WakeOn: w.WakeOn})
	last := guard.Passed
	w.result, w.err = m.gatherer.Wait(ctx, &w.when, gather.WaitOptions{Recheck: m.recheck, Events: events, Told: func(r guard.Result) {
		if r.Outcome != guard.Passed {
			w.saw(r)
		}
		if r.Outcome != last && r.Outcome != guard.Passed {
			w.add(w.event("failed", r))
		}
		last = r.Outcome
	}})
	if w.err == nil {
		w.add(w.event("passed", w.result))
	}
}

// saw keeps the last result that did not pass.
func (w *watched) saw(r guard.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = r
}

func (w *watched) last() guard.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// add has an event told, in place of one of its verb that was not told yet.
func (w *watched) add(e Event) {
	w.mu.Lock()
	w.pending = append(slices.DeleteFunc(w.pending, func(o Event) bool { return o.Verb == e.Verb }), e)
	w.mu.Unlock()
	select {
	case w.news <- struct{}{}:
	default: // it is about to look
	}
}

// take is the next event to tell.
func (w *watched) take() (e Event, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pending) == 0 {
		return Event{}, false
	}
	e, w.pending = w.pending[0], w.pending[1:]
	return e, true
}

// patience is how long an event may take to be told.
const patience = 10 * time.Second

// tellAll tells all that becomes of a guard. The end of its wait is told too, also of a
// guard that is unregistered at once.
func (m *Manager) tellAll(w *watched) {
	defer close(w.told)
	for more := true; more; {
		select {
		case <-w.done:
			more = false
		case <-w.news:
		}
		m.tellPending(w)
	}
}

func (m *Manager) tellPending(w *watched) {
	for e, more := w.take(); more && m.ctx.Err() == nil; e, more = w.take() {
		within, cancel := context.WithTimeout(m.ctx, patience)
		m.tell(within, e)
		cancel()
	}
}

// event tells a result: what is waited for are the leaves that stand in the way.
func (w *watched) event(verb string, r guard.Result) Event {
	e := Event{Kind: "guard", Verb: verb, Name: w.ID, Pipeline: w.Pipeline, Condition: w.Condition.Kind, WakeOn: w.WakeOn}
	for _, reason := range r.Reasons {
		if reason.Decides && r.Outcome != guard.Passed && len(e.WaitingOn) < 16 {
			e.WaitingOn = append(e.WaitingOn, clip(reason.Want))
			if e.Reason == "" {
				e.Reason = clip(reason.String())
			}
		}
	}
	return e
}

// clip cuts a text to 1 KiB: an event is a key, and has to fit into one.
func clip(s string) string {
	const most = 1 << 10
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// GetGuard tells of a guard; false: it is not registered.
func (m *Manager) GetGuard(id string) (Guard, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.guards[id]; w != nil {
		return w.Guard, true
	}
	return Guard{}, false
}

// WaitGuard returns when the guard has passed, was unregistered (fs.ErrNotExist), the manager was closed (ErrClosed), or ctx
// ends, with its cause. The Result beside an error is the last that was seen, and never Passed.
func (m *Manager) WaitGuard(ctx context.Context, id string) (guard.Result, error) {
	m.mu.Lock()
	w := m.guards[id]
	m.mu.Unlock()
	if w == nil {
		return guard.Result{Outcome: guard.Error}, fmt.Errorf("guard manager: there is no guard %q: %w", id, fs.ErrNotExist)
	}
	select {
	case <-w.done:
		return w.result, w.err
	case <-ctx.Done():
		return w.last(), context.Cause(ctx)
	}
}

// UnregisterGuard ends the wait for a guard, and forgets it with its events. One that fails
// can be called again: the guard is known until its events are gone.
func (m *Manager) UnregisterGuard(ctx context.Context, id string) error {
	m.mu.Lock()
	w := m.guards[id]
	m.mu.Unlock()
	if w == nil {
		return fmt.Errorf("guard manager: there is no guard %q: %w", id, fs.ErrNotExist)
	}
	w.cancel(fmt.Errorf("guard manager: the guard %q was unregistered: %w", id, fs.ErrNotExist))
	select {
	case <-w.told:
	case <-ctx.Done():
		return fmt.Errorf("guard manager: unregister %q: its events are not told yet: %w", id, context.Cause(ctx))
	}
	for _, verb := range []string{"evaluating", "failed", "passed"} {
		if _, err := m.space.KV().Delete(ctx, keyOf("guard", verb, id)); err != nil {
			return fmt.Errorf("guard manager: unregister %q: %w", id, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.guards[id] == w {
		delete(m.guards, id)
	}
	return nil
}

// Event is what became of a guard, or a refusal that the backend does not tell.
type Event struct {
	Kind string `json:"-"`
	Verb string `json:"-"`
	// Name is the guard, or the lock or semaphore that was refused.
	Name      string     `json:"-"`
	GuardID   string     `json:"guard_id,omitempty"`
	Pipeline  string     `json:"pipeline_id,omitempty"`
	Holder    string     `json:"holder,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	WaitingOn []string   `json:"waiting_on,omitempty"`
	Condition guard.Kind `json:"condition,omitempty"`
	WakeOn    []string   `json:"wake_on,omitempty"`
}

// String is kind:verb.
func (e *Event) String() string { return e.Kind + ":" + e.Verb }

func keyOf(kind, verb, name string) string {
	return gather.EventPrefix + kind + "/" + verb + "/" + name
}

// tell puts the event. There is one key for each name and verb, so that they are bounded,
// and they end with the manager; one that cannot be put is not told: guards are decided
// without it.
func (m *Manager) tell(ctx context.Context, e Event) {
	if e.Kind == "guard" {
		e.GuardID = e.Name
	}
	b, err := json.Marshal(e)
	if err != nil {
		return
	}
	if s, err := m.lasting(ctx); err == nil {
		_, _ = m.space.KV().Put(ctx, keyOf(e.Kind, e.Verb, e.Name), b, holdfast.Under(s))
	}
}

// lasting is the session of the events: another one, if that before was lost.
func (m *Manager) lasting(ctx context.Context) (*holdfast.Session, error) {
	select {
	case m.telling <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-m.telling }()
	if m.session != nil && m.session.Err() == nil {
		return m.session, nil
	}
	s, err := m.space.Session(ctx, holdfast.Owner("guard manager"))
	if err == nil {
		m.session = s
	}
	return s, err
}

// Events yields the events of all managers of the Space, from now on, until ctx ends; the
// first pair has neither: it has begun. Where events are missing, holdfast.ErrCompacted
// tells so, and it goes on. Another error is the last pair.
func (m *Manager) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for e, err := range m.space.Watch(ctx, gather.EventPrefix, 0) {
			event, lost := eventOf(&e)
			switch {
			case err != nil:
				yield(Event{}, err)
				return
			case e.Kind == "watch" && e.Verb != "ready":
				lost = holdfast.ErrCompacted
			case e.Kind != "watch" && event.Kind == "":
				continue
			}
			if !yield(event, lost) {
				return
			}
		}
	}
}

func eventOf(e *holdfast.Event) (event Event, _ error) {
	rest, ok := strings.CutPrefix(e.Name, gather.EventPrefix)
	parts := strings.SplitN(rest, "/", 3)
	if !ok || e.Verb != "put" || len(parts) < 3 || e.KV == nil || json.Unmarshal(e.KV.Value, &event) != nil {
		return Event{}, nil
	}
	event.Kind, event.Verb, event.Name = parts[0], parts[1], parts[2]
	return event, nil
}

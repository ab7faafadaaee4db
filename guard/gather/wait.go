package gather

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/limit"
)

// WaitOptions are those of [Gatherer.Wait].
type WaitOptions struct {
	// Recheck is how often everything is looked at anew, whatever was told; default 30 s,
	// give or take a tenth.
	Recheck time.Duration
	// Events wake besides the inputs.
	Events []Pattern
	// Told has every result, the first and those that differ from the one before. It
	// must not block.
	Told func(guard.Result)
}

// Wait returns when the condition has passed, or with the error of ctx and the last
// result. It is woken by what the inputs tell, by the instants of time windows and when a
// limiter will allow the cost, and looks only at the inputs that may have changed; once those
// let it pass, the others are asked again too, and decide. What is true then may not be true
// any more when the caller acts: what has to stay true has to be held.
func (g *Gatherer) Wait(ctx context.Context, c *guard.Condition, o WaitOptions) (guard.Result, error) {
	if err := c.Check(); err != nil {
		return guard.Result{Outcome: guard.Error}, err
	}
	w := g.newWaiting(c, &o)
	defer g.Subscribe(Interest{Inputs: w.inputs, Events: o.Events, Changed: w.changed})()
	for {
		r := w.look(ctx)
		if r.Outcome == guard.Passed || ctx.Err() != nil {
			return r, passedOr(ctx, r)
		}
		w.pause(ctx)
	}
}

func passedOr(ctx context.Context, r guard.Result) error {
	if r.Outcome == guard.Passed {
		return nil
	}
	return context.Cause(ctx)
}

// waiting is one wait.
type waiting struct {
	g      *Gatherer
	c      *guard.Condition
	told   func(guard.Result)
	inputs []guard.Input
	facts  guard.Inputs
	last   string

	recheck time.Duration
	again   time.Time // of the next re-check, by the monotonic clock
	wake    chan struct{}
	late    map[guard.Input][]time.Time // to be looked at again, then
	refill  refill
	pauses  time.Duration // at least between two looks at a limiter
	mu      sync.Mutex
	dirty   map[guard.Input]bool // to be looked at; true: an event told of it
}

func (g *Gatherer) newWaiting(c *guard.Condition, o *WaitOptions) *waiting {
	w := &waiting{g: g, c: c, told: o.Told, inputs: c.RequiredInputs(), facts: guard.Inputs{}, recheck: o.Recheck,
		wake: make(chan struct{}, 1), late: map[guard.Input][]time.Time{}, dirty: map[guard.Input]bool{}}
	if w.recheck <= 0 {
		w.recheck = 30 * time.Second
	}
	w.all()
	return w
}

// changed notes what an event told of; no input at all: everything.
func (w *waiting) changed(inputs ...guard.Input) {
	if len(inputs) == 0 {
		inputs = w.inputs
	}
	w.mark(true, inputs...)
	select {
	case w.wake <- struct{}{}:
	default: // it is about to look
	}
}

// mark notes what to look at.
func (w *waiting) mark(told bool, inputs ...guard.Input) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, in := range inputs {
		w.dirty[in] = w.dirty[in] || told
	}
}

// nextCheck is when everything is looked at next: after the re-check, give or take a tenth, at
// one of a hundred instants in each that all waits of a program share, so that many waits wake
// it seldom, and not all at once.
func (g *Gatherer) nextCheck(now time.Time, recheck time.Duration) time.Time {
	step := max(recheck/100, 1)
	after := now.Sub(g.began) + recheck - recheck/10 + rand.N(recheck/5+1)
	return g.began.Add(after - after%step)
}

// all marks everything, for a re-check.
func (w *waiting) all() {
	w.again = w.g.nextCheck(time.Now(), w.recheck)
	w.mark(false, w.inputs...)
}

// look finds out what may have changed, and decides.
func (w *waiting) look(ctx context.Context) guard.Result {
	list := w.due()
	if !w.find(ctx, list) {
		return w.c.Explain(w.facts) // what was known before the end
	}
	r := w.c.Explain(w.facts)
	if r.Outcome == guard.Passed {
		if !w.refresh(ctx, list) {
			return w.c.Explain(w.facts)
		}
		r = w.c.Explain(w.facts)
	}
	text := r.String()
	switch {
	case text != w.last:
		w.pauses = leastRefill
	case slices.Contains(list, w.refill.input): // a look at something else tells nothing of the limiter
		w.pauses = min(2*w.pauses, mostRefill)
	}
	if w.refill = (refill{}); r.Outcome != guard.Passed {
		w.refilled(ctx, w.c)
	}
	if text != w.last {
		w.last = text
		if w.told != nil {
			w.told(r)
		}
	}
	return r
}

// due are the inputs to look at now. Those of which the backend has told are looked at again,
// each some times after the last that was told of it, whatever is looked at meanwhile.
func (w *waiting) due() (list []guard.Input) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for in, told := range w.dirty {
		list = append(list, in)
		if told && w.g.space != nil && w.g.sources[in.Source] == Source(w.g.space) {
			w.late[in] = []time.Time{now.Add(soon), now.Add(lateness)}
			continue
		}
		if w.late[in] = slices.DeleteFunc(w.late[in], func(t time.Time) bool { return !now.Before(t) }); len(w.late[in]) == 0 {
			delete(w.late, in)
		}
	}
	clear(w.dirty)
	return list
}

// refresh asks for all inputs but those of list, which are of this moment: a condition does
// not pass by facts of up to a re-check before. false: ctx ended, and they are not known.
func (w *waiting) refresh(ctx context.Context, list []guard.Input) bool {
	rest := w.without(list)
	if len(rest) == 0 || w.find(ctx, rest) {
		return true
	}
	for _, in := range rest {
		delete(w.facts, in)
	}
	return false
}

// find asks for inputs; false: ctx ended, and what was known before is kept.
func (w *waiting) find(ctx context.Context, list []guard.Input) bool {
	found := w.g.Gather(ctx, list)
	if ctx.Err() != nil && len(w.facts) > 0 {
		return false
	}
	for _, in := range list {
		delete(w.facts, in)
	}
	for in, f := range found {
		w.facts[in] = f
	}
	return true
}

// without are the inputs that are not in a list.
func (w *waiting) without(list []guard.Input) (rest []guard.Input) {
	for _, in := range w.inputs {
		if !slices.Contains(list, in) {
			rest = append(rest, in)
		}
	}
	return rest
}

// soon and lateness are how long after the look that follows an event has begun its inputs are looked at again: some
// backends tell of a change a moment before they show it, mostly a short one.
const (
	soon     = 10 * time.Millisecond
	lateness = 100 * time.Millisecond
)

// pause returns when there is something to look at.
func (w *waiting) pause(ctx context.Context) {
	var window, late, refilled <-chan time.Time
	again, ins := w.secondLook()
	if len(ins) > 0 {
		late = time.After(time.Until(again))
	}
	if w.refill.after > 0 {
		refilled = time.After(w.refill.after)
	}
	now := w.g.now()
	next := w.c.NextChange(now)
	if !next.IsZero() {
		window = time.After(next.Sub(now))
	}
	select {
	case <-ctx.Done():
	case <-w.wake:
	case <-late:
		w.mark(false, ins...)
	case <-refilled:
		w.mark(false, w.refill.input)
	case <-window:
		w.mark(false, guard.Input{Source: guard.SourceClock})
	case <-time.After(time.Until(w.again)):
		w.all()
	}
}

// secondLook is when the next inputs are looked at again, and which.
func (w *waiting) secondLook() (at time.Time, inputs []guard.Input) {
	for in, times := range w.late {
		t := times[0]
		if len(inputs) == 0 || t.Before(at) {
			at, inputs = t, inputs[:0]
		}
		if t.Equal(at) {
			inputs = append(inputs, in)
		}
	}
	return at, inputs
}

// refill is when the first limiter that is too low will allow what a leaf asks for, if nobody
// else takes it.
type refill struct {
	input guard.Input
	after time.Duration // 0: none will, as far as is known
}

// leastRefill is between two looks at a limiter, and grows to mostRefill while they change
// nothing: others may take each time what it promised.
const (
	leastRefill = 50 * time.Millisecond
	mostRefill  = time.Second
)

// refilled asks the limiters of the leaves that are too low.
func (w *waiting) refilled(ctx context.Context, c *guard.Condition) {
	for i := range c.Of {
		w.refilled(ctx, &c.Of[i])
	}
	in := c.Input()
	own := c.Kind == guard.KindLimitAvailable && w.g.space != nil && w.g.sources[guard.SourceLimit] == Source(w.g.space)
	if f, known := w.facts[in]; !own || !known || f.Err != "" || f.Number >= c.Amount {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, w.g.timeout)
	defer cancel()
	d, err := w.g.space.space.Limiter(c.Name, limit.Rate{}).Peek(ctx, c.Other, c.Amount)
	if err != nil || d.RetryAfter == limit.Never {
		return // the re-check looks at it
	}
	if after := max(d.RetryAfter, w.pauses); w.refill.after == 0 || after < w.refill.after {
		w.refill = refill{in, after}
	}
}

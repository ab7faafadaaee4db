package holdfast

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Hooks let a program trace, measure and log what a Space does. Any field may
// be nil. Hooks are called on the way of the call that they tell about: they
// must not block, release or close. Losses are told by a goroutine of their own,
// one after the other, right after the Done of the hold was closed. Given several
// times to Open, all are called, in order.
//
// A panic of a hook passes through the call that it is told of, once the other
// hooks are told and nothing is left behind: what an Acquire was granted is given
// back, and a Release is done. So it is if a hook ends the goroutine by
// [runtime.Goexit]. The End of a loss or of a Hold that became unreachable, and
// Fault, are called in goroutines of the library: their panics end the program.
type Hooks struct {
	// Acquire is called before a request goes to the backend; the context it
	// returns goes on from there; nil: the one that it was given. What it returns
	// beside, if not nil, is called with the outcome.
	Acquire func(ctx context.Context, name string) (context.Context, func(h *Hold, err error))
	// End is called when a hold is over, with how long it was held; err is
	// ErrReleased or ErrLost.
	End func(h *Hold, held time.Duration, err error)
	// Fault tells what failed with nobody waiting for the answer: a keepalive, a
	// release that took longer than its caller waited, a Hold that became
	// unreachable without Release, a flush of a buffered counter, a watch that
	// cannot read what it has missed.
	Fault func(op, name string, err error)
}

func (h Hooks) open(s *setup) { s.hooks = append(s.hooks, h) }

// traces are what the Acquire hooks want to be told.
type traces []func(*Hold, error)

// begin calls the Acquire hooks and gathers what they return.
func (t *traces) begin(ctx context.Context, hooks []Hooks, name string) context.Context {
	for _, h := range hooks {
		if h.Acquire == nil {
			continue
		}
		inner, end := h.Acquire(ctx, name)
		if inner != nil {
			ctx = inner
		}
		if end != nil {
			*t = append(*t, end)
		}
	}
	return ctx
}

// tell calls the last first, and all of them, also if one panics: as the defers that they are.
func (t traces) tell(h *Hold, err error) {
	for _, told := range t {
		defer told(h, err)
	}
}

// ended tells the hooks of an end, the first first, and all of them, also if one panics.
func (r *spaceState) ended(e *ending) {
	for _, h := range slices.Backward(r.hooks) {
		if h.End != nil {
			defer h.End(&Hold{g: &e.c.first}, e.held, e.c.why(e.over))
		}
	}
}

func (r *spaceState) fault(op, name string, err error) {
	for _, h := range r.hooks {
		if h.Fault != nil {
			h.Fault(op, name, err)
		}
	}
}

// endings are the losses that the hooks are to be told of. It has a goroutine as
// long as there are any.
type endings struct {
	mu    sync.Mutex
	queue []ending
	told  chan struct{} // closed when the queue is empty; nil: it is
}

// ending is what the hooks are told of a hold that is over.
type ending struct {
	c    *holdState
	held time.Duration
	over error
}

// add never blocks, whatever the hooks do.
func (e *endings) add(r *spaceState, one ending) {
	if !r.hasEndHook {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue = append(e.queue, one)
	if e.told == nil {
		e.told = make(chan struct{})
		go e.tell(r)
	}
}

// tell goes on until nothing is left, in another goroutine if a hook ends this one.
func (e *endings) tell(r *spaceState) {
	orElse(func() {
		for one, ok := e.next(); ok; one, ok = e.next() {
			r.ended(&one)
		}
	}, func() { go e.tell(r) })
}

// next takes the oldest; false: there is none, and its goroutine ends.
func (e *endings) next() (one ending, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) == 0 {
		close(e.told)
		e.told, e.queue = nil, nil
		return one, false
	}
	one, e.queue = e.queue[0], e.queue[1:]
	return one, true
}

// wait returns when everything is told, or ctx has ended: a hook may block.
func (e *endings) wait(ctx context.Context) {
	e.mu.Lock()
	told := e.told
	e.mu.Unlock()
	if told == nil {
		return
	}
	select {
	case <-told:
	case <-ctx.Done():
	}
}

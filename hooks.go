package holdfast

import (
	"context"
	"time"
)

// Hooks let a program trace, measure and log what a Space does. Any field may
// be nil. Hooks are called on the way of the call that they tell about: they
// must not block, release or close. Given several times to Open, all are
// called, in order.
type Hooks struct {
	// Acquire is called before a wish goes to the backend; the context it
	// returns goes on from there. What it returns, if not nil, is called with
	// the outcome.
	Acquire func(ctx context.Context, name string) (context.Context, func(h *Hold, err error))
	// End is called when a hold is over, with how long it was held; err is
	// ErrReleased or ErrLost.
	End func(h *Hold, held time.Duration, err error)
	// Fault tells what failed with nobody waiting for the answer: a keepalive, a
	// release that took longer than its caller waited, a Hold that became
	// unreachable without Release, a flush of a buffered counter.
	Fault func(op, name string, err error)
}

func (h Hooks) open(s *setup) { s.hooks = append(s.hooks, h) }

// trace calls the Acquire hooks and gathers what they return.
func (r *root) trace(ctx context.Context, name string) (context.Context, traces) {
	if !r.traced {
		return ctx, nil
	}
	var ends traces
	for _, h := range r.hooks {
		if h.Acquire == nil {
			continue
		}
		var end func(*Hold, error)
		if ctx, end = h.Acquire(ctx, name); end != nil {
			ends = append(ends, end)
		}
	}
	return ctx, ends
}

// traces are told in reverse, as defers are.
type traces []func(*Hold, error)

func (t traces) tell(h *Hold, err error) {
	for i := range t {
		t[len(t)-1-i](h, err)
	}
}

func (r *root) ended(c *claim, err error) {
	for _, h := range r.hooks {
		if h.End != nil {
			h.End(&Hold{g: &c.first}, time.Since(c.since), c.why(err))
		}
	}
}

func (r *root) fault(op, name string, err error) {
	for _, h := range r.hooks {
		if h.Fault != nil {
			h.Fault(op, name, err)
		}
	}
}

package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// patience is how long Release, Revoke and Close wait for a backend, and Close for
// hooks.
const patience = 5 * time.Second

// spaceState is what all Spaces made from one Open share.
type spaceState struct {
	d      driver.Driver
	info   Info
	hooks  []Hooks
	traced bool // some hook looks at acquires

	hasEndHook bool // some hook looks at ends
	endings    endings

	// life ends with the Space: background work hangs on it.
	life context.Context
	kill context.CancelFunc
	work sync.WaitGroup

	// phase is read before every call; it only grows.
	phase atomic.Int32

	mu    sync.Mutex
	live  holdState // head of the ring of holds that last
	holds int
	idle  chan struct{} // closed when the last hold is given back; nil: nobody waits

	closing sync.Once
	closed  error

	leaks     leaks
	sequences sync.Map // full name → *block
	turns     turns    // of waits for limiters without a queue of their own
	refunds   refunds  // of waits that their callers have left
	sleepers  sleepers // of waits for limiters, to be told of changes
}

// The phases of a Space.
const (
	open     int32 = iota
	draining       // Shutdown: no new claims
	closed
)

func newSpaceState(d driver.Driver, hooks []Hooks) *spaceState {
	r := &spaceState{d: d, hooks: hooks}
	for _, h := range hooks {
		r.traced = r.traced || h.Acquire != nil
		r.hasEndHook = r.hasEndHook || h.End != nil
	}
	r.life, r.kill = context.WithCancel(context.Background())
	r.live.next, r.live.prev = &r.live, &r.live
	d.OnFault(r.fault)
	r.info = d.Info()
	r.info.MaxName = cmp.Or(r.info.MaxName, defaultMaxName)
	return r
}

// ready answers what can be known before asking the backend.
func (r *spaceState) ready(ctx context.Context, f Feature) error {
	if r.phase.Load() == closed {
		return errClosed
	}
	if f != "" && !r.info.Features[f] {
		return r.lacks(f)
	}
	if err := ctx.Err(); err != nil {
		return &Error{Kind: err, Outcome: driver.NotDone, Err: causeOf(ctx, err)}
	}
	return nil
}

// errClosed is filled in by the call that returns it.
var errClosed error = &Error{Kind: ErrClosed, Outcome: driver.NotDone}

// causeOf is why ctx ended, if that says more than err.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != err {
		return cause
	}
	return nil
}

// lacks is nil if the backend has f.
func (r *spaceState) lacks(f Feature) error {
	if r.info.Features[f] {
		return nil
	}
	return unsupported("the %s backend has no %q; open with Require(%q) to learn it at the start", r.info.Scheme, f, f)
}

func unsupported(format string, args ...any) error {
	return driver.Errorf("", "", errors.ErrUnsupported, format, args...)
}

// wrap is wrap for what the driver answered to a call with ctx: an errors.ErrUnsupported
// without a text gets one that names backend and feature. What Close has cut is ErrClosed,
// whatever the backend calls it: the caller's context goes on.
func (r *spaceState) wrap(ctx context.Context, op, name string, f Feature, err error) error {
	if err == nil {
		return nil
	}
	if r.phase.Load() == closed && ctx.Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable)) {
		return &Error{Op: op, Name: name, Kind: ErrClosed, Outcome: outcomeOf(err)}
	}
	if err == errors.ErrUnsupported {
		if f == "" {
			err = unsupported("the %s backend cannot do it", r.info.Scheme)
		} else {
			err = unsupported("the %s backend has no %q for this", r.info.Scheme, f)
		}
	}
	return wrap(op, name, err)
}

// outcomeOf is what is known of a call that failed.
func outcomeOf(err error) driver.Outcome {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Outcome
	}
	return driver.Unknown
}

// add notes a hold; false: the Space takes no more. One that follows is noted already.
func (r *spaceState) add(c *holdState) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.next != nil || r.phase.Load() == open && r.link(c)
}

// follow notes a hold that is about to take the place of another, which Shutdown
// waits for as it does for that one.
func (r *spaceState) follow(c *holdState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase.Load() != closed {
		r.link(c)
	}
}

// link is true; r.mu is held.
func (r *spaceState) link(c *holdState) bool {
	c.next, c.prev = &r.live, r.live.prev
	c.prev.next, r.live.prev = c, c
	if s := c.cfg.under; s != nil {
		if s.holds == nil {
			s.holds = map[*holdState]struct{}{}
		}
		s.holds[c] = struct{}{}
	}
	r.holds++
	r.leaks.start(r)
	return true
}

// remove forgets a hold, once.
func (r *spaceState) remove(c *holdState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.next == nil {
		return
	}
	c.prev.next, c.next.prev = c.next, c.prev
	c.next, c.prev = nil, nil
	if s := c.cfg.under; s != nil {
		delete(s.holds, c)
	}
	r.less()
}

// busy notes a release that is being told to the backend: for Shutdown it counts
// like a hold until done.
func (r *spaceState) busy() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds++
}

func (r *spaceState) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.less()
}

// less counts one off; r.mu is held.
func (r *spaceState) less() {
	r.holds--
	if r.holds == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// snapshot lists the holds.
func (r *spaceState) snapshot() []*holdState {
	r.mu.Lock()
	defer r.mu.Unlock()
	var cs []*holdState
	for c := r.live.next; c != &r.live; c = c.next {
		cs = append(cs, c)
	}
	return cs
}

// holdsUnder lists the holds of a session, and looks at no others: with many sessions there may be
// as many of those.
func (r *spaceState) holdsUnder(s *Session) []*holdState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(s.holds))
}

// enter moves to a later phase; false: it is there already.
func (r *spaceState) enter(phase int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase.Store(max(r.phase.Load(), phase))
}

func (r *spaceState) close() error {
	r.closing.Do(func() {
		r.enter(closed)
		for _, c := range r.snapshot() {
			c.lost(ErrClosed)
		}
		r.stopLeakCheck()
		r.kill()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r.closed = wrap("close", "", r.d.Close(ctx))
		r.work.Wait()
		r.endings.wait(ctx)
	})
	return r.closed
}

func (r *spaceState) shutdown(ctx context.Context) error {
	r.enter(draining)
	var left error
	select {
	case <-r.drained():
	case <-ctx.Done():
		left = r.leftOver(ctx)
	}
	return errors.Join(left, r.close())
}

// drained is closed when no hold is left.
func (r *spaceState) drained() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holds == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	return r.idle
}

func (r *spaceState) leftOver(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holds == 0 {
		return nil
	}
	left := fmt.Errorf("closed while %d releases were under way", r.holds)
	if first := r.live.next; first != &r.live {
		left = fmt.Errorf("closed with %d holds left, the first %q", r.holds, first.name)
	}
	return &Error{Op: "shutdown", Kind: ctx.Err(), Outcome: driver.Done, Err: left}
}

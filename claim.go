package holdfast

import (
	"errors"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// claim is a granted wish. Sessions, drivers and the Space refer to it; the
// caller's Hold refers to a grip of it and is referred to by nobody here, so
// that its becoming unreachable can be noticed.
type claim struct {
	r      *root
	cfg    *config
	name   string // the wanted names, for people
	wants  []driver.Want
	prefix string // of the Space that made it
	since  time.Time

	next, prev *claim // in the ring of root; under root.mu
	tie        driver.Tie

	mu    sync.Mutex
	grant driver.Grant
	timer *time.Timer // for grant.Deadline
	over  error       // why it ended; nil: it lasts; ErrReleased: by its holder
	begun bool        // somebody has a Hold of it
	moved bool        // upgraded or downgraded: the backend's side has gone on
	count int         // grips that were not released
	first grip
}

// grip is one Hold's share of a claim: the first one, or one that joined.
// Guarded by its claim's mutex.
type grip struct {
	c        *claim
	next     *grip
	released bool
	done     chan struct{}
	bound    []*bound
	once     sync.Once
	result   error // of Release
}

// lost ends the claim because of cause. Drivers and sessions call it under their
// locks, so the hooks are told beside.
func (c *claim) lost(cause error) {
	over := &Error{Op: "hold", Name: c.name, Kind: ErrLost, Err: reason(cause)}
	c.mu.Lock()
	first := c.finish(over)
	if first && c.begun {
		c.r.endings.add(c.r, ending{c, time.Since(c.since), over})
	}
	c.mu.Unlock()
	if first { // after its ending is noted: Close waits for those
		c.r.remove(c)
	}
}

// reason drops from cause what the hold's own error says already.
func reason(cause error) error {
	e, ok := cause.(*Error)
	if ok && e.Kind == ErrLost && e.Err != nil {
		return e.Err
	}
	if cause == ErrLost {
		return nil
	}
	return cause
}

// end ends the claim once and tells the hooks; false: it had ended.
func (c *claim) end(over error) bool {
	c.mu.Lock()
	first, begun := c.finish(over), c.begun
	c.mu.Unlock()
	if !first {
		return false
	}
	c.r.remove(c)
	if begun {
		c.r.ended(&ending{c, time.Since(c.since), over})
	}
	return true
}

// finish ends the claim once; false: it had ended. Whoever learns here or by
// looking that it is over finds everything that is bound to it ended too: that is
// done under the lock, so that no Release can tell the backend before. c.mu is
// held.
func (c *claim) finish(over error) bool {
	if c.over != nil {
		return false
	}
	c.over = over
	c.stop()
	return true
}

// stop ends all that the claim keeps going; c.mu is held.
func (c *claim) stop() {
	if c.timer != nil {
		c.timer.Stop()
	}
	for g := &c.first; g != nil; g = g.next {
		g.stop(c.over)
	}
}

// why spells an end out. A release is kept short until somebody asks, since
// most holds are released and nobody does.
func (c *claim) why(over error) error {
	if over == ErrReleased {
		return &Error{Op: "hold", Name: c.name, Kind: ErrReleased}
	}
	return over
}

// stop closes the grip's Done and ends what is bound to it; its claim is
// locked.
func (g *grip) stop(over error) {
	if g.done != nil {
		closeOnce(g.done)
	}
	for _, b := range g.bound {
		b.cancel(g.c.why(over))
	}
	g.bound = nil
}

func closeOnce(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}

var errMaxHold = errors.New("its MaxHold has passed")

// look compares the clock, so that a late timer lets nobody act.
func (c *claim) look() {
	c.mu.Lock()
	over, session, deadline := c.over, c.grant.Session, c.grant.Deadline
	c.mu.Unlock()
	if over != nil {
		return
	}
	if session != nil {
		if err := session.Err(); err != nil {
			c.lost(err)
			return
		}
	}
	if !deadline.IsZero() && driver.Until(deadline) <= 0 {
		c.lost(errMaxHold)
	}
}

// err is the grip's Err.
func (g *grip) err() error {
	g.c.look()
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	return g.state()
}

// state is err without the clock; its claim is locked.
func (g *grip) state() error {
	if g.released {
		return g.c.why(ErrReleased)
	}
	return g.c.why(g.c.over)
}

// deadline is when the claim ends unless something moves it; false: never.
func (c *claim) deadline() (time.Time, bool) {
	c.mu.Lock()
	session, own := c.grant.Session, c.grant.Deadline
	c.mu.Unlock()
	if session == nil {
		return own, !own.IsZero()
	}
	d, ok := session.Deadline()
	if ok && !own.IsZero() && own.Before(d) || !ok {
		return own, !own.IsZero()
	}
	return d, ok
}

// extend moves the deadline of this claim alone, only forward. One that has
// passed is not moved any more, noticed or not.
func (c *claim) extend(d time.Time) {
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over == nil && d.After(c.grant.Deadline) {
		c.grant.Deadline = d
		c.wake()
	}
}

// wake has the clock looked at when the claim's own deadline has passed; c.mu
// is held.
func (c *claim) wake() {
	in := driver.Until(c.grant.Deadline)
	if c.timer == nil {
		c.timer = time.AfterFunc(in, c.look)
		return
	}
	c.timer.Reset(in)
}

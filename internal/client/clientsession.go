package client

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

const never = session.Never

// ClientSession is one session of a client. Guarded by the mux's mutex.
type ClientSession struct {
	c       *Client
	s       *session.Session
	session *driver.Session
	alarm   Alarm
	dirty   bool
	// lapsed: the caller's session is over, and the machine's does not know it.
	lapsed bool
	// ending is what the session says when the client itself ends the session.
	ending error
	// changed is closed and forgotten at every turn of the session's life: it
	// was opened, it died, it is over. nil: nobody waits for one.
	changed chan struct{}
	over    bool
	// refused is why the other side did not take the session; nil: it did, or
	// has not answered.
	refused *driver.Error
}

// newUser makes a session; it opens with the next pump.
func (c *Client) newUser(now int64, spec driver.Spec) *ClientSession {
	id := session.NewID(rand.Uint64(), rand.Uint64())
	u := &ClientSession{c: c, session: driver.NewSession(driver.SessionID(id), spec)}
	u.s = session.New(session.Config{
		ID: id, Namespace: c.g.opts.Namespace, Owner: spec.Owner, Meta: spec.Meta, TTL: spec.TTL, Manual: spec.Manual,
		Policy: core.Policy(spec.Policy), Grace: spec.Grace, Merge: c.g.opts.Merge, Seed: rand.Uint64(),
	})
	u.alarm.Ring = u.ring
	c.g.users[id] = u
	c.users[u] = struct{}{}
	if !c.stalled() && !c.g.down {
		u.take(u.s.Connect(now))
	}
	u.touch()
	return u
}

// touch has the session flushed by the next pump.
func (u *ClientSession) touch() {
	if !u.dirty {
		u.dirty = true
		u.c.g.dirty = append(u.c.g.dirty, u)
	}
}

// ring is the session's alarm: a keepalive, or its deadline.
func (u *ClientSession) ring() {
	g := u.c.g
	now := g.Lock()
	defer g.Unlock()
	if u.over {
		return
	}
	u.alarm.Rang()
	u.touch()
	g.Pump(now)
}

// Stalled reports whether the session is cut off for the time being.
func (u *ClientSession) Stalled() bool { return u.c.stalled() }

// Deliver gives the session a message of the machine; the mux is locked.
func (u *ClientSession) Deliver(now int64, m *session.Message) {
	u.take(u.s.Receive(now, m))
	u.touch()
}

// take does what the session asks for.
func (u *ClientSession) take(actions []session.Action) {
	g := u.c.g
	for i := range actions {
		a := &actions[i]
		switch a.Kind {
		case session.Send:
			g.sends = append(g.sends, Outgoing{u, a.Message})
		case session.Queued:
			queued(g, a.Call)
		case session.Done:
			a.Call.Tag.(finisher).finished(g)
		case session.Lost:
			a.Call.Tag.(*acquisition).lose(a.Code)
		case session.Moved:
			g.expiry = min(g.expiry, a.Deadline)
			u.move(g.Time(a.Deadline))
		case session.SessionOver:
			u.finish(a)
		case session.Redial:
			g.engine.Redial(a.Endpoint)
		case session.Silent:
			g.engine.Silent()
		case session.Over:
			u.forget()
		}
	}
}

// move moves the session's deadline.
func (u *ClientSession) move(d time.Time) {
	u.session.MoveTo(d)
	u.lapsed = u.session.Err() != nil
	u.turn()
}

// lapse ends the machine's session after the caller's has ended: the process was
// stopped between the look at the clock and the renewal that came just in time by
// it. No caller believes any more in what the session holds.
func (u *ClientSession) lapse(now int64) {
	u.lapsed, u.ending = false, u.session.Err()
	u.c.faulty("keep session", u.session.ID.String(), u.ending)
	u.take(u.s.Expire(now))
}

// turn wakes the waiters for a turn of the session's life.
func (u *ClientSession) turn() {
	if u.changed != nil {
		close(u.changed)
		u.changed = nil
	}
}

// next is closed at the next turn.
func (u *ClientSession) next() <-chan struct{} {
	if u.changed == nil {
		u.changed = make(chan struct{})
	}
	return u.changed
}

// finish ends the session: it comes before the Done of the calls that this ends.
func (u *ClientSession) finish(a *session.Action) {
	err := u.ending
	if a.Cause == session.Refused {
		u.refused = convert.Refusal(a.Code, a.Text)
		err = u.refused
	}
	if err == nil {
		lost := &driver.Error{Op: "keep session", Name: u.session.ID.String(), Kind: driver.ErrLost, Err: fmt.Errorf("%s", a.Text)}
		u.c.faulty("keep session", lost.Name, lost)
		err = lost
	}
	u.lapsed = false
	u.session.End(err)
	u.c.retire(u)
	u.turn()
}

// forget is the end of everything about the session.
func (u *ClientSession) forget() {
	u.over = true
	u.alarm.Stop()
	delete(u.c.g.users, u.s.ID())
	u.c.g.engine.Forget(u.s.ID())
	delete(u.c.users, u)
	u.c.emptied()
	u.turn()
}

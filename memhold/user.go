package memhold

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/session"
)

const never = session.Never

// user is one session of a client. Guarded by the store's mutex.
type user struct {
	c      *client
	s      *session.Session
	lease  *driver.Lease
	stream uint64
	pushes uint64
	alarm  alarm
	dirty  bool
	// ending is what the lease says when the client itself ends the session.
	ending error
	// changed is closed and forgotten at every turn of the session's life: it
	// was opened, it died, it is over. nil: nobody waits for one.
	changed chan struct{}
	over    bool
}

// newUser makes a session; it opens with the next pump.
func (c *client) newUser(now int64, spec driver.Spec) *user {
	var id core.SessionID
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	u := &user{c: c, lease: driver.NewLease(driver.LeaseID(id), spec)}
	u.s = session.New(session.Config{
		ID: id, Owner: spec.Owner, Meta: spec.Meta, TTL: spec.TTL, Manual: spec.Manual,
		Policy: core.Policy(spec.Policy), Grace: spec.Grace, Seed: rand.Uint64(),
	})
	u.alarm.ring = u.ring
	c.st.users[id] = u
	c.users[u] = struct{}{}
	if !c.stalled() {
		u.take(u.s.Connect(now))
	}
	u.touch()
	return u
}

// touch has the session flushed by the next pump.
func (u *user) touch() {
	if !u.dirty {
		u.dirty = true
		u.c.st.dirty = append(u.c.st.dirty, u)
	}
}

// ring is the session's alarm: a keepalive, or its deadline.
func (u *user) ring() {
	st := u.c.st
	now := st.lock()
	defer st.unlock()
	if u.over {
		return
	}
	u.alarm.rang()
	u.touch()
	st.pump(now)
}

// deliver gives the session a message of the machine.
func (u *user) deliver(now int64, m *session.Message) {
	m.Session, m.Stream, m.Pushes = u.s.ID(), u.stream, u.pushes
	u.take(u.s.Receive(now, m))
	u.touch()
}

// take does what the session asks for.
func (u *user) take(actions []session.Action) {
	st := u.c.st
	for i := range actions {
		a := &actions[i]
		switch a.Kind {
		case session.Send:
			st.sends = append(st.sends, outgoing{u, a.Message})
		case session.Queued:
			queued(st, a.Call)
		case session.Done:
			a.Call.Tag.(finisher).finished(st)
		case session.Lost:
			a.Call.Tag.(*claim).lose(a.Code)
		case session.Moved:
			st.death = min(st.death, a.Deadline)
			st.later = append(st.later, task{lease: u.lease, at: st.time(a.Deadline)})
			u.turn()
		case session.Dead:
			u.die(a)
		case session.Over:
			u.forget()
		}
	}
}

// turn wakes who waits for a turn of the session's life.
func (u *user) turn() {
	if u.changed != nil {
		close(u.changed)
		u.changed = nil
	}
}

// next is closed at the next turn.
func (u *user) next() <-chan struct{} {
	if u.changed == nil {
		u.changed = make(chan struct{})
	}
	return u.changed
}

// die ends the lease: it comes before the Done of the calls that this ends.
func (u *user) die(a *session.Action) {
	err := u.ending
	if err == nil {
		lost := &driver.Error{Op: "keep session", Name: u.lease.ID.String(), Kind: driver.ErrLost, Err: fmt.Errorf("%s", a.Text)}
		u.c.faulty("keep session", lost.Name, lost)
		err = lost
	}
	u.c.st.later = append(u.c.st.later, task{lease: u.lease, end: err})
	u.c.retire(u)
	u.turn()
}

// forget is the end of everything about the session.
func (u *user) forget() {
	u.over = true
	u.alarm.stop()
	delete(u.c.st.users, u.s.ID())
	delete(u.c.users, u)
	u.turn()
}

package memhold

import (
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/session"
	"github.com/holdfast-io/holdfast/watch"
)

// store is one memory: the machine, and the sessions of all its clients. One
// mutex guards all of it. What must not run under it (callbacks of callers, ends
// of leases) is noted and run by unlock.
type store struct {
	name  string // "": a memory of its own
	start time.Time

	mu      sync.Mutex
	m       *core.Machine
	hub     *watch.Hub
	readers map[*watch.Watcher]chan struct{}
	users   map[core.SessionID]*user
	clients int
	alarm   alarm // for the machine's next deadline
	// death is when the first session might be dead: not later than the first
	// of their deadlines.
	death int64

	sends []outgoing
	dirty []*user
	later []task

	out    core.Output
	entry  core.Entry
	buf    []byte // the entry
	answer []byte // a reply
	row    [1]core.ClaimRow
}

// outgoing is a message on its way from a session to the machine.
type outgoing struct {
	u *user
	m session.Message
}

func newStore(name string) *store {
	m := core.New(core.Config{})
	st := &store{
		name: name, start: driver.Now(), m: m, hub: watch.NewHub(0, m.Revision()),
		readers: map[*watch.Watcher]chan struct{}{}, users: map[core.SessionID]*user{}, death: never,
	}
	st.alarm.ring = st.ring
	return st
}

// now is both the clock of the sessions and cluster time, in nanoseconds; one
// clock serves both sides, so that a stamp is never older than what was sent
// before it.
func (st *store) now() int64 { return int64(driver.Now().Sub(st.start)) + 1 }

// time is a point of now as a time of driver.Now.
func (st *store) time(now int64) time.Time { return st.start.Add(time.Duration(now - 1)) }

// lock returns the time, at which nobody believes in a session whose deadline
// has passed: such holders are told first. Nothing can be granted before, however
// late the timers of a process are that was stopped.
func (st *store) lock() int64 {
	for {
		st.mu.Lock()
		now := st.now()
		if now < st.death {
			return now
		}
		st.bury(now)
		st.unlock()
	}
}

// bury lets the sessions notice that their deadline has passed.
func (st *store) bury(now int64) {
	st.death = never
	for _, u := range st.users {
		u.take(u.s.Tick(now))
		if d, ok := u.s.Deadline(); ok && u.s.Alive() {
			st.death = min(st.death, d)
		}
		u.touch()
	}
}

// task is what unlock has to do, in order: who is told of a loss is told before
// the one who gains from it goes on.
type task struct {
	lease *driver.Lease // with end nil: to be moved to at
	at    time.Time
	end   error
	wake  chan struct{}
	f     func()
}

func (t *task) run() {
	switch {
	case t.f != nil:
		t.f()
	case t.wake != nil:
		close(t.wake)
	case t.end != nil:
		t.lease.End(t.end)
	default:
		t.lease.MoveTo(t.at)
	}
}

func (st *store) unlock() {
	if len(st.later) == 0 {
		st.mu.Unlock()
		return
	}
	later := st.later
	st.later = nil
	st.mu.Unlock()
	for i := range later {
		later[i].run()
	}
}

// pump lets everything that is due go its way: from the sessions to the machine
// and back, until nothing moves any more.
func (st *store) pump(now int64) {
	for len(st.dirty) > 0 {
		for i := 0; i < len(st.dirty); i++ {
			u := st.dirty[i]
			u.dirty = false
			u.take(u.s.Flush(now))
			u.alarm.set(now, u.s.Wake())
		}
		clear(st.dirty)
		st.dirty = st.dirty[:0]
		st.commit(now)
	}
}

// commit makes one entry of what was sent and applies it.
func (st *store) commit(now int64) {
	if len(st.sends) == 0 {
		return
	}
	e := &st.entry
	e.Now, e.Renewals, e.Frames = now, e.Renewals[:0], e.Frames[:0]
	for i := range st.sends {
		switch m := &st.sends[i].m; m.Kind {
		case session.KindRenewal:
			e.Renewals = append(e.Renewals, core.Renewal{Session: m.Session, Attempt: m.Attempt, TTL: m.TTL})
		case session.KindFrame:
			e.Frames = append(e.Frames, m.Body)
		}
	}
	st.buf = core.AppendEntry(st.buf[:0], e)
	st.attach(now)
	clear(st.sends)
	st.sends = st.sends[:0]
	if len(e.Renewals)+len(e.Frames) > 0 {
		st.apply(now)
	}
}

// attach answers the attaches among what was sent with the claim table, as it
// is before the entry.
func (st *store) attach(now int64) {
	for i := range st.sends {
		m := &st.sends[i].m
		if m.Kind != session.KindAttach {
			continue
		}
		u := st.sends[i].u
		u.stream, u.pushes = m.Stream, 0
		rows, known := st.m.Table(m.Session)
		u.deliver(now, &session.Message{Kind: session.KindTable, Rows: rows, Known: known, Last: true})
	}
}

// apply applies the entry in st.buf and delivers what comes of it: answers
// first, since a push may take back what they give.
func (st *store) apply(now int64) {
	out := &st.out
	out.Reset()
	if err := st.m.Apply(st.buf, out); err != nil {
		panic("memhold: the machine refuses an entry of this package: " + err.Error())
	}
	st.publish()
	for i := range out.Renewed {
		r := &out.Renewed[i]
		if u := st.users[r.Session]; u != nil {
			u.deliver(now, &session.Message{Kind: session.KindRenewed, Attempt: r.Attempt, Now: r.Now, Deadline: r.Deadline})
		}
	}
	for i := range out.Replies {
		if u := st.users[out.Replies[i].Session]; u != nil {
			st.answer = core.AppendReply(st.answer[:0], &out.Replies[i])
			u.deliver(now, &session.Message{Kind: session.KindReply, Body: st.answer})
		}
	}
	for i := range out.Pushes {
		if u := st.users[out.Pushes[i].Session]; u != nil && !u.c.stalled() {
			st.row[0] = out.Pushes[i]
			u.pushes++
			u.deliver(now, &session.Message{Kind: session.KindPush, Rows: st.row[:]})
		}
	}
	if at, ok := st.m.Due(); ok {
		st.alarm.set(now, at)
	}
}

// ring is the machine's alarm: what is due ends by a bare stamp. An entry ends
// only so many; while a rest remains there is another.
func (st *store) ring() {
	now := st.lock()
	defer st.unlock()
	if st.clients == 0 {
		return
	}
	st.alarm.rang()
	for at, ok := st.m.Due(); ok && at <= now; at, ok = st.m.Due() {
		st.buf = core.AppendEntry(st.buf[:0], &core.Entry{Now: now})
		st.apply(now)
	}
	st.pump(now)
	if at, ok := st.m.Due(); ok {
		st.alarm.set(now, at)
	}
}

package memhold

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/client"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// store is one memory: the machine behind the sessions of all its clients,
// guarded by the lock of their group. One clock serves sessions and cluster
// time, so that a stamp is never older than what was sent before it.
type store struct {
	name    string // "": a memory of its own
	g       *client.SessionMux
	m       *core.Machine
	hub     *watch.Hub
	readers map[*watch.Watcher]chan struct{}
	streams map[core.SessionID]*stream
	clients int
	alarm   client.Alarm // for the machine's next deadline

	out    core.Output
	entry  core.Entry
	buf    []byte // the entry
	answer []byte // a reply
	row    [1]core.ClaimRow
}

var _ client.Engine = (*store)(nil)

// stream is where the messages for a session go, as of its newest attach.
type stream struct {
	u      *client.ClientSession
	number uint64
	pushes uint64
}

func newStore(name string) *store {
	m := core.New(core.Config{})
	st := &store{
		name: name, m: m, hub: watch.NewHub(0, m.Revision()),
		readers: map[*watch.Watcher]chan struct{}{}, streams: map[core.SessionID]*stream{},
	}
	st.g = client.NewGroup(st, client.Options{Immediate: true})
	st.alarm.Ring = st.ring
	return st
}

func (st *store) newClient() driver.Driver {
	c := st.g.New(client.Full("mem", minTTL))
	st.g.Lock()
	defer st.g.Unlock()
	st.clients++
	return c
}

// Carry makes one entry of what was sent and applies it.
func (st *store) Carry(now int64, sends []client.Outgoing) {
	e := &st.entry
	e.Now, e.Seconds, e.Renewals, e.Frames = now, core.Seconds(time.Now().Unix()), e.Renewals[:0], e.Frames[:0]
	for i := range sends {
		switch m := &sends[i].Message; m.Kind {
		case session.KindRenewal:
			e.Renewals = append(e.Renewals, core.Renewal{Session: m.Session, Attempt: m.Attempt, TTL: m.TTL})
		case session.KindFrame:
			e.Frames = append(e.Frames, m.Body)
		}
	}
	st.buf = core.AppendEntry(st.buf[:0], e)
	st.attach(now, sends)
	if len(e.Renewals)+len(e.Frames) > 0 {
		st.apply(now)
	}
}

// attach answers the attaches among what was sent with the claim table, as it
// is before the entry.
func (st *store) attach(now int64, sends []client.Outgoing) {
	for i := range sends {
		m := &sends[i].Message
		if m.Kind != session.KindAttach {
			continue
		}
		s := &stream{u: sends[i].User, number: m.Stream}
		st.streams[m.Session] = s
		rows, known := st.m.Table(m.Session)
		s.deliver(now, &session.Message{Kind: session.KindTable, Session: m.Session, Rows: rows, Known: known, Last: true})
	}
}

func (s *stream) deliver(now int64, m *session.Message) {
	m.Stream, m.Pushes = s.number, s.pushes
	s.u.Deliver(now, m)
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
		if s := st.streams[r.Session]; s != nil {
			s.deliver(now, &session.Message{Kind: session.KindRenewed, Session: r.Session, Attempt: r.Attempt, Now: r.Now, Deadline: r.Deadline})
		}
	}
	for i := range out.Replies {
		id := out.Replies[i].Session
		if s := st.streams[id]; s != nil {
			st.answer = core.AppendReply(st.answer[:0], &out.Replies[i])
			s.deliver(now, &session.Message{Kind: session.KindReply, Session: id, Body: st.answer})
		}
	}
	for i := range out.Pushes {
		if s := st.streams[out.Pushes[i].Session]; s != nil && !s.u.Stalled() {
			st.row[0] = out.Pushes[i]
			s.pushes++
			s.deliver(now, &session.Message{Kind: session.KindPush, Session: st.row[0].Session, Rows: st.row[:]})
		}
	}
	if at, ok := st.m.Due(); ok {
		st.alarm.Set(now, at)
	}
}

// ring is the machine's alarm: what is due ends by a bare stamp. An entry ends
// only so many; while a rest remains there is another.
func (st *store) ring() {
	now := st.g.Lock()
	defer st.g.Unlock()
	if st.clients == 0 {
		return
	}
	st.alarm.Rang()
	for at, ok := st.m.Due(); ok && at <= now; at, ok = st.m.Due() {
		st.buf = core.AppendEntry(st.buf[:0], &core.Entry{Now: now})
		st.apply(now)
	}
	st.g.Pump(now)
	if at, ok := st.m.Due(); ok {
		st.alarm.Set(now, at)
	}
}

// Forget drops the stream of a session that is over.
func (st *store) Forget(id core.SessionID) { delete(st.streams, id) }

// Redial has nowhere else to go.
func (st *store) Redial(string) {}

// Silent has nobody else to ask.
func (st *store) Silent() {}

// Ping answers at once.
func (st *store) Ping(context.Context) error { return nil }

// Inspect lists holders and waiters.
func (st *store) Inspect(_ context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	now := st.g.Lock()
	defer st.g.Unlock()
	return client.InspectMachine(st.m, now, "", r)
}

// SessionInfo tells what the memory knows of a session of any client.
func (st *store) SessionInfo(_ context.Context, r *driver.SessionInfoRequest) (driver.SessionInfo, error) {
	now := st.g.Lock()
	defer st.g.Unlock()
	return client.SessionOfMachine(st.m, now, "default", r)
}

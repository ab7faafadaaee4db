// Package client lets a backend with another side that speaks the messages of package
// session be a driver: it turns every call into a command on a session, keeps
// the sessions alive, and maps their deadlines.
//
// A backend implements [Engine], which carries messages and answers reads, makes
// one [SessionMux] for it, and hands what comes back to [SessionMux.Receive]. Every Space
// is a [Client] of the mux.
package client

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// Engine is the other side of the sessions. Its reads must see everything that
// was answered before.
type Engine interface {
	// Carry takes what the sessions send to the machine. It is called with the
	// mux locked and must not block; the messages are valid until it returns.
	Carry(now int64, sends []Outgoing)
	// Redial says that the stream is of no use: another endpoint may do better.
	// It is called with the mux locked and must not block.
	Redial(endpoint string)
	// Silent says that a session waits for longer than it well can: another
	// stream may do better, but answers over this one still count. It is called
	// with the mux locked and must not block.
	Silent()
	// Forget says that a session is over; the mux is locked.
	Forget(id core.SessionID)
	// Inspect lists holders and waiters.
	Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error)
	// SessionInfo tells about a session of any client.
	SessionInfo(ctx context.Context, r *driver.SessionInfoRequest) (driver.SessionInfo, error)
	// Watch begins to follow what happens; first is the revision from which on
	// the feed is complete.
	Watch(ctx context.Context, r *driver.WatchRequest) (f Feed, first uint64, err error)
	// Ping asks for a sign of life.
	Ping(ctx context.Context) error
	// Left is told when a client has closed and its sessions are over or given
	// up.
	Left()
}

// Feed is one watch.
type Feed interface {
	// Next waits for the next events. resync is not 0 if events were left out.
	// What it returns is valid until the next call.
	Next(ctx context.Context) (events []driver.Event, resync uint64, err error)
	Close()
}

// Outgoing is a message on its way from a session to the machine.
type Outgoing struct {
	User    *ClientSession
	Message session.Message
}

// Options say how the engine of a mux behaves.
type Options struct {
	// Immediate: Carry has delivered all answers when it returns, so that a wait
	// that was given up is withdrawn at once.
	Immediate bool
	// Down: there is no stream yet; Connect will tell.
	Down bool
	// Later, if it is not nil, is told that a caller has asked for something. True:
	// the engine will call Flush as soon as it can send, so that what is asked for
	// until then travels together. It is called with the mux locked and must not
	// block.
	Later func() bool
	// NoStream, if it is not nil, says why there is no stream just now; nil: there is one, or no
	// reason is known. It is called with the mux locked or not, and must not block.
	NoStream func() error
	// Merge lets Adds to one counter that travel together be one command.
	Merge bool
	// Namespace is that of all sessions; "" is "default".
	Namespace string
}

// SessionMux is the sessions of all clients of one engine in this process. One mutex
// guards all of it. Losses are told under it, so that nobody is granted anything
// before; what must not run under it (callbacks of callers) is noted and run by
// Unlock.
type SessionMux struct {
	engine Engine
	opts   Options
	start  time.Time

	mu      sync.Mutex
	users   map[core.SessionID]*ClientSession
	clients map[*Client]struct{}
	down    bool
	err     error // why the engine has ended for good
	// expiry is when the first session might be over: not later than the first
	// of their deadlines.
	expiry int64

	sends []Outgoing
	dirty []*ClientSession
	later []task
	spare []task // room for later

	waits waits
}

// NewGroup returns a mux without clients.
func NewGroup(e Engine, o Options) *SessionMux {
	return &SessionMux{
		engine: e, opts: o, start: driver.Now(), down: o.Down, expiry: never,
		users: map[core.SessionID]*ClientSession{}, clients: map[*Client]struct{}{},
	}
}

// Now is the clock of the sessions, in nanoseconds.
func (g *SessionMux) Now() int64 { return int64(driver.Now().Sub(g.start)) + 1 }

// Time is a point of Now as a time of driver.Now.
func (g *SessionMux) Time(now int64) time.Time { return g.start.Add(time.Duration(now - 1)) }

// Shift lets d pass at once, as if the process had been stopped so long and all
// its timers were late. It is for tests.
func (g *SessionMux) Shift(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.start = g.start.Add(-d)
}

// Lock returns the time, at which no holder believes in a session after its deadline
// has passed: such holders are told first. Nothing can be granted before, however
// late the timers of a process are that was stopped.
func (g *SessionMux) Lock() int64 {
	g.mu.Lock()
	now := g.Now()
	if now >= g.expiry {
		g.expire(now)
	}
	return now
}

// expire lets the sessions notice that their deadline has passed.
func (g *SessionMux) expire(now int64) {
	g.expiry = never
	for _, u := range g.users {
		u.take(u.s.Tick(now))
		if d, ok := u.s.Deadline(); ok && u.s.Alive() {
			g.expiry = min(g.expiry, d)
		}
		u.touch()
	}
}

// task is what Unlock has to do, in order.
type task struct {
	wake chan struct{} // gets something; nil: f is called
	f    func()
}

func (t *task) run() {
	if t.wake != nil {
		t.wake <- struct{}{}
		return
	}
	t.f()
}

// Unlock runs what was noted meanwhile.
func (g *SessionMux) Unlock() {
	if len(g.later) == 0 {
		g.mu.Unlock()
		return
	}
	later := g.later
	g.later, g.spare = g.spare, nil
	g.mu.Unlock()
	for i := range later {
		later[i].run()
	}
	if cap(later) < crowd {
		return
	}
	clear(later)
	g.mu.Lock()
	g.spare = later[:0]
	g.mu.Unlock()
}

// crowd is how many tasks at once are worth keeping their room.
const crowd = 32

// Pump lets everything that is due go its way: from the sessions to the engine
// and, if that is immediate, back, until nothing moves any more. The mux is
// locked.
func (g *SessionMux) Pump(now int64) {
	for len(g.dirty) > 0 {
		for i := 0; i < len(g.dirty); i++ {
			u := g.dirty[i]
			u.dirty = false
			if u.lapsed {
				u.lapse(now)
			}
			u.take(u.s.Flush(now))
			u.alarm.Set(now, u.s.Wake())
		}
		clear(g.dirty)
		g.dirty = g.dirty[:0]
		g.carry(now)
	}
}

// stuck is how long the engine may take to call Flush; then a session is flushed
// without it, so that it notices that nothing is answered.
const stuck = int64(time.Second)

// soon lets what u was asked for go its way, with what others are asked for until
// the engine can send. The mux is locked.
func (g *SessionMux) soon(now int64, u *ClientSession) {
	u.touch()
	if g.opts.Later == nil || !g.opts.Later() {
		g.Pump(now)
		return
	}
	u.alarm.Set(now, now+stuck)
}

// Flush lets everything that is due go its way: Carry is called before it returns,
// if there is anything to carry.
func (g *SessionMux) Flush() {
	now := g.Lock()
	defer g.Unlock()
	g.Pump(now)
}

func (g *SessionMux) carry(now int64) {
	if len(g.sends) == 0 {
		return
	}
	g.engine.Carry(now, g.sends)
	clear(g.sends)
	g.sends = g.sends[:0]
}

// Receive hands messages of the engine to their sessions, in their order. It
// runs callbacks of callers and may take as long as they do.
func (g *SessionMux) Receive(messages []byte) error {
	now := g.Lock()
	defer g.Unlock()
	for len(messages) > 0 {
		m, rest, err := session.DecodeMessage(messages)
		if err != nil {
			return err
		}
		if u := g.users[m.Session]; u != nil && !u.c.stalled() {
			u.Deliver(now, &m)
		}
		messages = rest
	}
	g.Pump(now)
	return nil
}

// Connect says that there is a stream to the engine.
func (g *SessionMux) Connect() { g.link(false, (*session.Session).Connect) }

// Disconnect says that the stream is gone. That alone loses nothing.
func (g *SessionMux) Disconnect() { g.link(true, (*session.Session).Disconnect) }

func (g *SessionMux) link(down bool, turn func(*session.Session, int64) []session.Action) {
	now := g.Lock()
	defer g.Unlock()
	g.down = down
	for _, u := range g.users {
		if !u.c.stalled() {
			u.take(turn(u.s, now))
			u.touch()
		}
	}
	g.Pump(now)
}

// Unanswered reports whether a session waits for an answer of the engine.
func (g *SessionMux) Unanswered() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, u := range g.users {
		if u.s.Unanswered() {
			return true
		}
	}
	return false
}

// Fail says that the engine has ended for good: calls answer ErrClosed because
// of err, and all holds end.
func (g *SessionMux) Fail(err error) {
	now := g.Lock()
	defer g.Unlock()
	g.err = err
	for c := range g.clients {
		c.stop(now)
	}
	for _, u := range g.users {
		u.forget()
	}
}

package session_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// client is a program around sessions: it takes locks, counts, gives up waits.
type client struct {
	w         *world
	index     int
	rate      int64 // of its clock, in hundredths
	offset    int64
	pausedTil int64
	l         *link // nil: none
	dialing   bool
	sessions  []*user
	current   *user
	made      int
}

// user is one session of a client and the holds on it.
type user struct {
	c     *client
	s     *session.Session
	dead  bool
	holds []*hold
	timer int64 // when it is set for, in true time
}

// hold is a claim as the program knows it.
type hold struct {
	u        *user
	call     *session.Call
	names    []string
	mode     core.Mode
	base     *hold // upgrade: of this
	changing bool  // it is being upgraded
	changed  bool  // it was, at some time
	state    holdState
}

type holdState uint8

const (
	wished holdState = iota
	believed
	ended
)

func newClient(w *world, index int) *client {
	return &client{w: w, index: index, rate: pick(w, int64(99), 100, 101), offset: w.upTo(sec(1e6))}
}

// local is the client's clock at true time now.
func (c *client) local() int64 { return c.offset + c.w.now/100*c.rate }

func (c *client) start() {
	c.open()
	c.dial()
	c.w.after(c.w.upTo(c.w.nature.ttl/4), c.work)
	c.trouble()
}

// trouble pauses the client and breaks its link now and then.
func (c *client) trouble() {
	if every := c.w.nature.pauseEvery; every > 0 {
		c.w.after(c.w.upTo(2*every), c.pause)
	}
	if every := c.w.nature.breakEvery; every > 0 {
		c.w.after(c.w.upTo(2*every), c.broken)
	}
}

func (c *client) pause() {
	if c.w.healed {
		return
	}
	d := c.w.upTo(c.w.nature.ttl * 3 / 2)
	c.w.tally.pauses++
	c.w.say("client %d pauses for %d ms", c.index, d/ms)
	c.pausedTil = c.w.now + d
	c.w.after(c.w.upTo(2*c.w.nature.pauseEvery), c.pause)
}

func (c *client) broken() {
	if c.w.healed {
		return
	}
	c.hangUp()
	c.w.after(c.w.upTo(2*c.w.nature.breakEvery), c.broken)
}

// awake calls f, after the pause if there is one.
func (c *client) awake(f func()) {
	if wait := c.pausedTil - c.w.now; wait > 0 {
		c.w.after(wait+c.w.upTo(ms), func() { c.awake(f) })
		return
	}
	f()
}

// open makes a new session the current one.
func (c *client) open() {
	c.made++
	c.w.tally.sessions++
	var id core.SessionID
	binary.BigEndian.PutUint32(id[:], uint32(c.index+1))
	binary.BigEndian.PutUint32(id[4:], uint32(c.made))
	u := &user{c: c, s: session.New(session.Config{ID: id, TTL: time.Duration(c.w.nature.ttl), Merge: true, Seed: c.w.rnd.Uint64()})}
	c.w.ids[id] = c
	c.current, c.sessions = u, append(c.sessions, u)
	if c.l != nil {
		u.take(u.s.Connect(c.local()))
	}
}

func (c *client) dial() {
	if c.dialing {
		return
	}
	c.dialing = true
	c.w.after(c.w.upTo(c.w.nature.ttl/20), func() {
		c.awake(func() {
			c.dialing = false
			c.l = &link{w: c.w, c: c}
			for _, u := range c.sessions {
				u.take(u.s.Connect(c.local()))
			}
			c.flush()
		})
	})
}

// hangUp ends the link; messages from here may still arrive over there.
func (c *client) hangUp() {
	if c.l == nil {
		return
	}
	c.w.tally.breaks++
	c.w.say("link of client %d breaks", c.index)
	c.l.gone = true
	c.l = nil
	for _, u := range c.sessions {
		u.take(u.s.Disconnect(c.local()))
	}
	c.dial()
}

func (c *client) receive(l *link, m session.Message) {
	c.awake(func() {
		if l.gone && c.w.rnd.IntN(2) == 0 {
			return
		}
		if c.w.trace != nil {
			c.w.say("client %d gets %s", c.index, brief(&m))
		}
		for _, u := range c.sessions {
			if u.s.ID() == m.Session {
				u.take(u.s.Receive(c.local(), &m))
			}
		}
		c.flush()
	})
}

// flush sends what is due and sets the timers.
func (c *client) flush() {
	for i := 0; i < len(c.sessions); i++ {
		u := c.sessions[i]
		stream := u.s.Stream()
		u.take(u.s.Flush(c.local()))
		if u.s.Stream() != stream {
			c.w.tally.resyncs++
		}
		u.setTimer()
	}
}

// setTimer makes sure that the session is flushed when it wants to be. A timer
// that has become too early finds nothing to do and sets the next.
func (u *user) setTimer() {
	at := u.s.Wake()
	if at == session.Never {
		return
	}
	wait := max((at-u.c.local())*100/u.c.rate+1, 1000)
	due := u.c.w.now + wait
	if u.timer > u.c.w.now && u.timer <= due {
		return
	}
	u.timer = due
	u.c.w.after(wait, func() {
		if u.timer == due {
			u.c.awake(u.c.flush)
		}
	})
}

// take does what the session asks for; some of it calls the session again.
func (u *user) take(actions []session.Action) {
	redial, dead := false, false
	for _, a := range slices.Clone(actions) {
		switch a.Kind {
		case session.Send:
			if u.c.w.trace != nil {
				u.c.w.say("client %d sends %s", u.c.index, brief(&a.Message))
			}
			u.c.l.toServer(a.Message)
		case session.Done:
			u.done(a.Call)
		case session.Lost:
			u.c.w.tally.lost++
			u.c.w.say("client %d: %v lost, code %d", u.c.index, a.Call.Tag.(*hold).names, a.Code)
			a.Call.Tag.(*hold).end(a.Code == core.CodeRevoked)
		case session.SessionOver:
			dead = true
			u.die(a)
		case session.Redial, session.Silent:
			redial = true
		case session.Over:
			u.c.forget(u)
		}
	}
	if redial && u.c.w.rnd.IntN(2) == 0 {
		u.c.hangUp()
	}
	if dead && u.c.current == u {
		u.c.open()
	}
}

func (u *user) die(a session.Action) {
	u.dead = true
	u.c.w.say("client %d: session %x dead, cause %d %s", u.c.index, u.s.ID(), a.Cause, a.Text)
	if a.Cause == session.Expired {
		u.c.w.tally.expired++
	}
	for _, h := range u.holds {
		h.state = ended
	}
}

func (c *client) forget(u *user) {
	rest := c.sessions[:0:0]
	for _, s := range c.sessions {
		if s != u {
			rest = append(rest, s)
		}
	}
	c.sessions = rest
}

func (u *user) done(call *session.Call) {
	w := u.c.w
	if call.Outcome == session.Unknown {
		w.tally.unknown++
	}
	switch tag := call.Tag.(type) {
	case *hold:
		if call.Outcome == session.Answered && call.Result.Code == core.CodeOK {
			tag.granted()
			return
		}
		tag.end(false)
	case counting:
		w.counter.answered(w, call)
	}
}

// brief is a message in a few words.
func brief(m *session.Message) string {
	names := [...]string{"", "attach", "frame", "renewal", "reply", "renewed", "push", "table", "refused"}
	b := fmt.Sprintf("%s on stream %d", names[m.Kind], m.Stream)
	var f core.Frame
	var r core.Reply
	switch {
	case m.Kind == session.KindFrame && core.DecodeNew(m.Body, &f) == nil:
		b += fmt.Sprintf(" attempt %d mark %d:", f.Attempt, f.Mark)
		for _, c := range f.Commands {
			b += fmt.Sprintf(" %d=op%d(%d)", c.Seq, c.Op, c.Target)
		}
	case m.Kind == session.KindReply && core.DecodeReply(m.Body, &r) == nil:
		b += fmt.Sprintf(" attempt %d:", r.Attempt)
		for _, c := range r.Results {
			b += fmt.Sprintf(" %d=code%d", c.Seq, c.Code)
		}
	}
	for _, row := range m.Rows {
		b += fmt.Sprintf(" %d:state%d/code%d", row.Seq, row.State, row.Code)
	}
	return b
}

package session_test

import (
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// server is a leader around the real machine: entries are stamped after their
// last command arrived, and applied in order some time later.
type server struct {
	w          *world
	m          *core.Machine
	rate       int64 // of its clock, in hundredths
	lag        int64 // what its clock has lost in stalls
	stalledTil int64
	batch      []arrived
	stamping   bool
	applyAt    int64 // when the last entry will have been applied
	bound      map[core.SessionID]*binding
	out        core.Output
}

// arrived is a message on its way into the log.
type arrived struct {
	l *link
	m session.Message
}

// binding is the stream to which a session's messages go.
type binding struct {
	l      *link
	stream uint64
	pushes uint64
}

func newServer(w *world) *server {
	return &server{w: w, m: core.New(core.Config{}), rate: pick(w, int64(99), 100, 101), bound: map[core.SessionID]*binding{}}
}

// clusterTime is what the server's clock shows.
func (s *server) clusterTime() int64 { return sec(1000) + s.w.now/100*s.rate - s.lag }

// trouble stalls the server now and then: it does nothing for a time, and its
// clock counts all of that time or hardly any.
func (s *server) trouble() {
	every := s.w.nature.stallEvery
	if every == 0 {
		return
	}
	s.w.after(s.w.upTo(2*every), func() {
		if s.w.healed {
			return
		}
		d := s.w.upTo(s.w.nature.ttl)
		s.w.tally.stalls++
		s.w.say("server stalls for %d ms", d/ms)
		s.stalledTil = s.w.now + d
		if s.w.rnd.IntN(2) == 0 {
			s.lag += d / 100 * (s.rate - 1)
		}
		s.trouble()
	})
}

// arrive takes a message from a link.
func (s *server) arrive(l *link, m session.Message) {
	if wait := s.stalledTil - s.w.now; wait > 0 {
		s.w.after(wait, func() { s.arrive(l, m) })
		return
	}
	if m.Kind == session.KindAttach {
		s.attach(l, m)
		return
	}
	s.batch = append(s.batch, arrived{l, m})
	if !s.stamping {
		s.stamping = true
		s.w.after(s.w.upTo(2*ms), s.stamp)
	}
}

// attach binds the session and sends its table, in pieces.
func (s *server) attach(l *link, m session.Message) {
	if b := s.bound[m.Session]; b != nil && b.stream >= m.Stream {
		return
	}
	b := &binding{l: l, stream: m.Stream}
	s.bound[m.Session] = b
	rows, known := s.m.Table(m.Session)
	rows = slices.DeleteFunc(slices.Clone(rows), func(core.ClaimRow) bool { return s.w.chance(s.w.nature.forget) })
	for piece := uint64(0); ; piece++ {
		n := min(len(rows), 1+s.w.rnd.IntN(3))
		last := n == len(rows)
		s.send(b, session.Message{Kind: session.KindTable, Session: m.Session, Piece: piece, Known: known, Last: last, Rows: rows[:n]})
		if rows = rows[n:]; last {
			return
		}
	}
}

func (s *server) send(b *binding, m session.Message) {
	m.Stream = b.stream
	b.l.toClient(m)
}

// stamp makes an entry of what has arrived.
func (s *server) stamp() {
	if wait := s.stalledTil - s.w.now; wait > 0 {
		s.w.after(wait, s.stamp)
		return
	}
	s.stamping = false
	batch := s.batch
	s.batch = nil
	e := core.Entry{Now: s.clusterTime()}
	var renewals, frames []arrived
	for _, a := range batch {
		if a.m.Kind == session.KindRenewal {
			e.Renewals = append(e.Renewals, core.Renewal{Session: a.m.Session, Attempt: a.m.Attempt, TTL: a.m.TTL})
			renewals = append(renewals, a)
			continue
		}
		e.Frames = append(e.Frames, a.m.Body)
		frames = append(frames, a)
	}
	entry := core.AppendEntry(nil, &e)
	s.applyAt = max(s.applyAt, s.w.now+pick(s.w, 0, s.w.upTo(10*ms)))
	s.w.after(s.applyAt-s.w.now, func() { s.apply(entry, renewals, frames) })
}

func (s *server) apply(entry []byte, renewals, frames []arrived) {
	s.out.Reset()
	if err := s.m.Apply(entry, &s.out); err != nil {
		s.w.fail("apply: %v", err)
		return
	}
	for i := range s.out.Events {
		s.w.happened(&s.out.Events[i])
	}
	for i, r := range s.out.Renewed {
		s.answer(renewals[i], session.Message{Kind: session.KindRenewed, Session: r.Session, Attempt: r.Attempt, Now: r.Now, Deadline: r.Deadline})
	}
	for i := range s.out.Replies {
		r := &s.out.Replies[i]
		s.answer(frames[i], session.Message{Kind: session.KindReply, Session: r.Session, Body: core.AppendReply(nil, r)})
	}
	for _, p := range s.out.Pushes {
		s.push(p)
	}
	s.expectDue()
}

// answer sends an answer if the session still listens to the stream that asked.
func (s *server) answer(a arrived, m session.Message) {
	b := s.bound[m.Session]
	if b == nil || b.stream != a.m.Stream || b.l != a.l {
		return
	}
	m.Pushes = b.pushes
	s.send(b, m)
}

func (s *server) push(p core.Push) {
	b := s.bound[p.Session]
	if b == nil {
		return
	}
	b.pushes++
	s.send(b, session.Message{Kind: session.KindPush, Session: p.Session, Pushes: b.pushes, Rows: []core.ClaimRow{p}})
}

// expectDue proposes a bare stamp when the next deadline is due.
func (s *server) expectDue() {
	at, ok := s.m.Due()
	if !ok {
		return
	}
	wait := (at-s.clusterTime())*100/s.rate + 1
	s.w.after(max(wait, 1), func() {
		if now, ok := s.m.Due(); ok && now <= s.clusterTime() && !s.stamping {
			s.stamping = true
			s.stamp()
		} else if ok && now == at && now > s.clusterTime() {
			s.expectDue()
		}
	})
}

// link is one connection of a client. What it carries may be delayed, lost,
// repeated and reordered, and may still arrive when the link is long gone.
type link struct {
	w        *world
	c        *client
	gone     bool
	up, down int64 // when the last message will have arrived
}

func (l *link) toServer(m session.Message) {
	m.Body = slices.Clone(m.Body)
	l.carry(&l.up, func() { l.w.server.arrive(l, m) })
}

func (l *link) toClient(m session.Message) {
	if l.gone {
		return
	}
	m.Rows = slices.Clone(m.Rows)
	l.carry(&l.down, func() { l.c.receive(l, m) })
}

func (l *link) carry(last *int64, deliver func()) {
	w := l.w
	w.tally.sent++
	if w.chance(w.nature.drop) {
		w.tally.dropped++
		return
	}
	d := 10_000 + w.upTo(w.nature.delay)
	if w.chance(w.nature.late) {
		d += w.upTo(2 * w.nature.ttl)
	} else if !w.chance(w.nature.mess) {
		d = max(d, *last-w.now)
		*last = w.now + d
	}
	w.after(d, deliver)
	if w.chance(w.nature.dup) {
		w.tally.repeated++
		w.after(d+w.upTo(w.nature.delay), deliver)
	}
}

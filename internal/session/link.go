package session

import (
	"cmp"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
)

type linkState uint8

const (
	down      linkState = iota // no stream
	attaching                  // the table is not complete
	attached
)

// attempt is one sending that can be answered.
type attempt struct {
	open   bool  // it is not answered yet
	renews bool  // it moves the session's deadline when it is applied
	beat   bool  // it is a keepalive
	ends   bool  // it ends the session
	sent   int64 // the client's time
}

// uplink is the session's stream.
type uplink struct {
	state    linkState
	stream   uint64 // the newest attach number; older messages are discarded
	attach   bool   // the attach has yet to be sent
	piece    uint64 // of the table, next
	pushes   uint64 // seen on this stream
	attempts numbered[attempt]
	opening  bool  // an Open is under way
	probing  bool  // an anchor was asked for
	awaits   bool  // something other than a beat is unanswered,
	since    int64 // since then
	misses   int   // in a row
	retryAt  int64 // nothing but beats is sent before

	heard   int64 // when the stream last gave a sign of life, or began
	asked   int64 // when it was first asked for one since then; 0: it was not
	rtt     int64 // how long answers took lately
	redials int   // other streams asked for since the last answer
}

// maxPatience bounds how long a frame may be unanswered on sessions with a long
// TTL: a caller waits for it.
const maxPatience = 3e9

// framePatience is how long a frame or attach may be unanswered. It doubles with
// every miss, over all streams, since an attach that is given up too early would
// be for ever; but not beyond the TTL, within which a link has to answer anyway:
// what was missed during a long outage must not hold up the time after it.
func (s *Session) framePatience() int64 {
	p := min(s.patience(), maxPatience)
	return min(p<<min(s.link.misses, 5), s.ttl)
}

// Connect says that there is a stream to a server. The session attaches to it
// and sends again whatever is unanswered.
func (s *Session) Connect(now int64) []Action {
	s.begin(now)
	s.link.retryAt = 0
	s.link.hear(s.now)
	if s.life != gone {
		s.reattach()
	}
	return s.out
}

// Disconnect says that the stream is gone. That alone loses nothing.
func (s *Session) Disconnect(now int64) []Action {
	s.begin(now)
	s.unsend()
	s.link.state = down
	return s.out
}

// Stream is the number of the newest attach; messages of others are discarded.
func (s *Session) Stream() uint64 { return s.link.stream }

// Unanswered reports whether something was sent over the stream that has not been
// answered. What is to be sent again after a pause does not count meanwhile.
func (s *Session) Unanswered() bool {
	return s.link.state != down && s.life != gone && (s.link.awaits || s.beat.out)
}

// reattach begins a new stream, over the same connection or another.
func (s *Session) reattach() {
	s.unsend()
	l := &s.link
	l.stream++
	l.state, l.attach, l.piece, l.pushes = attaching, true, 0, 0
}

// unsend makes everything unanswered due again. Answers to what was sent before
// would come on a stream that is not listened to any more.
func (s *Session) unsend() {
	s.resend()
	if s.beat.out {
		s.beat.out, s.beat.at = false, s.now
	}
	s.link.attempts.clear()
}

// resend makes unanswered commands due again on the same stream.
func (s *Session) resend() {
	for _, c := range s.calls.all() {
		if c != nil && c.state != merged {
			c.state = unsent
		}
	}
	l := &s.link
	s.unsent, s.inflight = s.calls.base, 0
	l.opening, l.probing, l.awaits = false, false, false
	s.ending.sent = false
}

// miss deals with an attach or a frame that was not answered in time: it is
// sent again, and from the second time on another stream is asked for.
func (s *Session) miss() {
	l := &s.link
	l.misses++
	if l.state == attaching {
		s.reattach()
	}
	s.resend()
	l.retryAt = s.now + s.spread.backoff(l.misses, s.patience()/16, min(s.patience(), maxPatience))
	if l.misses > 1 {
		s.redial()
	}
}

// redial asks for another stream if this one has been silent for too long since it
// was asked: at first for the patience of a beat, or twice what answers take if the link is
// slow, then each time for twice as long, up to half the TTL. A stream that is
// given up while its answers are on the way is worse than none; but one that is
// silent for the TTL has no answer that would still be of use, however slow the
// link seemed: it may have been this program that stood still.
func (s *Session) redial() {
	l := &s.link
	p := min(max(s.patience(), 2*l.rtt), s.ttl)
	if s.now-cmp.Or(l.asked, l.heard) < min(p<<min(l.redials, 4), max(p, s.ttl/2)) {
		return
	}
	l.redials++
	s.do(Action{Kind: Silent})
}

// hear notes a sign of life.
func (l *uplink) hear(now int64) { l.heard, l.asked = now, 0 }

// ask notes that one is due: a stream that nobody asks is not silent.
func (l *uplink) ask(now int64) { l.asked = cmp.Or(l.asked, now) }

// alive notes an answer that came this long after what it answers.
func (l *uplink) alive(latency int64) {
	l.redials = 0
	l.rtt = max(latency, l.rtt*7/8)
}

// table processes one piece of the claim table.
func (s *Session) table(m *Message) {
	l := &s.link
	if l.state != attaching || m.Piece != l.piece {
		return
	}
	l.piece++
	if !m.Known && s.opened && s.life == alive {
		s.endNow(Ended, core.CodeNoSession, "the server does not know the session any more")
	}
	for i := range m.Rows {
		s.row(&m.Rows[i])
	}
	if m.Last {
		l.state = attached
		s.missing()
	}
	s.progress()
	if m.Last {
		s.recheck()
	}
}

// recheck asks for a new table if an old one put a hold in doubt that has been
// settled since.
func (s *Session) recheck() {
	if s.doubts {
		s.doubts = false
		s.reattach()
	}
}

// row compares one row with what the client believes.
func (s *Session) row(r *core.ClaimRow) {
	c := s.claims[r.Seq]
	switch {
	case s.life != alive:
	case c != nil:
		c.listed = s.link.stream
		s.changed(c, r, true)
	case r.State != core.ClaimGone && !s.spokenFor(r.Seq):
		s.cancel(r.Seq, nil)
	}
}

// spokenFor reports whether a command under way will settle the number: its own
// Acquire (its answer will tell), or its release or cancel.
func (s *Session) spokenFor(seq uint64) bool {
	if c := s.calls.at(seq); c != nil && *c != nil {
		return true
	}
	return s.settling[seq] > 0
}

// missing takes every claim that the table did not have as gone, and cancels
// it: should the table have been wrong, nobody must keep the claim.
func (s *Session) missing() {
	var absent []uint64
	for seq, c := range s.claims {
		if c.listed != s.link.stream && s.life == alive {
			absent = append(absent, seq)
		}
	}
	slices.Sort(absent)
	for _, seq := range absent {
		row := core.ClaimRow{Seq: seq, State: core.ClaimGone, Code: core.CodeLost}
		s.changed(s.claims[seq], &row, true)
	}
}

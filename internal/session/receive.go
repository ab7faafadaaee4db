package session

import (
	"strings"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Receive processes a message of the server. Messages of older streams are
// discarded. A Body is not kept.
func (s *Session) Receive(now int64, m *Message) []Action {
	s.begin(now)
	if m.Session != s.cfg.ID || m.Stream != s.link.stream || s.link.state == down || s.life == gone {
		return s.out
	}
	s.link.hear(s.now)
	switch {
	case m.Kind == KindTable:
		s.table(m)
	case m.Kind == KindRefused:
		s.refused(m)
	case s.link.state == attached && s.complete(m):
		s.news(m)
	}
	return s.out
}

// complete reports whether every push before m has been seen. If not, a loss
// may be among what is missing, and m must prolong no belief before it is
// known: a new table tells.
func (s *Session) complete(m *Message) bool {
	l := &s.link
	switch {
	case m.Kind == KindPush && m.Pushes == l.pushes+1:
		l.pushes++
		return true
	case m.Pushes > l.pushes:
		s.reattach()
		return false
	default:
		return m.Kind != KindPush
	}
}

func (s *Session) news(m *Message) {
	switch m.Kind {
	case KindPush:
		if s.life == alive {
			s.push(&m.Rows[0])
		}
	case KindRenewed:
		s.renewed(m.Attempt, m.Now, m.Deadline)
	case KindReply:
		s.replied(m.Body)
	}
	s.recheck()
}

// answered returns the attempt that an answer is for, once.
func (s *Session) answered(number uint64) attempt {
	attempts := &s.link.attempts
	slot := attempts.at(number)
	if slot == nil {
		return attempt{}
	}
	a := *slot
	if a.open {
		s.link.alive(s.now - a.sent)
	}
	*slot = attempt{}
	for len(attempts.all()) > 0 && !attempts.all()[0].open {
		attempts.drop()
	}
	return a
}

func (s *Session) renewed(number uint64, n, x int64) {
	a := s.answered(number)
	switch {
	case s.life != alive || !a.open:
	case x == 0:
		s.endNow(Ended, core.CodeNoSession, "the server has ended the session")
		s.finishEnding()
	default:
		s.beaten(a.sent)
		s.anchor(a.sent, n, x)
		s.answerKeeps(number, n)
	}
}

func (s *Session) replied(body []byte) {
	r := &s.reply
	if err := core.DecodeReply(body, r); err != nil || r.Session != s.cfg.ID {
		s.do(Action{Kind: Redial, Text: "a reply could not be read"})
		return
	}
	a := s.answered(r.Attempt)
	switch {
	case s.life == untold && a.ends:
		s.finishEnding()
	case s.life != alive:
	case r.Deadline == 0:
		s.unknown()
	default:
		s.accept(a)
	}
}

// accept takes the results of a reply from the living session.
func (s *Session) accept(a attempt) {
	r := &s.reply
	s.opened, s.link.opening, s.link.probing = true, false, false
	if a.open {
		if a.renews {
			s.beaten(a.sent)
		}
		s.anchor(a.sent, r.Now, r.Deadline)
	}
	for i := range r.Results {
		s.result(&r.Results[i], a.open)
	}
	s.progress()
}

// progress notes that the server answers.
func (s *Session) progress() {
	l := &s.link
	l.misses, l.since = 0, s.now
	l.awaits = s.inflight > 0 || l.opening || l.probing || l.state == attaching || s.ending.sent
}

// unknown deals with a reply that says there is no such session. Whether its
// commands were done before it ended, or an earlier copy of the frame did them,
// is not known; but where the Open itself was refused, what travelled with it
// for the only time was not done.
func (s *Session) unknown() {
	r := s.reply.Results
	if s.opened || len(r) == 0 || r[0].Seq != 0 || r[0].Code == core.CodeNoSession {
		s.endNow(Ended, core.CodeNoSession, "the server has ended the session")
		s.finishEnding()
		return
	}
	for i := range r {
		if c := s.pending(r[i].Seq); c != nil {
			c.unsend()
		}
	}
	s.endNow(Refused, r[0].Code, strings.Clone(r[0].Text))
	s.finishEnding()
}

// pending returns the unanswered call with a number.
func (s *Session) pending(seq uint64) *Call {
	if slot := s.calls.at(seq); slot != nil {
		return *slot
	}
	return nil
}

// result gives one call its answer. fresh: the newest anchor is that of this
// very answer, or a newer one.
func (s *Session) result(r *core.Result, fresh bool) {
	if r.Seq == 0 {
		if r.Window != 0 {
			s.window = r.Window
		}
		return
	}
	c := s.pending(r.Seq)
	if c == nil {
		return
	}
	if r.Code == core.CodeWindow {
		s.again(c)
		return
	}
	if c.with != nil {
		s.together(c, r)
		return
	}
	s.remove(c)
	c.Result, c.Now = own(r), s.reply.Now
	switch {
	case r.Code == core.CodeForgotten:
		s.settle(c)
		s.finish(c, Unknown)
	case c.claims():
		s.claimed(c, r, fresh)
	default:
		s.other(c, r)
		s.finish(c, Answered)
	}
}

// together deals with the answer to several that travelled as one.
func (s *Session) together(c *Call, r *core.Result) {
	c.Result, c.Now = own(r), s.reply.Now
	switch r.Code {
	case core.CodeOK:
		s.share(c)
	case core.CodeForgotten:
		for x := range c.party() {
			s.remove(x)
			s.finish(x, Unknown)
		}
	default:
		s.part(c)
	}
}

// again puts a call that the server had no room for back among the unsent.
func (s *Session) again(c *Call) {
	if c.state == sent {
		c.state = unsent
		s.inflight--
	}
	s.unsent = min(s.unsent, c.Command.Seq)
}

// claimed deals with the answer to an Acquire or Upgrade.
func (s *Session) claimed(c *Call, r *core.Result, fresh bool) {
	switch r.Code {
	case core.CodeQueued:
		c.state = waiting
		s.claims[r.Seq] = c
		s.do(Action{Kind: Queued, Call: c})
	case core.CodeOK:
		s.grant(c, r.Token, r.Deadline, fresh)
	default:
		s.loseBase(c, r.Code)
		if r.Code == core.CodeRevoked {
			s.cancel(r.Seq, nil)
		}
		s.settle(c)
		s.finish(c, Answered)
	}
}

// other deals with the answers that change what is believed of a claim.
func (s *Session) other(c *Call, r *core.Result) {
	target := s.claims[c.Command.Target]
	switch {
	case c.Command.Op == core.OpCancel:
		s.canceled(c)
	case r.Code != core.CodeOK || target == nil:
	case c.Command.Op == core.OpHandOver:
		s.forget(target)
	case c.Command.Op == core.OpExtend:
		target.maxHold = max(target.maxHold, c.Command.MaxHold)
		d := s.mapClaim(r.Deadline, target.maxHold)
		target.Deadline = max(target.Deadline, d)
		c.Deadline = target.Deadline
	}
}

// canceled deals with the answer to a cancel. That of an upgrade may have
// brought back the shared hold: if it was released meanwhile, and the release
// was faster, it is released once more.
func (s *Session) canceled(c *Call) {
	s.settle(c)
	if b := c.base; b != nil && b.state == over {
		s.cancel(b.Command.Seq, nil)
	}
}

// refused deals with what the server did not take.
func (s *Session) refused(m *Message) {
	switch m.Refusal {
	case RefusedNoLeader:
		s.do(Action{Kind: Redial, Text: m.Text, Endpoint: m.Endpoint})
		s.later(m)
	case RefusedBusy:
		s.later(m)
	case RefusedNoSession:
		if s.opened && s.life == alive {
			s.endNow(Ended, core.CodeNoSession, m.Text)
			return
		}
		s.later(m)
	case RefusedDenied:
		s.denied(m)
	}
}

// later sends again what was refused, after a pause.
func (s *Session) later(m *Message) {
	a := s.answered(m.Attempt)
	s.notTaken(a)
	if a.beat {
		s.missBeat()
		s.beat.at = max(s.beat.at, s.now+min(m.RetryAfter, s.ttl/24))
		return
	}
	s.link.misses++
	if m.Attempt == 0 {
		s.reattach()
	}
	s.resend()
	pause := s.spread.backoff(s.link.misses, s.patience()/16, min(s.patience(), maxPatience))
	s.link.retryAt = s.now + max(m.RetryAfter, pause)
}

// notTaken notes that an attempt was refused: its Open can have opened nothing.
func (s *Session) notTaken(a attempt) {
	if !a.open || a.beat {
		return
	}
	if s.unsure--; s.unsure == 0 {
		s.begun = 0
	}
}

// denied ends what will never be taken. A refusal tells nothing of earlier
// attempts: a call that was sent before may have been done, and its number is
// settled by a cancel.
func (s *Session) denied(m *Message) {
	if s.life != alive || m.Attempt == 0 {
		s.refuseAll(m)
		return
	}
	a, calls := s.answered(m.Attempt), s.sentWith(m.Attempt)
	s.notTaken(a)
	switch {
	case a.beat:
		s.refuseAll(m)
		return
	case !s.ofOne(m.Code):
		for _, c := range calls {
			c.unsend()
		}
		s.refuseAll(m)
		return
	case len(calls) > 1:
		s.separate(calls)
	default:
		for _, c := range calls {
			s.deny(c, m)
		}
		if !s.opened && len(s.calls.all()) == 0 { // nothing is left to open it for
			s.refuseAll(m)
			return
		}
	}
	s.progress()
}

// ofOne reports whether a frame can have been refused for one of its calls, which says nothing of the others, and not for the
// Open before them.
func (s *Session) ofOne(code core.Code) bool {
	return s.opened || code == core.CodeFull || code == core.CodeUnsupported
}

// sentWith are the calls of one frame that were not answered.
func (s *Session) sentWith(number uint64) (calls []*Call) {
	for _, c := range s.calls.all() {
		if c != nil && c.state == sent && c.attempt == number {
			calls = append(calls, c)
		}
	}
	return calls
}

// separate sends the calls of a frame again, each in its own: the frame was refused for
// one of them, and nothing of it was taken. If it was to open the session, an Open goes with
// each: a full server opens none for what it refuses.
func (s *Session) separate(calls []*Call) {
	s.link.opening = false
	for _, c := range calls {
		c.state, c.single = unsent, true
		c.void++
		s.inflight--
		s.unsent = min(s.unsent, c.Command.Seq)
	}
}

func (s *Session) refuseAll(m *Message) {
	if s.life == alive {
		s.endNow(Refused, m.Code, m.Text)
		return
	}
	s.finishEnding()
}

func (s *Session) deny(c *Call, m *Message) {
	outcome := NotDone
	if c.once() {
		s.settle(c)
	} else {
		s.cancel(c.Command.Seq, c.base)
		outcome = Unknown
	}
	for x := range c.party() {
		s.remove(x)
		x.Result, x.Denied = core.Result{Seq: x.Command.Seq, Code: m.Code, Text: m.Text}, true
		s.finish(x, outcome)
	}
}

// once: only its newest sending can have been taken.
func (c *Call) once() bool { return c.sends-c.void == 1 }

// unsend notes of a call, and those that travel with it, that its newest sending was not
// taken. If there was another that may have been, it stays as it is.
func (c *Call) unsend() {
	if !c.once() {
		return
	}
	for x := range c.party() {
		x.sends = 0
	}
}

package session

import "github.com/holdfast-io/holdfast/internal/core"

// push processes the news of one claim.
func (s *Session) push(r *core.Push) {
	if c := s.claims[r.Seq]; c != nil {
		s.changed(c, r, false)
		return
	}
	if slot := s.calls.at(r.Seq); slot != nil && *slot != nil && (*slot).claims() {
		s.overtaken(*slot, r)
		return
	}
	if r.State != core.ClaimGone && !s.spokenFor(r.Seq) {
		s.cancel(r.Seq, nil)
	}
}

// overtaken deals with news of a claim before its own answer has come: the news
// is the later of the two, so it serves as the answer.
func (s *Session) overtaken(c *Call, r *core.Push) {
	if r.State == core.ClaimWaiting {
		return
	}
	s.remove(c)
	c.state = waiting
	s.changed(c, r, false)
}

// changed moves a claim to the state that the server tells. States only go
// forward; what is older than what is known is ignored. byTable: it is not told
// by the very apply that did it, so a claim taken as gone is cancelled.
func (s *Session) changed(c *Call, r *core.ClaimRow, byTable bool) {
	switch {
	case r.State == core.ClaimGranted && c.state == waiting:
		s.grant(c, r.Token, r.Deadline, false)
	case r.State == core.ClaimRevoked:
		s.revoke(c, r.Code)
	case r.State == core.ClaimGone && byTable && c.unsettled:
		c.doubted = true
	case r.State == core.ClaimGone && byTable:
		s.takeAsGone(c, r.Code)
	case r.State == core.ClaimGone:
		s.lose(c, r.Code)
	}
}

// takeAsGone cancels a claim that a table did not have. Should the table have
// been wrong, the cancel of a granted upgrade brings back its shared hold, which
// nobody has any more: that is cancelled after it.
func (s *Session) takeAsGone(c *Call, code core.Code) {
	b := c.base
	c.base = nil
	if b != nil && b.state == over {
		s.cancel(c.Command.Seq, nil)
		s.cancel(b.Command.Seq, nil)
	} else {
		s.cancel(c.Command.Seq, b)
	}
	s.lose(c, code)
}

// revoke tells a holder that its hold was taken by another. Where there is no
// holder yet the claim is confirmed at once.
func (s *Session) revoke(c *Call, code core.Code) {
	switch c.state {
	case granted:
		c.state = revoked
		s.do(Action{Kind: Lost, Call: c, Code: code})
	case waiting, held:
		s.lose(c, code)
		s.cancel(c.Command.Seq, nil)
	}
}

// lose ends a claim: a holder is told of its loss, a waiter gets its answer.
func (s *Session) lose(c *Call, code core.Code) {
	was := c.state
	s.forget(c)
	s.loseBase(c, code)
	s.settle(c)
	switch was {
	case granted:
		s.do(Action{Kind: Lost, Call: c, Code: code})
	case waiting, held:
		c.Result.Seq, c.Result.Code = c.Command.Seq, code
		s.finish(c, Answered)
	}
}

// loseBase ends the shared hold under an upgrade that was granted and has ended
// before its grant was told: with the grant the shared hold was over. An upgrade
// that was only denied leaves it as it is.
func (s *Session) loseBase(c *Call, code core.Code) {
	b := c.base
	if b == nil || s.claims[b.Command.Seq] != b {
		return
	}
	switch code {
	case core.CodeMaxHold, core.CodeRevoked, core.CodeLost:
		s.lose(b, code)
	}
}

package session

import (
	"cmp"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
)

// ending is what is left to do for a dead session: telling the server, so that
// what it held is free before its TTL has passed.
type ending struct {
	sent   bool
	giveUp int64 // by then the server has ended it by itself
}

// End ends the session and all its holds: for the client at once, for the
// server when it is told, or by its deadline if a hold with a delay has just been lost
// by its own. [Over] says that nothing is left to do.
func (s *Session) End(now int64) []Action {
	s.begin(now)
	if s.life == alive {
		s.endNow(Closed, core.CodeOK, "")
	}
	return s.out
}

// endNow ends the session for ever.
func (s *Session) endNow(cause Cause, code core.Code, text string) {
	s.life = untold
	s.do(Action{Kind: SessionOver, Cause: cause, Code: code, Text: text})
	silent := !s.spoke || !s.opened && s.unsure == 0 || s.outlasted(cause) // or there is nothing to end
	s.dropCalls()
	s.ending.giveUp = s.now + 2*max(s.ttl, s.beat.longest)
	s.resend()
	if silent {
		s.finishEnding()
	}
}

// outlasted reports whether names are to stay taken after the session, because its policy
// keeps them or a hold with a delay was lost. To the server an End gives back all that the
// session has, so there is none: the deadline ends it, and the delay begins then. Of a
// session that was never opened nobody has had anything.
func (s *Session) outlasted(cause Cause) bool {
	if cause != Closed && s.opened && s.cfg.Policy != core.AtDeadline {
		return true
	}
	for _, c := range s.claims {
		if c.delays && c.state >= granted && (cause != Closed || c.expired(s.now)) {
			return true
		}
	}
	return false
}

// expired: the hold's own deadline has passed here. The server ends it a little later.
func (c *Call) expired(now int64) bool { return c.Deadline != 0 && c.Deadline <= now }

// Expire ends the session as its deadline does: for the client at once. The
// server is told only where that frees no more than the deadline would.
func (s *Session) Expire(now int64) []Action {
	s.begin(now)
	if s.life == alive {
		s.endNow(Expired, core.CodeLost, s.whyExpired())
	}
	return s.out
}

// dropCalls ends every call: what was never sent is not done, the rest is not
// known.
func (s *Session) dropCalls() {
	open := slices.SortedFunc(maps.Values(s.claims), func(a, b *Call) int { return cmp.Compare(a.Command.Seq, b.Command.Seq) })
	open = slices.DeleteFunc(open, func(c *Call) bool { return c.state >= granted })
	open = append(append(open, s.calls.all()...), s.keeps...)
	clear(s.claims)
	clear(s.settling)
	s.calls.clear()
	s.keeps, s.unmapped = nil, nil
	for _, c := range open {
		if c != nil {
			s.finish(c, fate(c))
		}
	}
}

func fate(c *Call) Outcome {
	if c.sends == 0 {
		return NotDone
	}
	return Unknown
}

// flushEnd sends the End. If no Open was ever answered, one goes before it: an
// older one may still be on its way, and an id that was opened and ended is
// refused afterwards.
func (s *Session) flushEnd() {
	if s.ending.sent {
		return
	}
	s.ending.sent = true
	s.frame.Commands = s.frame.Commands[:0]
	if !s.opened {
		s.frame.Commands = append(s.frame.Commands, s.openCommand())
	}
	s.frame.Commands = append(s.frame.Commands, core.Command{Op: core.OpEnd})
	s.sendFrame(attempt{ends: true})
}

func (s *Session) finishEnding() {
	if s.life == gone {
		return
	}
	s.life = gone
	s.link.state = down
	s.do(Action{Kind: Over})
}

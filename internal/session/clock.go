package session

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/deadline"
)

// clock ties the client's time to cluster time.
type clock struct {
	anchored bool
	// The newest anchor: at the client's time sent cluster time was not yet now.
	sent, now int64
	// deadline is D, in the client's time.
	deadline int64
}

// anchor takes what the answer to an attempt tells: the attempt was handed to
// the transport at sent, applied at cluster time n, and the session's deadline
// was then x. Each such pair bounds the server's clock by itself, so D may take
// the latest of what they give; it never goes back, and does not move for next
// to nothing, since every move costs the shell a timer.
func (s *Session) anchor(sent, n, x int64) {
	c := &s.clock
	if !c.anchored || sent >= c.sent {
		c.sent, c.now = sent, n
	}
	d := deadline.Map(sent, n, x, s.cfg.TTL)
	if !c.anchored || d > c.deadline+s.ttl/256 {
		c.anchored, c.deadline = true, d
		s.do(Action{Kind: Moved, Deadline: d})
	}
	s.deliver()
}

// mapClaim maps a claim's own deadline by the newest anchor. The margin is that
// of the shorter of TTL and max-hold: with the TTL's, a minute's hold on a day's
// session would be over before it began.
func (s *Session) mapClaim(x, maxHold int64) int64 {
	span := s.cfg.TTL
	if maxHold > 0 {
		span = min(span, time.Duration(maxHold))
	}
	return deadline.Map(s.clock.sent, s.clock.now, x, span)
}

// grant tells a grant. If the claim has a deadline of its own and was granted
// by push, the newest anchor may be so old that the drift since then eats up the
// hold: then it is held back until an anchor comes, which a probe asks for.
func (s *Session) grant(c *Call, token uint64, x int64, fresh bool) {
	c.Result.Seq, c.Result.Code, c.Result.Token = c.Command.Seq, core.CodeOK, token
	s.claims[c.Command.Seq] = c
	if x == 0 {
		s.told(c)
		return
	}
	c.claimX = x
	if !fresh && s.stale(c.maxHold) {
		c.state, c.heldAt = held, s.now
		s.unmapped = append(s.unmapped, c)
		return
	}
	c.Deadline = s.mapClaim(x, c.maxHold)
	s.told(c)
}

// stale reports whether the drift since the newest anchor could cost a hold
// more than its margin.
func (s *Session) stale(maxHold int64) bool {
	drift := (s.now - s.clock.sent) / 100 * 2 * deadline.Rho
	return drift > int64(deadline.Margin(time.Duration(maxHold)))
}

func (s *Session) told(c *Call) {
	c.state = granted
	if b := c.base; b != nil {
		s.forget(b)
	}
	s.finish(c, Answered)
}

// deliver tells the grants that were held back for an anchor, once one comes
// from an attempt that was sent after them.
func (s *Session) deliver() {
	rest := s.unmapped[:0]
	for _, c := range s.unmapped {
		switch {
		case c.state != held:
		case c.heldAt > s.clock.sent:
			rest = append(rest, c)
		default:
			c.Deadline = s.mapClaim(c.claimX, c.maxHold)
			s.told(c)
		}
	}
	clear(s.unmapped[len(rest):])
	s.unmapped = rest
}

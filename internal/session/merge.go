package session

import (
	"iter"
	"math/bits"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Adds to one counter that would travel in the same frame travel as one command,
// under the number of the first, if [Config.Merge] says so. The server adds all of
// it or, where that would meet an end of the range, nothing; then each goes its own
// way. What was sent together stays together: sent again, it is the same command.

// maxLeads bounds the counters of a frame that a further Add is compared with.
const maxLeads = 8

// lead is an Add of the frame under construction that others may join.
type lead struct {
	c  *Call
	at int // its place in the frame
}

// party is c and the calls that travel with it, in order.
func (c *Call) party() iter.Seq[*Call] {
	return func(yield func(*Call) bool) {
		for x := c; x != nil; {
			next := x.with
			if !yield(x) {
				return
			}
			x = next
		}
	}
}

// merges reports whether c may travel with others.
func (s *Session) merges(c *Call) bool {
	return s.cfg.Merge && c.Command.Op == core.OpCount && c.Command.Count == core.CountAdd && c.sends == 0 && !c.alone
}

// join lets c travel with an Add that the frame has already; false: there is
// none, or their sum would not fit.
func (s *Session) join(c *Call) bool {
	if !s.merges(c) {
		return false
	}
	for i := range s.leads {
		l := &s.leads[i]
		if l.c.Command.Name != c.Command.Name || l.c.Command.Unsigned != c.Command.Unsigned {
			continue
		}
		sum, ok := add(l.c.sum, c.Command.A, c.Command.Unsigned)
		if !ok {
			return false
		}
		l.c.sum = sum
		l.c.last.with, l.c.last = c, c
		cmd := &s.frame.Commands[l.at]
		cmd.Count, cmd.A = core.CountAddAll, sum
		c.state, c.attempt, c.sends = merged, l.c.attempt, 1
		return true
	}
	return false
}

// add is the sum of two amounts; false: it does not fit.
func add(a, b uint64, unsigned bool) (uint64, bool) {
	sum, carry := bits.Add64(a, b, 0)
	if unsigned {
		return sum, carry == 0
	}
	return sum, (a^sum)&(b^sum)>>63 == 0
}

// offer notes a command that was put into the frame. It may be joined, unless it
// was sent before; and none may join one that is older than another command on the
// same name.
func (s *Session) offer(c *Call, fresh bool) {
	if !s.cfg.Merge || c.Command.Name == "" {
		return
	}
	rest := s.leads[:0]
	for _, l := range s.leads {
		if l.c.Command.Name != c.Command.Name {
			rest = append(rest, l)
		}
	}
	s.leads = rest
	if fresh && len(s.leads) < maxLeads {
		c.sum, c.last = c.Command.A, c
		s.leads = append(s.leads, lead{c, len(s.frame.Commands) - 1})
	}
}

// wire is the command that stands for c and all that travel with it.
func (c *Call) wire() core.Command {
	cmd := c.Command
	if c.with != nil {
		cmd.Count, cmd.A = core.CountAddAll, c.sum
	}
	return cmd
}

// share answers every call that travelled with c, as if they had come one after the
// other: while the value is not negative those that lower it first, else those
// that raise it. In that order none of them meets an end of the range, since the
// sum did not.
func (s *Session) share(c *Call) {
	result, now := c.Result, c.Now
	value := result.Number - c.sum
	down, up := c.nextDown(), c.nextUp()
	for down != nil || up != nil {
		next := up
		if down != nil && (up == nil || int64(value) >= 0) {
			next, down = down, down.with.nextDown()
		} else {
			up = up.with.nextUp()
		}
		value += next.Command.A
		s.remove(next)
		next.Result, next.Now = result, now
		next.Result.Seq, next.Result.Number = next.Command.Seq, value
		s.finish(next, Answered)
	}
}

// nextDown is the first of c and those behind it that lowers the counter.
func (c *Call) nextDown() *Call {
	for c != nil && (c.Command.Unsigned || int64(c.Command.A) >= 0) {
		c = c.with
	}
	return c
}

// nextUp is the first that does not.
func (c *Call) nextUp() *Call {
	for c != nil && !c.Command.Unsigned && int64(c.Command.A) < 0 {
		c = c.with
	}
	return c
}

// part lets calls that travelled together and were refused go each their own way:
// nothing was done, and what is wrong with each of them it is to be told itself.
// The number of the first is used up.
func (s *Session) part(c *Call) {
	s.remove(c)
	for x := range c.party() {
		x.with, x.last, x.sum = nil, nil, 0
		x.alone, x.sends, x.void, x.state = true, 0, 0, unsent
		s.unsent = min(s.unsent, x.Command.Seq)
	}
	s.submit(c)
}

package session

import "github.com/holdfast-io/holdfast/internal/core"

// beat is the keepalive.
type beat struct {
	at     int64 // when to send the next one
	out    bool  // one is under way
	sent   int64
	misses int // in a row
	// longest is the longest life ever asked for: after it the server has ended
	// the session by itself.
	longest int64
}

// period is the time between two beats: a third of the TTL, give or take a
// tenth.
func (s *Session) period() int64 {
	third := s.ttl / 3
	return third - third/10 + s.spread.below(third/5+1)
}

// patience is how long a beat may be unanswered before it counts as missed.
func (s *Session) patience() int64 { return s.ttl / 12 }

// beating reports whether the session renews itself, or has been asked to.
func (s *Session) beating() bool {
	return s.opened && s.life == alive && (!s.cfg.Manual || len(s.keeps) > 0)
}

// Keep renews the session by hand for c.Command.TTL nanoseconds (0: its TTL);
// the deadline only grows. The call is Done when a renewal that was sent after
// it is answered.
func (s *Session) Keep(now int64, c *Call) []Action {
	s.begin(now)
	if s.life != alive {
		s.finish(c, NotDone)
		return s.out
	}
	s.keeps = append(s.keeps, c)
	s.beat.longest = max(s.beat.longest, c.Command.TTL)
	return s.out
}

func (s *Session) abandonKeep(c *Call) Outcome {
	for i, k := range s.keeps {
		if k == c {
			s.keeps = append(s.keeps[:i], s.keeps[i+1:]...)
			break
		}
	}
	if c.sends == 0 {
		return NotDone
	}
	return Unknown
}

// flushBeat sends a renewal if one is due. Waiting Keeps share it: since the
// deadline only grows, the longest TTL serves them all.
func (s *Session) flushBeat() {
	if !s.beating() || !s.asked() && (s.beat.out || s.now < s.beat.at) {
		return
	}
	var ttl int64
	for _, c := range s.keeps {
		ttl = max(ttl, c.Command.TTL)
	}
	number := s.link.attempts.push(attempt{open: true, renews: true, beat: true, sent: s.now})
	for _, c := range s.keeps {
		if c.sends++; c.sends == 1 {
			c.attempt = number
		}
	}
	s.beat.out, s.beat.sent = true, s.now
	s.link.ask(s.now)
	s.do(Action{Kind: Send, Message: Message{
		Kind: KindRenewal, Session: s.cfg.ID, Stream: s.link.stream, Attempt: number, TTL: ttl,
	}})
}

// asked reports whether a Keep has not been sent yet.
func (s *Session) asked() bool {
	return len(s.keeps) > 0 && s.keeps[len(s.keeps)-1].sends == 0
}

// missBeat gives up a beat that was not answered in time and plans the next
// try. The pauses stay so short that several tries fit before the deadline.
func (s *Session) missBeat() {
	s.beat.out = false
	s.beat.misses++
	s.beat.at = s.now + s.spread.backoff(s.beat.misses, s.ttl/192, s.ttl/24)
	s.redial()
}

// beaten notes that an attempt which renewed the session was answered.
func (s *Session) beaten(sent int64) {
	s.beat.out, s.beat.misses = false, 0
	s.beat.at = max(s.beat.at, sent+s.period())
}

// answerKeeps ends the Keeps that the answered attempt, or an earlier one,
// carried.
func (s *Session) answerKeeps(number uint64, n int64) {
	rest := s.keeps[:0]
	for _, c := range s.keeps {
		if c.sends == 0 || c.attempt > number {
			rest = append(rest, c)
			continue
		}
		c.Result.Code, c.Now = core.CodeOK, n
		s.finish(c, Answered)
	}
	clear(s.keeps[len(rest):])
	s.keeps = rest
}

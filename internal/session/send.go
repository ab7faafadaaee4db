package session

import (
	"cmp"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Frames are cut at these sizes: a server takes 64 KiB, and a long frame holds
// up what could already be under way.
const (
	maxCommands = 256
	maxBytes    = 32 << 10
)

// Tick lets time pass: it notices a deadline that has passed and answers that
// did not come.
func (s *Session) Tick(now int64) []Action {
	s.begin(now)
	s.tick()
	return s.out
}

func (s *Session) tick() {
	if s.life == untold && s.now >= s.ending.giveUp {
		s.finishEnding()
	}
	if s.link.state == down || s.life == gone {
		return
	}
	if s.beat.out && s.beating() && s.now >= s.beat.sent+s.patience() {
		s.missBeat()
	}
	if s.link.awaits && s.now >= s.link.since+s.framePatience() {
		s.miss()
	}
}

// Flush is Tick, and then asks to send what is due. Call it when the stream can
// take messages; what is submitted between two calls travels in one frame.
func (s *Session) Flush(now int64) []Action {
	s.begin(now)
	s.tick()
	if s.link.state == down || s.life == gone {
		return s.out
	}
	s.buf = s.buf[:0]
	if s.now >= s.link.retryAt {
		s.flushAttach()
	}
	if s.link.attach {
		return s.out
	}
	s.flushBeat()
	if s.now >= s.link.retryAt {
		s.flushCommands()
	}
	return s.out
}

// Wake is when Flush has something to do if nothing else happens before;
// [Never], or a time that has passed.
func (s *Session) Wake() int64 {
	at := int64(Never)
	switch {
	case s.life == alive:
		at = s.ends()
	case s.life == untold:
		at = s.ending.giveUp
	}
	if s.link.state == down || s.life == gone {
		return at
	}
	return min(at, s.wakeBeat(), s.wakeLink())
}

func (s *Session) wakeBeat() int64 {
	switch {
	case !s.beating() || s.link.attach:
		return Never
	case s.asked():
		return s.now
	case s.beat.out:
		return s.beat.sent + s.patience()
	default:
		return s.beat.at
	}
}

func (s *Session) wakeLink() int64 {
	at := int64(Never)
	if s.link.awaits {
		at = s.link.since + s.framePatience()
	}
	if s.due() {
		at = min(at, max(s.now, s.link.retryAt))
	}
	return at
}

// due reports whether there is an attach or a frame to send.
func (s *Session) due() bool {
	switch {
	case s.link.attach:
		return true
	case s.life == untold:
		return !s.ending.sent
	default:
		return s.wantsOpen() || s.wantsProbe() || s.wantsSend()
	}
}

func (s *Session) wantsOpen() bool  { return !s.opened && !s.link.opening }
func (s *Session) wantsProbe() bool { return len(s.unmapped) > 0 && !s.link.probing }

// wantsSend reports whether a command is unsent and within the window.
func (s *Session) wantsSend() bool {
	limit := min(s.calls.next(), s.mark()+s.window)
	for s.unsent < limit {
		if c := s.calls.at(s.unsent); c != nil && *c != nil && (*c).state == unsent {
			return true
		}
		s.unsent++
	}
	return false
}

// mark is the lowest number with a result that is still wanted.
func (s *Session) mark() uint64 { return s.calls.base }

func (s *Session) flushAttach() {
	if !s.link.attach {
		return
	}
	s.link.attach = false
	s.do(Action{Kind: Send, Message: Message{Kind: KindAttach, Session: s.cfg.ID, Stream: s.link.stream}})
	s.outstanding()
}

// outstanding notes that something was sent which must be answered.
func (s *Session) outstanding() {
	s.spoke = true
	s.link.ask(s.now)
	if !s.link.awaits {
		s.link.awaits, s.link.since = true, s.now
	}
}

func (s *Session) flushCommands() {
	if s.life == untold {
		s.flushEnd()
		return
	}
	for s.wantsOpen() || s.wantsProbe() || s.wantsSend() {
		s.flushFrame()
	}
}

// flushFrame sends one frame: the Open first as long as the server has not
// answered one, then what is unsent.
func (s *Session) flushFrame() {
	f := &s.frame
	f.Commands = f.Commands[:0]
	if !s.opened {
		f.Commands = append(f.Commands, s.openCommand())
		s.link.opening = true
	}
	s.link.probing = len(s.unmapped) > 0
	s.fill()
	s.sendFrame(attempt{renews: !s.opened})
}

// fill puts what is unsent into the frame, as much as fits.
func (s *Session) fill() {
	f, number, size := &s.frame, s.link.attempts.next(), 0
	first := len(f.Commands) // behind the Open
	for s.wantsSend() && len(f.Commands) < maxCommands {
		c := *s.calls.at(s.unsent)
		if s.join(c) {
			continue
		}
		if size += weight(&c.Command); size > maxBytes && size != weight(&c.Command) || c.single && len(f.Commands) > first {
			break
		}
		fresh := s.merges(c)
		c.state, c.attempt = sent, number
		c.sends++
		s.inflight++
		f.Commands = append(f.Commands, c.wire())
		s.offer(c, fresh)
		if c.single {
			break
		}
	}
	clear(s.leads)
	s.leads = s.leads[:0]
}

// sendFrame sends s.frame as one attempt.
func (s *Session) sendFrame(a attempt) {
	f := &s.frame
	f.Session, f.Mark = s.cfg.ID, s.mark()
	a.open, a.sent = true, s.now
	f.Attempt = s.link.attempts.push(a)
	s.begun = cmp.Or(s.begun, s.now)
	s.unsure++
	start := len(s.buf)
	s.buf = core.AppendFrame(s.buf, f)
	clear(f.Commands)
	s.do(Action{Kind: Send, Message: Message{
		Kind: KindFrame, Session: s.cfg.ID, Stream: s.link.stream, Body: s.buf[start:],
	}})
	s.outstanding()
}

func (s *Session) openCommand() core.Command {
	c := &s.cfg
	return core.Command{
		Op: core.OpOpen, Namespace: c.Namespace, Identity: c.Identity, Owner: c.Owner, Meta: c.Meta,
		TTL: s.ttl, Window: c.Window, Policy: c.Policy, Grace: int64(c.Grace),
	}
}

// weight estimates the encoded size of a command: its texts and values, and
// something for the rest.
func weight(c *core.Command) int {
	n := 64 + len(c.Name) + len(c.Value) + len(c.Owner)
	for i := range c.Wants {
		n += 24 + len(c.Wants[i].Name)
	}
	for i := range c.If {
		n += 48 + len(c.If[i].Key) + len(c.If[i].Value)
	}
	for _, ops := range [...][]core.KeyOp{c.Then, c.Else} {
		for i := range ops {
			n += 64 + len(ops[i].Key) + len(ops[i].Value)
		}
	}
	return n
}

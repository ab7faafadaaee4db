package driver

import (
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/deadline"
)

// Session is the client's side of a session: one deadline, one timer, and all the
// holds that end with it. Its zero deadline means "until End".
//
// When the deadline passes the session is over for ever, whatever the engine
// answers later: a holder that took its session for ended must not find it
// valid again.
type Session struct {
	// ID names the session in the engine.
	ID SessionID
	// Spec is what it was opened with.
	Spec Spec

	mu       sync.Mutex
	deadline time.Time // in the time of Now
	timer    *time.Timer
	err      error
	ties     Tie // head of the ring
	done     chan struct{}
}

// NewSession returns a session without a deadline.
func NewSession(id SessionID, spec Spec) *Session {
	s := &Session{ID: id, Spec: spec, done: make(chan struct{})}
	s.ties.next, s.ties.prev = &s.ties, &s.ties
	return s
}

// Extend notes that a request which was handed to the transport at sent (a time
// of [Now]) was answered "good for ttl from when I got it".
func (s *Session) Extend(sent time.Time, ttl time.Duration) {
	d := deadline.Map(0, 0, int64(ttl), ttl)
	s.MoveTo(sent.Add(time.Duration(d)))
}

// MoveTo sets the deadline, a time of [Now]; it only moves forward, and never
// revives: a deadline that has passed ends the session, noticed or not.
func (s *Session) MoveTo(d time.Time) {
	now := Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look(now)
	if s.err == nil && d.After(s.deadline) {
		s.deadline = d
		s.wake(d.Sub(now))
	}
}

// wake has the clock looked at when the deadline has passed; s.mu is held.
func (s *Session) wake(in time.Duration) {
	if s.timer == nil {
		s.timer = time.AfterFunc(in, func() { _ = s.Err() })
		return
	}
	s.timer.Reset(in)
}

// Err is nil exactly as long as the session lasts. It compares the clock, so that
// a late timer does not prolong the session.
func (s *Session) Err() error {
	now := Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look(now)
	return s.err
}

// errDeadline is the cause when a session's own deadline ended it.
const errDeadline = Kind("not renewed in time")

// look ends the session if its deadline has passed; s.mu is held.
func (s *Session) look(now time.Time) {
	if s.err == nil && !s.deadline.IsZero() && !now.Before(s.deadline) {
		s.end(&Error{Op: "keep session", Kind: ErrLost, Err: errDeadline})
	}
}

// End ends the session and every hold tied to it, once: however it ended, all of
// them know when End returns. cause is what Err says from then on; nil means
// ErrLost.
func (s *Session) End(cause error) {
	if cause == nil {
		cause = ErrLost
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.end(cause)
	}
}

// end is under the lock, so that no caller finds the session ended before its holds
// know it: the next holder may be granted as soon as that is found. s.mu is held.
func (s *Session) end(cause error) {
	s.err = cause
	if s.timer != nil {
		s.timer.Stop()
	}
	for t := s.ties.next; t != &s.ties; t = s.ties.next {
		t.cut()
		t.end(cause)
	}
	close(s.done)
}

// Done is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.done }

// Deadline is when the session ends unless it is extended, a time of [Now];
// false: it has none.
func (s *Session) Deadline() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deadline, !s.deadline.IsZero()
}

// Tie binds one hold to a session. The zero Tie is free; it lives inside the hold
// so that a hold costs no allocation here.
type Tie struct {
	session    *Session
	next, prev *Tie
	end        func(error)
}

// To calls end once when s ends, at once if it has. A Tie serves one session. end
// runs with the session locked: it must not block, and not use the session or its
// ties.
func (t *Tie) To(s *Session, end func(error)) {
	now := Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.look(now); s.err != nil {
		end(s.err)
		return
	}
	t.session, t.end = s, end
	t.next, t.prev = &s.ties, s.ties.prev
	t.prev.next, s.ties.prev = t, t
}

// Untie forgets the hold; end will not be called any more.
func (t *Tie) Untie() {
	s := t.session
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.next != nil {
		t.cut()
	}
}

// cut takes t out of the ring; the session is locked.
func (t *Tie) cut() {
	t.prev.next, t.next.prev = t.next, t.prev
	t.next, t.prev = nil, nil
}

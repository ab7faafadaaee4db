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
	l := &Session{ID: id, Spec: spec, done: make(chan struct{})}
	l.ties.next, l.ties.prev = &l.ties, &l.ties
	return l
}

// Extend notes that a request which was handed to the transport at sent (a time
// of [Now]) was answered "good for ttl from when I got it".
func (l *Session) Extend(sent time.Time, ttl time.Duration) {
	d := deadline.Map(0, 0, int64(ttl), ttl)
	l.MoveTo(sent.Add(time.Duration(d)))
}

// MoveTo sets the deadline, a time of [Now]; it only moves forward, and never
// revives: a deadline that has passed ends the session, noticed or not.
func (l *Session) MoveTo(d time.Time) {
	now := Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look(now)
	if l.err == nil && d.After(l.deadline) {
		l.deadline = d
		l.wake(d.Sub(now))
	}
}

// wake has the clock looked at when the deadline has passed; l.mu is held.
func (l *Session) wake(in time.Duration) {
	if l.timer == nil {
		l.timer = time.AfterFunc(in, func() { _ = l.Err() })
		return
	}
	l.timer.Reset(in)
}

// Err is nil exactly as long as the session lasts. It compares the clock, so that
// a late timer does not prolong the session.
func (l *Session) Err() error {
	now := Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look(now)
	return l.err
}

// errDeadline is the cause when a session's own deadline ended it.
const errDeadline = Kind("not renewed in time")

// look ends the session if its deadline has passed; l.mu is held.
func (l *Session) look(now time.Time) {
	if l.err == nil && !l.deadline.IsZero() && !now.Before(l.deadline) {
		l.end(&Error{Op: "keep session", Kind: ErrLost, Err: errDeadline})
	}
}

// End ends the session and every hold tied to it, once: however it ended, all of
// them know when End returns. cause is what Err says from then on; nil means
// ErrLost.
func (l *Session) End(cause error) {
	if cause == nil {
		cause = ErrLost
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.end(cause)
	}
}

// end is under the lock, so that no caller finds the session ended before its holds
// know it: the next holder may be granted as soon as that is found. l.mu is held.
func (l *Session) end(cause error) {
	l.err = cause
	if l.timer != nil {
		l.timer.Stop()
	}
	for t := l.ties.next; t != &l.ties; t = l.ties.next {
		t.cut()
		t.end(cause)
	}
	close(l.done)
}

// Done is closed when the session is over.
func (l *Session) Done() <-chan struct{} { return l.done }

// Deadline is when the session ends unless it is extended, a time of [Now];
// false: it has none.
func (l *Session) Deadline() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline, !l.deadline.IsZero()
}

// Tie binds one hold to a session. The zero Tie is free; it lives inside the hold
// so that a hold costs no allocation here.
type Tie struct {
	session    *Session
	next, prev *Tie
	end        func(error)
}

// To calls end once when l ends, at once if it has. A Tie serves one session. end
// runs with the session locked: it must not block, and not use the session or its
// ties.
func (t *Tie) To(l *Session, end func(error)) {
	now := Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.look(now); l.err != nil {
		end(l.err)
		return
	}
	t.session, t.end = l, end
	t.next, t.prev = &l.ties, l.ties.prev
	t.prev.next, l.ties.prev = t, t
}

// Untie forgets the hold; end will not be called any more.
func (t *Tie) Untie() {
	l := t.session
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.next != nil {
		t.cut()
	}
}

// cut takes t out of the ring; the session is locked.
func (t *Tie) cut() {
	t.prev.next, t.next.prev = t.next, t.prev
	t.next, t.prev = nil, nil
}

package driver

import (
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/deadline"
)

// Lease is the client's side of a session: one deadline, one timer, and all the
// holds that end with it. Its zero deadline means "until End".
//
// When the deadline passes the lease is over for ever, whatever the engine
// answers later: a holder that has stopped must not come back to life.
type Lease struct {
	// ID names the session in the engine.
	ID LeaseID
	// Spec is what it was opened with.
	Spec Spec

	mu       sync.Mutex
	deadline time.Time // in the time of Now
	timer    *time.Timer
	err      error
	ties     Tie // head of the ring
	done     chan struct{}
}

// NewLease returns a lease without a deadline.
func NewLease(id LeaseID, spec Spec) *Lease {
	l := &Lease{ID: id, Spec: spec, done: make(chan struct{})}
	l.ties.next, l.ties.prev = &l.ties, &l.ties
	return l
}

// Extend notes that a request which was handed to the transport at sent (a time
// of [Now]) was answered "good for ttl from when I got it".
func (l *Lease) Extend(sent time.Time, ttl time.Duration) {
	d := deadline.Map(0, 0, int64(ttl), ttl)
	l.MoveTo(sent.Add(time.Duration(d)))
}

// MoveTo sets the deadline, a time of [Now]; it only moves forward, and never
// revives: a deadline that has passed ends the lease, noticed or not.
func (l *Lease) MoveTo(d time.Time) {
	now := Now()
	l.mu.Lock()
	ends := l.look(now)
	if l.err == nil && d.After(l.deadline) {
		l.deadline = d
		l.wake(d.Sub(now))
	}
	err := l.err
	l.mu.Unlock()
	tell(ends, err)
}

// wake has the clock looked at when the deadline has passed; l.mu is held.
func (l *Lease) wake(in time.Duration) {
	if l.timer == nil {
		l.timer = time.AfterFunc(in, func() { _ = l.Err() })
		return
	}
	l.timer.Reset(in)
}

// Err is nil exactly as long as the lease lasts. It compares the clock, so that
// a late timer lets nobody act.
func (l *Lease) Err() error {
	now := Now()
	l.mu.Lock()
	ends := l.look(now)
	err := l.err
	l.mu.Unlock()
	tell(ends, err)
	return err
}

// errDeadline is the cause when a lease's own deadline ended it.
const errDeadline = Kind("not renewed in time")

// look ends the lease if its deadline has passed, and returns whom to tell;
// l.mu is held.
func (l *Lease) look(now time.Time) []func(error) {
	if l.err != nil || l.deadline.IsZero() || now.Before(l.deadline) {
		return nil
	}
	return l.end(&Error{Op: "keep session", Kind: ErrLost, Err: errDeadline})
}

// End ends the lease and every hold tied to it, once. cause is what Err says
// from then on; nil means ErrLost.
func (l *Lease) End(cause error) {
	if cause == nil {
		cause = ErrLost
	}
	l.mu.Lock()
	var ends []func(error)
	if l.err == nil {
		ends = l.end(cause)
	}
	l.mu.Unlock()
	tell(ends, cause)
}

// end marks the lease ended; l.mu is held.
func (l *Lease) end(cause error) []func(error) {
	l.err = cause
	if l.timer != nil {
		l.timer.Stop()
	}
	close(l.done)
	return l.cut()
}

// tell is called outside the lock, since a hold's end may untie or look at the
// lease.
func tell(ends []func(error), cause error) {
	for _, end := range ends {
		end(cause)
	}
}

// cut empties the ring and returns what to call.
func (l *Lease) cut() []func(error) {
	var ends []func(error)
	for t := l.ties.next; t != &l.ties; {
		next := t.next
		ends = append(ends, t.end)
		t.next, t.prev = nil, nil
		t = next
	}
	l.ties.next, l.ties.prev = &l.ties, &l.ties
	return ends
}

// Done is closed when the lease is over.
func (l *Lease) Done() <-chan struct{} { return l.done }

// Deadline is when the lease ends unless it is extended, a time of [Now];
// false: it has none.
func (l *Lease) Deadline() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline, !l.deadline.IsZero()
}

// Tie binds one hold to a lease. The zero Tie is free; it lives inside the hold
// so that a hold costs no allocation here.
type Tie struct {
	lease      *Lease
	next, prev *Tie
	end        func(error)
}

// To calls end once when l ends, at once if it has. A Tie serves one lease.
func (t *Tie) To(l *Lease, end func(error)) {
	if err := l.Err(); err != nil {
		end(err)
		return
	}
	l.mu.Lock()
	if err := l.err; err != nil {
		l.mu.Unlock()
		end(err)
		return
	}
	t.lease, t.end = l, end
	t.next, t.prev = &l.ties, l.ties.prev
	t.prev.next, l.ties.prev = t, t
	l.mu.Unlock()
}

// Untie forgets the hold; end will not be called any more, unless it is being
// called now.
func (t *Tie) Untie() {
	l := t.lease
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.next != nil {
		t.prev.next, t.next.prev = t.next, t.prev
		t.next, t.prev = nil, nil
	}
}

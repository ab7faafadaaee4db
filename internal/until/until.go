// Package until lets a call be bounded by a time alone, at no cost if it is
// answered at once: its Context has no timer before somebody asks for Done.
package until

import (
	"context"
	"sync"
	"time"
)

// Context ends at a time, or with Stop. Nothing else ends it, so a caller that waits
// together with a timer of its own, set to Deadline, need not ask for Done.
type Context struct {
	at time.Time

	mu     sync.Mutex
	real   context.Context // made by the first Done
	cancel context.CancelFunc
}

var _ context.Context = (*Context)(nil)

// In returns a context that ends after d.
func In(d time.Duration) *Context { return &Context{at: time.Now().Add(d)} }

// Deadline is when it ends.
func (u *Context) Deadline() (time.Time, bool) { return u.at, true }

// Done is closed when the time has come. It takes a timer, which Stop frees.
func (u *Context) Done() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.real == nil {
		u.real, u.cancel = context.WithDeadline(context.Background(), u.at)
	}
	return u.real.Done()
}

// Err is nil before the end.
func (u *Context) Err() error {
	if real := u.made(); real != nil {
		return real.Err()
	}
	if time.Now().Before(u.at) {
		return nil
	}
	return context.DeadlineExceeded
}

// Value lets a child context hang itself on the real one.
func (u *Context) Value(key any) any {
	if real := u.made(); real != nil {
		return real.Value(key)
	}
	return nil
}

func (u *Context) made() context.Context {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.real
}

// Stop ends a context that was waited for, and frees its timer. Call it when the
// call has returned.
func (u *Context) Stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cancel != nil {
		u.cancel()
	}
}

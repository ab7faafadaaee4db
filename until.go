package holdfast

import (
	"context"
	"sync"
	"time"
)

// until is a context that ends at a time, and has no timer unless somebody
// waits for it: a release that is answered at once should not pay for one.
type until struct {
	at time.Time

	mu     sync.Mutex
	real   context.Context // made by the first Done
	cancel context.CancelFunc
}

func (u *until) Deadline() (time.Time, bool) { return u.at, true }

func (u *until) Done() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.real == nil {
		u.real, u.cancel = context.WithDeadline(context.Background(), u.at)
	}
	return u.real.Done()
}

func (u *until) Err() error {
	if real := u.made(); real != nil {
		return real.Err()
	}
	if time.Now().Before(u.at) {
		return nil
	}
	return context.DeadlineExceeded
}

// Value lets a child context hang itself on the real one.
func (u *until) Value(key any) any {
	if real := u.made(); real != nil {
		return real.Value(key)
	}
	return nil
}

func (u *until) made() context.Context {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.real
}

// stop frees the timer, if there is one.
func (u *until) stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cancel != nil {
		u.cancel()
	}
}

package holdfast

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
)

// Mutex is a name that one at a time holds. The value is only the name: two
// goroutines may share it, and each gets its own Hold. Safe for concurrent use.
type Mutex struct{ l lockable }

// Mutex names a mutex; it does no I/O.
func (s *Space) Mutex(name string, opts ...HoldOption) *Mutex {
	return &Mutex{s.lockable(name, opts)}
}

var aMutex = driver.Want{Kind: driver.Mutex}

// Acquire waits for the mutex until ctx ends. ctx bounds the wait only.
func (m *Mutex) Acquire(ctx context.Context) (*Hold, error) {
	return m.l.acquire(ctx, aMutex, "", false)
}

// TryAcquire takes the mutex if it is free; if not, the error is ErrHeld and
// says by whom.
func (m *Mutex) TryAcquire(ctx context.Context) (*Hold, error) {
	return m.l.acquire(ctx, aMutex, "", true)
}

// Do runs f while holding the mutex and releases it however f ends, by panic
// and Goexit too. f's context ends with ctx or with the hold. If the hold was
// lost, Do returns ErrLost.
func (m *Mutex) Do(ctx context.Context, f func(context.Context, *Hold) error) error {
	h, err := m.Acquire(ctx)
	return do(ctx, h, err, f)
}

// TryDo is Do if the mutex is free; if not, ErrHeld.
func (m *Mutex) TryDo(ctx context.Context, f func(context.Context, *Hold) error) error {
	h, err := m.TryAcquire(ctx)
	return do(ctx, h, err, f)
}

// Want is the mutex as a part of [Space.AcquireAll].
func (m *Mutex) Want() Want { return m.l.want(aMutex, "", nil) }

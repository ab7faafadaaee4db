package holdfast

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
)

// Mutex is a name that one holder at a time has; from [RWMutex.Reader] it is the
// side that readers share. The value is only the name: goroutines may share it,
// and each call gets its own Hold. Safe for concurrent use.
type Mutex struct {
	l    lockable
	want driver.Want
	need Feature
}

// Mutex names a mutex; it does no I/O.
func (s *Space) Mutex(name string, opts ...HoldOption) *Mutex {
	return &Mutex{l: s.lockable(name, opts), want: driver.Want{Kind: driver.Mutex}}
}

// Name is the whole name, with the prefixes of [Space.Sub].
func (m *Mutex) Name() string { return m.l.name }

// Acquire waits for the mutex until ctx ends. ctx bounds the wait only.
func (m *Mutex) Acquire(ctx context.Context) (*Hold, error) {
	return m.l.acquire(ctx, m.want, m.need, false)
}

// TryAcquire takes the mutex if it is free; if not, the error is ErrHeld and
// names the holder.
func (m *Mutex) TryAcquire(ctx context.Context) (*Hold, error) {
	return m.l.acquire(ctx, m.want, m.need, true)
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
func (m *Mutex) Want() Want { return m.l.want(m.want, m.need, nil) }

package holdfast

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/driver"
)

// Semaphore is a name that several holds share, their weights up to its limit. Its
// tokens tell holders apart; they do not order them. Safe for concurrent use.
type Semaphore struct {
	l     lockable
	limit int64
}

// Semaphore names a semaphore; it does no I/O. The first use with a limit makes
// it; limit 0 means the one that it has, and a differing one is ErrConflict
// until [Semaphore.SetLimit].
func (s *Space) Semaphore(name string, limit int64, opts ...HoldOption) *Semaphore {
	m := &Semaphore{s.lockable(name, opts), limit}
	if limit < 0 {
		m.l.err = firstError(m.l.err, invalid("the limit %d is negative; 0 is the one it has", limit))
	}
	return m
}

// Name is the whole name, with the prefixes of [Space.Sub].
func (m *Semaphore) Name() string { return m.l.name }

// Limit is the limit that this value was made with; 0: the one that the
// semaphore has, which [Space.Inspect] tells.
func (m *Semaphore) Limit() int64 { return m.limit }

func (m *Semaphore) weighing(n int64) driver.Want {
	return driver.Want{Kind: driver.Semaphore, Mode: driver.Shared, Weight: n, Limit: m.limit}
}

// checkWeight refuses what could never be granted.
func (m *Semaphore) checkWeight(n int64) error {
	if n < 1 {
		return invalid("the weight %d is below 1", n)
	}
	if m.limit > 0 && n > m.limit {
		return invalid("the weight %d is above the limit %d and would wait for ever", n, m.limit)
	}
	return nil
}

func (m *Semaphore) acquire(ctx context.Context, n int64, try bool) (*Hold, error) {
	if err := firstError(m.l.err, m.checkWeight(n)); err != nil {
		return nil, wrap("acquire", m.l.name, err)
	}
	return m.l.acquire(ctx, m.weighing(n), driver.FeatureWeighted, try)
}

// Acquire waits for n of the limit.
func (m *Semaphore) Acquire(ctx context.Context, n int64) (*Hold, error) {
	return m.acquire(ctx, n, false)
}

// TryAcquire takes n of the limit if they are free now; if not, ErrHeld.
func (m *Semaphore) TryAcquire(ctx context.Context, n int64) (*Hold, error) {
	return m.acquire(ctx, n, true)
}

// Do runs f while holding n of the limit; see [Mutex.Do].
func (m *Semaphore) Do(ctx context.Context, n int64, f func(context.Context, *Hold) error) error {
	h, err := m.Acquire(ctx, n)
	return do(ctx, h, err, f)
}

// TryDo is Do without a wait.
func (m *Semaphore) TryDo(ctx context.Context, n int64, f func(context.Context, *Hold) error) error {
	h, err := m.TryAcquire(ctx, n)
	return do(ctx, h, err, f)
}

// Want is n of the limit as a part of [Space.AcquireAll].
func (m *Semaphore) Want(n int64) Want {
	return m.l.want(m.weighing(n), driver.FeatureWeighted, m.checkWeight(n))
}

// SetLimit changes the limit for everybody, at once. Nobody loses a hold;
// nothing is granted until what is held fits, and waiters that never could are
// refused. Values of Semaphore with another limit then answer ErrConflict.
func (m *Semaphore) SetLimit(ctx context.Context, limit int64) error {
	err := firstError(m.l.err, checkLimit(limit), m.l.s.r.ready(ctx, driver.FeatureResize))
	if err == nil {
		err = m.l.s.r.d.Resize(ctx, m.l.name, limit)
	}
	return m.l.s.r.wrap(ctx, "set limit", m.l.name, driver.FeatureResize, err)
}

func checkLimit(limit int64) error {
	if limit < 1 {
		return invalid("the limit %d is below 1", limit)
	}
	return nil
}

// Delete forgets an idle semaphore with its limit; ErrHeld if it is in use.
func (m *Semaphore) Delete(ctx context.Context) error {
	return m.l.s.remove(ctx, driver.Semaphore, m.l.name, driver.FeatureWeighted, m.l.err)
}

// remove is Delete of every type that has one.
func (s *Space) remove(ctx context.Context, kind driver.ResourceKind, name string, need Feature, err error) error {
	err = firstError(err, s.r.ready(ctx, need))
	if err == nil {
		err = inUse(s.r.d.Delete(ctx, kind, name))
	}
	return s.r.wrap(ctx, "delete", name, need, err)
}

// inUse gives a bare ErrHeld its reason: those that wait stand in the way of a Delete too, and of
// a latch nobody can be told as its holder.
func inUse(err error) error {
	e, ok := err.(*Error)
	if !ok || e.Kind != ErrHeld || e.Err != nil || len(e.Holders) > 0 {
		return err
	}
	told := *e
	told.Err = errInUse
	return &told
}

var errInUse = errors.New("it is in use; delete it when nobody holds or awaits it")

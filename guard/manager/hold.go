package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
)

// AcquireLock takes the lock for a holder, or fails with ErrHeld; it does not wait. A
// holder that has it already gets the token that it has, and so do equal calls at the same
// time. A stale holder is reclaimed.
func (m *Manager) AcquireLock(ctx context.Context, name, holder, metadata string) (holdfast.Token, error) {
	return m.acquire(ctx, m.locks, name, holder, metadata, 1, nil)
}

// AcquireSemaphore takes weight slots for a holder, or fails with ErrHeld; it does not
// wait. A holder that has some already gets the token that it has, if the weight is the
// same, else ErrConflict. Of stale holders the oldest are reclaimed, until there is room; the
// holder's own slots that it has lost are freed in any case.
func (m *Manager) AcquireSemaphore(ctx context.Context, name, holder string, weight int64, metadata string) (holdfast.Token, error) {
	return m.acquire(ctx, m.semaphores, name, holder, metadata, weight, nil)
}

// acquire waits for what is held if there are beats, which then keep the holder until they end.
func (m *Manager) acquire(ctx context.Context, list map[string]*resource, name, owner, metadata string, weight int64, b *beats) (holdfast.Token, error) {
	h := &holder{name: owner, metadata: metadata, weight: weight, waits: b != nil, asked: make(chan struct{})}
	r, same, err := m.begin(ctx, list, h, name)
	switch {
	case err != nil:
		return 0, err
	case same != nil:
		return same.hold.Token(), nil
	}
	defer m.all.Done()
	defer close(h.asked)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.ctx, func() { cancel(errClosed) })()
	began := time.Now() // not after the backend's own clock began to count
	err = m.free(ctx, r.name, h.before)
	var hold *holdfast.Hold
	if err == nil {
		m.freed(h)
		hold, err = m.take(ctx, r, h, b)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		r.restore(h)
		return 0, cmp.Or(closed(ctx), err)
	}
	if h.hold, h.last = hold, began; b != nil {
		h.last = time.Now()
	}
	return hold.Token(), nil
}

// freed notes that nothing is left of the holder before h. Maintenance may be looking at it.
func (m *Manager) freed(h *holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.before = nil
}

// closed is errClosed if that is why ctx has ended.
func closed(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errClosed) {
		return errClosed
	}
	return nil
}

var errClosed = fmt.Errorf("guard manager: the manager is closed: %w", holdfast.ErrClosed)

// begin makes h the holder, of which Close waits to hear, unless there is one that has the same. While
// another call asks for the same it waits for the answer to that.
func (m *Manager) begin(ctx context.Context, list map[string]*resource, h *holder, name string) (r *resource, same *holder, err error) {
	for {
		var asks <-chan struct{}
		if r, same, asks, err = m.enter(list, h, name); asks == nil || err != nil {
			return r, same, err
		}
		select {
		case <-asks:
		case <-m.ctx.Done():
			return nil, nil, errClosed
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("guard manager: %q is being acquired for %q: %w", name, h.name, ctx.Err())
		}
	}
}

// enter takes the place of a holder; same is the one that has it and wants the same, and still asks for it
// until asks is closed, if that is not nil. One that has lost its hold begins anew.
func (m *Manager) enter(list map[string]*resource, h *holder, name string) (r *resource, same *holder, asks <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r = list[name]
	switch {
	case m.ctx.Err() != nil:
		return nil, nil, nil, errClosed
	case r == nil:
		return nil, nil, nil, unknown(name)
	case h.name == "":
		return nil, nil, nil, fmt.Errorf("guard manager: %q: the holder has no name: %w", name, holdfast.ErrInvalid)
	case h.weight < 1 || r.slots > 0 && h.weight > r.slots:
		return nil, nil, nil, fmt.Errorf("guard manager: the semaphore %q has %d slots: %d can never be granted: %w", name, r.slots, h.weight, holdfast.ErrInvalid)
	}
	switch same = r.holders[h.name]; {
	case same != nil && same.hold == nil:
		return r, same, same.asked, same.differs(h, name)
	case same != nil && same.over() == nil:
		return r, same, nil, same.differs(h, name)
	}
	h.before = same
	r.holders[h.name] = h
	m.all.Add(1)
	return r, nil, nil, nil
}

// differs refuses another call for the holder that wants something else, or would have to wait and does not.
func (h *holder) differs(o *holder, name string) error {
	switch {
	case h.weight != o.weight && h.hold != nil:
		return fmt.Errorf("guard manager: %q holds %d of %q, not %d: release it first: %w", h.name, h.weight, name, o.weight, holdfast.ErrConflict)
	case h.hold == nil && (h.weight != o.weight || h.waits && !o.waits):
		return fmt.Errorf("guard manager: %q is being acquired for %q: %w", name, h.name, holdfast.ErrConflict)
	}
	return nil
}

// restore drops a holder that was refused. The stale one before it, if it could not be
// freed, is there again, so that maintenance still finds it. m is locked.
func (r *resource) restore(h *holder) {
	if delete(r.holders, h.name); h.before != nil {
		r.holders[h.name] = h.before
	}
}

func unknown(name string) error {
	return fmt.Errorf("guard manager: %q is not known: ensure it first: %w", name, fs.ErrNotExist)
}

// take opens the session of (name, holder) and acquires under it.
func (m *Manager) take(ctx context.Context, r *resource, h *holder, b *beats) (hold *holdfast.Hold, err error) {
	opts := []holdfast.SessionOption{holdfast.Owner(h.name), holdfast.Meta(h.metadata)}
	if r.threshold > 0 {
		opts = append(opts, holdfast.TTL(r.threshold), holdfast.ManualRenew(), holdfast.ReclaimOnDemand(0))
	}
	s, err := m.space.Session(ctx, opts...)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	h.session = s
	m.mu.Unlock()
	if b != nil && r.threshold > 0 {
		b.all.Go(func() { m.keepUntil(b.ctx, h, r.threshold/4) })
	}
	under := []holdfast.HoldOption{holdfast.Under(s), holdfast.Owner(h.name), holdfast.Meta(h.metadata)}
	switch {
	case r.slots > 0 && b != nil:
		hold, err = m.space.Semaphore(r.name, r.slots, under...).Acquire(ctx, h.weight)
	case r.slots > 0:
		hold, err = m.space.Semaphore(r.name, r.slots, under...).TryAcquire(ctx, h.weight)
	case b != nil:
		hold, err = m.space.Mutex(r.name, under...).Acquire(ctx)
	default:
		hold, err = m.space.Mutex(r.name, under...).TryAcquire(ctx)
	}
	if err != nil {
		_ = s.Revoke() // nothing hangs on it
		m.deny(ctx, r, h, err)
		return nil, err
	}
	return hold, nil
}

// beats are the heartbeats of an import: for what waits, and for what others have got meanwhile.
type beats struct {
	ctx context.Context
	end context.CancelFunc
	all sync.WaitGroup
}

func newBeats(ctx context.Context) *beats {
	b := &beats{}
	b.ctx, b.end = context.WithCancel(ctx)
	return b
}

// stop has one last heartbeat sent for each, which gives it a full threshold.
func (b *beats) stop() {
	b.end()
	b.all.Wait()
}

// keepUntil sends heartbeats for a holder until ctx ends, and one then, or until its session is over.
func (m *Manager) keepUntil(ctx context.Context, h *holder, every time.Duration) {
	for ctx.Err() == nil {
		select {
		case <-h.session.Done():
			return
		case <-ctx.Done():
		case <-time.After(every):
			m.beat(ctx, h)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), every)
	defer cancel()
	m.beat(ctx, h)
}

// beat gives the session of a holder another threshold, unless its hold was ended alone: what is left of that is for
// maintenance. If it cannot, what is held or asked for under it fails.
func (m *Manager) beat(ctx context.Context, h *holder) {
	if began := time.Now(); !m.lost(h) && h.session.Keep(ctx) == nil {
		m.heard(h, began)
	}
}

// lost: the holder was granted something, and that is over.
func (m *Manager) lost(h *holder) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return h.hold != nil && h.hold.Err() != nil
}

func (m *Manager) heard(h *holder, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.last = at
}

// deny tells of a refusal where the backend does not.
func (m *Manager) deny(ctx context.Context, r *resource, h *holder, err error) {
	if m.reclaims || !errors.Is(err, holdfast.ErrHeld) {
		return
	}
	kind := "lock"
	if r.slots > 0 {
		kind = "semaphore"
	}
	m.tell(ctx, Event{Kind: kind, Verb: "denied", Name: r.name, Holder: h.name, Reason: err.Error()})
}

// ReleaseLock gives the lock back. One that the holder does not have, or has lost, is
// ErrLost, and takes it from nobody else; what a holder that was silent for too long has left
// is freed.
func (m *Manager) ReleaseLock(ctx context.Context, name, holder string) error {
	return m.release(ctx, m.locks, name, holder)
}

// ReleaseSemaphore gives all slots of the holder back, as [Manager.ReleaseLock] does.
func (m *Manager) ReleaseSemaphore(ctx context.Context, name, holder string) error {
	return m.release(ctx, m.semaphores, name, holder)
}

func (m *Manager) release(ctx context.Context, list map[string]*resource, name, owner string) error {
	h, err := m.holding(list, name, owner)
	if err != nil {
		return err
	}
	if h.over() != nil {
		if err := m.free(ctx, name, h); err != nil {
			return fmt.Errorf("guard manager: release %q for %q, which has lost it: %w", name, owner, err)
		}
	}
	m.forget(list, name, h)
	err = h.hold.Release()
	return errors.Join(err, h.end())
}

// forget drops a holder, and not the one that has taken its place meanwhile.
func (m *Manager) forget(list map[string]*resource, name string, h *holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := list[name]; r != nil && r.holders[h.name] == h {
		delete(r.holders, h.name)
	}
}

// holding is a holder that has something.
func (m *Manager) holding(list map[string]*resource, name, owner string) (*holder, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := list[name]
	if r == nil {
		return nil, unknown(name)
	}
	h := r.holders[owner]
	if h == nil || h.hold == nil {
		return nil, fmt.Errorf("guard manager: %q does not hold %q (any more): %w", owner, name, holdfast.ErrLost)
	}
	return h, nil
}

// HeartbeatLock says that the holder is there: the lock is its own for another threshold.
// One that comes too late, or after the lock was taken from the holder by force or by a
// MaxHold of the Space, is ErrLost: acquire it again.
func (m *Manager) HeartbeatLock(ctx context.Context, name, holder string) error {
	return m.heartbeat(ctx, m.locks, name, holder)
}

// HeartbeatSemaphore is [Manager.HeartbeatLock] for slots.
func (m *Manager) HeartbeatSemaphore(ctx context.Context, name, holder string) error {
	return m.heartbeat(ctx, m.semaphores, name, holder)
}

func (m *Manager) heartbeat(ctx context.Context, list map[string]*resource, name, owner string) error {
	h, err := m.holding(list, name, owner)
	if err != nil {
		return err
	}
	began := time.Now()
	if err = h.hold.Err(); err == nil && m.reclaims {
		err = h.session.Keep(ctx)
	}
	if err = cmp.Or(h.over(), err); err != nil {
		m.confirm(list, name, h)
		return fmt.Errorf("guard manager: heartbeat of %q for %q: %w", owner, name, err)
	}
	m.heard(h, began)
	return nil
}

// confirm ends what is left of a hold that was ended alone, now that its holder is told: the
// next may have it. One that was silent for too long is left to the next and to maintenance.
func (m *Manager) confirm(list map[string]*resource, name string, h *holder) {
	if h.endedAlone() {
		m.forget(list, name, h)
		_ = h.hold.Release() // it is lost, as is known
		_ = h.end()          // nothing hangs on it
	}
}

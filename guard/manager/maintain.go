package manager

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Run looks for stale holders every interval, until ctx ends or the manager is closed. A
// round that fails is not the last: its error is returned at the end, if no later round went
// well.
func (m *Manager) Run(ctx context.Context) (last error) {
	tick := time.NewTicker(m.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return last
		case <-m.ctx.Done():
			return last
		case <-tick.C:
			if _, err := m.Tick(ctx); ctx.Err() == nil {
				last = err
			}
		}
	}
}

// Stale is a holder that was silent for too long.
type Stale struct {
	Name, Holder string
	Token        holdfast.Token
	// Reclaimed: its name is free.
	Reclaimed bool
}

// Tick is one round of maintenance: it tells of each stale holder of this manager once,
// and reclaims what it held, unless the configuration keeps it. One that cannot be reclaimed
// is told with its error, and again by the next round. So it does with the stale claims of
// others on the names that this manager has ensured, as those of a manager that was killed,
// but leaves them alone if the configuration keeps stale holders.
func (m *Manager) Tick(ctx context.Context) (found []Stale, err error) {
	var errs []error
	for _, s := range m.stale() {
		one := Stale{Name: s.r.name, Holder: s.h.name, Token: s.h.hold.Token()}
		if !m.keep {
			one.Reclaimed, err = m.reclaim(ctx, s.r, s.h)
			errs = append(errs, err)
		}
		found = append(found, one)
	}
	left, err := m.reclaimLeft(ctx)
	return append(found, left...), errors.Join(append(errs, err)...)
}

// held is a holder with what it holds, or held.
type held struct {
	r *resource
	h *holder
}

// over is nil as long as the holder has what it was granted.
func (h *holder) over() error { return cmp.Or(h.hold.Err(), h.session.Err()) }

// endedAlone: the hold is over, by force or by a MaxHold, and its session is not. The holder
// has nothing, and may not know.
func (h *holder) endedAlone() bool { return h.hold.Err() != nil && h.session.Err() == nil }

// stale: it was silent for the threshold, by this machine's clock. It has lost its hold a
// little before, so that it knows in time. Without a threshold the session decides alone; a
// holder that lost one hold alone is given time for a heartbeat, by which it knows.
func (h *holder) stale(r *resource) bool {
	threshold := r.threshold
	if h.endedAlone() {
		threshold = cmp.Or(threshold, DefaultStaleThreshold)
	}
	return h.over() != nil && time.Since(h.last) >= threshold
}

// stale are those to be told of: where they are kept, each once.
func (m *Manager) stale() (list []held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.resources() {
		for _, h := range r.holders {
			if h.hold != nil && h.stale(r) && !(m.keep && h.told) {
				h.told = true
				list = append(list, held{r, h})
			}
		}
	}
	return list
}

// reclaim frees what a stale holder held, and forgets it.
func (m *Manager) reclaim(ctx context.Context, r *resource, h *holder) (bool, error) {
	if err := m.free(ctx, r.name, h); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.holders[h.name] == h {
		delete(r.holders, h.name)
	}
	return true, nil
}

// free ends what is left of a holder that has lost its hold, by its token: the one that has
// the name by now is never hit. A backend without "force" leaves nothing of a lost session.
func (m *Manager) free(ctx context.Context, name string, h *holder) error {
	if h == nil {
		return nil
	}
	if h.endedAlone() {
		_ = h.hold.Release() // it is lost, as is known
		return h.end()
	}
	_, err := m.space.ForceRelease(ctx, name, h.hold.Token(), holdfast.ForceNow())
	if errors.Is(err, holdfast.ErrNotFound) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// giveBack ends the session, and with it the hold, or frees what the backend keeps of a
// session that is over: nobody looks for it once the manager is closed. A Space that is closed
// has ended its sessions.
func (m *Manager) giveBack(ctx context.Context, one held) error {
	err := one.h.session.Revoke()
	if !errors.Is(err, holdfast.ErrLost) {
		return err
	}
	if !m.reclaims {
		return nil
	}
	if err = m.free(ctx, one.r.name, one.h); errors.Is(err, holdfast.ErrClosed) {
		return nil
	}
	return err
}

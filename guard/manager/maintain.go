package manager

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast"
)

// Run looks for stale holders every interval, until ctx ends or the manager is closed.
func (m *Manager) Run(ctx context.Context) error {
	tick := time.NewTicker(m.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.ctx.Done():
			return nil
		case <-tick.C:
			if _, err := m.Tick(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, holdfast.ErrUnavailable) {
				return err
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
// and reclaims what it held, unless the configuration keeps it.
func (m *Manager) Tick(ctx context.Context) (found []Stale, err error) {
	for _, s := range m.stale() {
		one := Stale{Name: s.r.name, Holder: s.h.name, Token: s.h.hold.Token()}
		switch {
		case !m.keep:
			one.Reclaimed, err = m.reclaim(ctx, s.r, s.h)
		case s.h.told:
			continue
		}
		m.mu.Lock()
		s.h.told = true
		m.mu.Unlock()
		if found = append(found, one); err != nil {
			return found, err
		}
	}
	return found, nil
}

// silent is a stale holder with what it held.
type silent struct {
	r *resource
	h *holder
}

// stale: it was silent for the threshold, by this machine's clock. It has lost its hold a
// little before, so that it knows in time. Without a threshold the session decides alone.
func (h *holder) stale(r *resource) bool {
	return h.session.Err() != nil && time.Since(h.last) >= r.threshold
}

func (m *Manager) stale() (list []silent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.resources() {
		for _, h := range r.holders {
			if h.hold != nil && h.stale(r) {
				list = append(list, silent{r, h})
			}
		}
	}
	return list
}

// reclaim frees what a stale holder held, by its token: the one that has the name by now
// is never hit.
func (m *Manager) reclaim(ctx context.Context, r *resource, h *holder) (bool, error) {
	_, err := m.space.ForceRelease(ctx, r.name, h.hold.Token(), holdfast.ForceNow())
	if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.holders[h.name] == h {
		delete(r.holders, h.name)
	}
	return true, nil
}

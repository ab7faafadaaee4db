package manager

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-io/holdfast"
)

// reclaimLeft frees the stale claims on this manager's names that none of its holders has:
// their manager is gone, and nobody else would.
func (m *Manager) reclaimLeft(ctx context.Context) (found []Stale, err error) {
	if m.keep || !m.reclaims || !m.forces || m.ctx.Err() != nil {
		return nil, nil
	}
	var errs []error
	names, own := m.owned()
	for some := range slices.Chunk(names, 32) {
		list, err := m.claims(ctx, some)
		errs = append(errs, err)
		for _, c := range list {
			if c.Stale && !own[c.Token] {
				one, err := m.reclaimClaim(ctx, c)
				found, errs = append(found, one...), append(errs, err)
			}
		}
	}
	return found, errors.Join(errs...)
}

// claims are all that hold the names, as the backend knows them.
func (m *Manager) claims(ctx context.Context, names []string) (list []holdfast.Claim, err error) {
	all, _, err := m.space.InspectAll(ctx, names...)
	for _, r := range all {
		if r.More && err == nil {
			r, err = m.space.Inspect(ctx, r.Name)
		}
		list = append(list, r.Holders...)
	}
	return list, err
}

// owned are the names of this manager, and the tokens of what its holders have or had. It is asked before the
// backend is: what is granted later is not stale.
func (m *Manager) owned() (names []string, own map[holdfast.Token]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own = map[holdfast.Token]bool{}
	for _, r := range m.resources() {
		names = append(names, r.name)
		for _, h := range r.holders {
			for ; h != nil; h = h.before {
				if h.hold != nil {
					own[h.hold.Token()] = true
				}
			}
		}
	}
	return names, own
}

// reclaimClaim tells of a claim, unless it is gone by now.
func (m *Manager) reclaimClaim(ctx context.Context, c holdfast.Claim) ([]Stale, error) {
	_, err := m.space.ForceRelease(ctx, c.Name, c.Token, holdfast.ForceNow())
	if errors.Is(err, holdfast.ErrNotFound) {
		return nil, nil
	}
	return []Stale{{Name: c.Name, Holder: c.Owner, Token: c.Token, Reclaimed: err == nil}}, err
}

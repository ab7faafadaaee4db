package holdfast

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
)

// joinKey asks a context for its hold of a resource.
type joinKey struct {
	r    *spaceState
	name string // canonical
}

// canonical is the engine's own form of a name.
func (r *spaceState) canonical(name string) string {
	if r.info.Canonical == nil {
		return name
	}
	return r.info.Canonical(name)
}

// covers reports that the claim holds the resource, in whatever mode.
func (c *holdState) covers(k joinKey) bool {
	return c.r == k.r && c.of(k.name) != nil
}

// of is the claim's want of a resource; nil: it has none.
func (c *holdState) of(canonical string) *driver.Want {
	for i := range c.wants {
		if c.r.canonical(c.wants[i].Name) == canonical {
			return &c.wants[i]
		}
	}
	return nil
}

// join looks for a hold in ctx that has all of wants. Nothing of both: there is
// none. An error: waiting would be waiting for oneself.
func (s *Space) join(ctx context.Context, wants []driver.Want) (*Hold, error) {
	joined := s.heldBy(ctx, wants[0].Name)
	for _, w := range wants[1:] {
		if s.heldBy(ctx, w.Name) != joined {
			return nil, driver.Errorf("", "", ErrConflict, "this context holds only some of the names; take all in one AcquireAll")
		}
	}
	if joined == nil {
		return nil, nil
	}
	return joined.share(wants)
}

// heldBy is the claim by which ctx holds a name; nil: it does not.
func (s *Space) heldBy(ctx context.Context, name string) *holdState {
	h, _ := ctx.Value(joinKey{s.r, s.r.canonical(name)}).(*Hold)
	if h == nil || h.Err() != nil {
		return nil
	}
	return h.g.c
}

// share makes another Hold of the claim.
func (c *holdState) share(wants []driver.Want) (*Hold, error) {
	for _, w := range wants {
		if err := fits(w, c.of(c.r.canonical(w.Name))); err != nil {
			return nil, err
		}
	}
	g := &holdRef{c: c}
	c.mu.Lock()
	if c.over != nil || c.count == 0 {
		defer c.mu.Unlock()
		return nil, c.why(c.over)
	}
	c.count++
	g.next, g.prev, c.first.next = c.first.next, &c.first, g
	if g.next != nil {
		g.next.prev = g
	}
	c.mu.Unlock()
	h := &Hold{g: g}
	watchOver(h)
	return h, nil
}

// fits refuses to join for more than is held.
func fits(want driver.Want, held *driver.Want) error {
	switch {
	case want.Kind != held.Kind:
		return driver.Errorf("", "", ErrConflict, "this context holds it as a %s, not as a %s", held.Kind, want.Kind)
	case want.Mode == driver.Exclusive && held.Mode == driver.Shared:
		return driver.Errorf("", "", ErrConflict, "this context holds it shared; use Upgrade")
	case want.Weight > held.Weight:
		return driver.Errorf("", "", ErrConflict, "this context holds %d of it, less than %d", held.Weight, want.Weight)
	}
	return nil
}

package holdfast

import (
	"context"
	"slices"

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
	return c.r == k.r && c.index(k.name) >= 0
}

// index is which of the claim's wants is of a resource; -1: none.
func (c *holdState) index(canonical string) int {
	return slices.IndexFunc(c.wants, func(w driver.Want) bool { return c.r.canonical(w.Name) == canonical })
}

// token is that of want i.
func (c *holdState) token(i int) Token {
	if c.grant.Tokens != nil {
		return c.grant.Tokens[i]
	}
	return c.grant.Token
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
	return joined.share(wants, s.prefix)
}

// heldBy is the claim by which ctx holds a name; nil: it does not.
func (s *Space) heldBy(ctx context.Context, name string) *holdState {
	h, _ := ctx.Value(joinKey{s.r, s.r.canonical(name)}).(*Hold)
	if h == nil || h.Err() != nil {
		return nil
	}
	return h.g.c
}

// share makes another Hold of the claim, for wants that a Space with the prefix has. Its token
// is that of the names it is for: of others that are held beside, another may be older.
func (c *holdState) share(wants []driver.Want, prefix string) (*Hold, error) {
	g := &holdRef{c: c, prefix: prefix}
	for _, w := range wants {
		i := c.index(c.r.canonical(w.Name))
		if err := fits(w, &c.wants[i]); err != nil {
			return nil, err
		}
		g.token = max(g.token, c.token(i))
	}
	if err := c.link(g); err != nil {
		return nil, err
	}
	h := &Hold{g: g}
	watchOver(h)
	return h, nil
}

// link adds a Hold that joins, unless the claim is over or about to be another one.
func (c *holdState) link(g *holdRef) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over != nil || c.count == 0:
		return unsent(c.why(c.over))
	case c.changing > 0:
		return driver.Errorf("", "", ErrConflict, "this context's hold is being changed; join what it becomes")
	}
	c.count++
	g.next, g.prev, c.first.next = c.first.next, &c.first, g
	if g.next != nil {
		g.next.prev = g
	}
	return nil
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

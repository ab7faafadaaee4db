package crdt

import "math"

// PNCounter counts up and down. The zero value counts 0.
type PNCounter struct{ up, down GCounter }

// Add counts n, which may be negative, for the actor and returns the delta for the
// others.
func (c *PNCounter) Add(a Actor, n int64) PNCounter {
	if n < 0 {
		return PNCounter{down: c.down.Add(a, uint64(-(n+1))+1)}
	}
	return PNCounter{up: c.up.Add(a, uint64(n))}
}

// Value is the difference, held within the range of an int64.
func (c *PNCounter) Value() int64 {
	up, down := c.up.Value(), c.down.Value()
	if up >= down {
		return int64(min(up-down, math.MaxInt64))
	}
	if down-up > math.MaxInt64 {
		return math.MinInt64
	}
	return -int64(down - up)
}

// Merge joins what another node knows and reports whether anything was new.
func (c *PNCounter) Merge(o PNCounter) (changed bool) {
	up, down := c.up.Merge(o.up), c.down.Merge(o.down)
	return up || down
}

// Folded is [GCounter.Folded].
func (c *PNCounter) Folded(a Actor) bool { return c.up.Folded(a) || c.down.Folded(a) }

// Fold is [GCounter.Fold] for both directions.
func (c *PNCounter) Fold(actors ...Actor) PNCounter {
	return PNCounter{up: c.up.Fold(actors...), down: c.down.Fold(actors...)}
}

// State is the whole counter as a delta.
func (c *PNCounter) State() PNCounter { return PNCounter{up: c.up.State(), down: c.down.State()} }

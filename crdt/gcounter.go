package crdt

import (
	"cmp"
	"math"
	"slices"
)

// GCounter counts up. The zero value counts 0.
type GCounter struct {
	slots []slot // by actor
	base  base
}

// slot is what one actor has counted.
type slot struct {
	actor Actor
	n     uint64
}

// base is what retired actors have counted, as one node has folded it.
type base struct {
	version uint64
	sum     uint64
	below   []slot // by node: incarnations below n are in the sum
}

// Add counts n for the actor and returns the delta for the others. An actor's count
// stays at 2⁶⁴-1 when it gets there. An actor that was folded must not add any more.
func (c *GCounter) Add(a Actor, n uint64) GCounter {
	i, ok := c.find(a)
	if !ok {
		c.slots = slices.Insert(c.slots, i, slot{actor: a})
	}
	c.slots[i].n = addCapped(c.slots[i].n, n)
	return GCounter{slots: []slot{c.slots[i]}}
}

func (c *GCounter) find(a Actor) (int, bool) {
	return slices.BinarySearchFunc(c.slots, a, func(s slot, a Actor) int { return s.actor.Compare(a) })
}

// Folded reports that the actor has been retired by [GCounter.Fold]: what it adds
// counts nowhere, so it has to go on as its next incarnation.
func (c *GCounter) Folded(a Actor) bool { return c.folded(slot{actor: a}) }

// Of is what the actor has counted, as far as it is known here and not folded.
func (c *GCounter) Of(a Actor) uint64 {
	if i, ok := c.find(a); ok {
		return c.slots[i].n
	}
	return 0
}

// Value is the sum over all actors, at most 2⁶⁴-1.
func (c *GCounter) Value() uint64 {
	sum := c.base.sum
	for i := range c.slots {
		sum = addCapped(sum, c.slots[i].n)
	}
	return sum
}

// Actors are the actors that are counted one by one, in order.
func (c *GCounter) Actors() []Actor {
	list := make([]Actor, len(c.slots))
	for i := range c.slots {
		list[i] = c.slots[i].actor
	}
	return list
}

// Merge joins what another node knows and reports whether anything was new.
func (c *GCounter) Merge(o GCounter) (changed bool) {
	if o.base.after(&c.base) {
		c.base, changed = o.base.clone(), true
		c.slots = slices.DeleteFunc(c.slots, c.folded)
	}
	for _, s := range o.slots {
		if !c.folded(s) && c.raise(s) {
			changed = true
		}
	}
	return changed
}

// raise takes the greater of two reports of one actor.
func (c *GCounter) raise(s slot) bool {
	i, ok := c.find(s.actor)
	if !ok {
		c.slots = slices.Insert(c.slots, i, s)
		return true
	}
	if c.slots[i].n >= s.n {
		return false
	}
	c.slots[i].n = s.n
	return true
}

// folded reports that the slot is in the base already.
func (c *GCounter) folded(s slot) bool {
	i, ok := c.base.find(s.actor.Node)
	return ok && s.actor.Incarnation < c.base.below[i].n
}

func (b *base) find(node string) (int, bool) {
	return slices.BinarySearchFunc(b.below, node, func(s slot, node string) int { return cmp.Compare(s.actor.Node, node) })
}

func (b *base) clone() base {
	c := *b
	c.below = slices.Clone(b.below)
	return c
}

// after reports that b is the later base. Two of one version come from a mistake of
// two folding nodes; then their content decides, the same everywhere.
func (b *base) after(o *base) bool {
	if b.version != o.version {
		return b.version > o.version
	}
	if b.sum != o.sum {
		return b.sum > o.sum
	}
	return slices.CompareFunc(b.below, o.below, compareSlots) > 0
}

func compareSlots(a, b slot) int {
	if c := a.actor.Compare(b.actor); c != 0 {
		return c
	}
	return cmp.Compare(a.n, b.n)
}

// Fold takes the given actors, and every earlier incarnation of their nodes, into
// one sum, so that actors of the past cost nothing. It returns the delta for the
// others.
//
// Only one node may fold at a time: an elected or a named one. What a folded actor
// has counted beyond what is known here is lost, so fold what has ended and has been
// exchanged: an incarnation with a successor that has published, or one with a lease
// that ended longer ago than the slowest exchange.
func (c *GCounter) Fold(actors ...Actor) GCounter {
	next := c.base.clone()
	for _, a := range actors {
		if a.Incarnation == math.MaxUint64 {
			continue // no incarnation is above it
		}
		i, ok := next.find(a.Node)
		if !ok {
			next.below = slices.Insert(next.below, i, slot{actor: Actor{Node: a.Node}})
		}
		next.below[i].n = max(next.below[i].n, a.Incarnation+1)
	}
	before := c.base
	c.base = next
	c.slots = slices.DeleteFunc(c.slots, func(s slot) bool {
		if !c.folded(s) {
			return false
		}
		c.base.sum = addCapped(c.base.sum, s.n)
		return true
	})
	c.base.version = before.version + 1
	return GCounter{base: c.base.clone()}
}

// Part is the counter of the actors that keep reports true for, and of all that were
// folded, as a delta.
func (c *GCounter) Part(keep func(Actor) bool) GCounter {
	part := GCounter{base: c.base.clone()}
	for _, s := range c.slots {
		if keep(s.actor) {
			part.slots = append(part.slots, s)
		}
	}
	return part
}

// clone shares nothing with c.
func (c *GCounter) clone() GCounter {
	return GCounter{slots: slices.Clone(c.slots), base: c.base.clone()}
}

// State is the whole counter as a delta: for a node that begins, or has missed some.
func (c *GCounter) State() GCounter { return c.clone() }

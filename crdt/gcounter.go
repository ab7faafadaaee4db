package crdt

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// GCounter counts up. The zero value counts 0.
type GCounter struct {
	slots []slot // by actor
	folds []fold // by node
}

// slot is what one actor has counted.
type slot struct {
	actor Actor
	n     uint64
}

// fold is what the incarnations of a node below one have counted together.
type fold struct {
	node       string
	below, sum uint64
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

// Folded reports that the actor has been retired by [GCounter.Fold]: what it adds counts at no other
// node that knows the fold, and here until the next one comes, so it has to go on as its next incarnation.
func (c *GCounter) Folded(a Actor) bool { return c.folded(slot{actor: a}) }

// Of is what the actor has counted, as far as it is known here and not folded.
func (c *GCounter) Of(a Actor) uint64 {
	if i, ok := c.find(a); ok {
		return c.slots[i].n
	}
	return 0
}

// Value is the sum over all actors, at most 2⁶⁴-1.
func (c *GCounter) Value() (sum uint64) {
	for i := range c.folds {
		sum = addCapped(sum, c.folds[i].sum)
	}
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

// Merge joins what another node knows and reports whether anything was new. It takes about as
// long as both are large, whatever is new of it.
func (c *GCounter) Merge(o GCounter) (changed bool) {
	changed = c.raiseFolds(o.folds)
	return c.raiseSlots(o.slots) || changed
}

// raiseSlots takes the greater of two reports of each actor. Those that are new are put in their
// places together: one by one each would move all behind it.
func (c *GCounter) raiseSlots(slots []slot) (changed bool) {
	var fresh []slot
	next := 0 // both are in order: the next of one is mostly the next of the other
	for _, s := range slots {
		if c.folded(s) {
			continue
		}
		next = c.place(s.actor, next)
		if next == len(c.slots) || c.slots[next].actor != s.actor {
			fresh = append(fresh, s)
			continue
		}
		changed = c.slots[next].raise(s.n) || changed
		next++
	}
	if len(fresh) == 0 {
		return changed
	}
	c.slots = append(c.slots, fresh...)
	slices.SortFunc(c.slots, func(a, b slot) int { return a.actor.Compare(b.actor) })
	return true
}

// place is where an actor is, or is to be; it is looked for first where it is guessed.
func (c *GCounter) place(a Actor, guess int) int {
	if guess < len(c.slots) && c.slots[guess].actor == a {
		return guess
	}
	i, _ := c.find(a)
	return i
}

// raise takes the greater of two reports of the actor.
func (s *slot) raise(n uint64) bool {
	if s.n >= n {
		return false
	}
	s.n = n
	return true
}

// folded reports that the slot is in a fold already.
func (c *GCounter) folded(s slot) bool {
	i, ok := c.findFold(s.actor.Node)
	return ok && s.actor.Incarnation < c.folds[i].below
}

func (c *GCounter) findFold(node string) (int, bool) {
	return slices.BinarySearchFunc(c.folds, node, func(f fold, node string) int { return cmp.Compare(f.node, node) })
}

// after reports that f stands above another fold of its node: it has more incarnations,
// or of the same ones more counts.
func (f *fold) after(o *fold) bool {
	return cmp.Or(cmp.Compare(f.below, o.below), cmp.Compare(f.sum, o.sum)) > 0
}

// raiseFolds takes the later of two folds of each node.
func (c *GCounter) raiseFolds(folds []fold) (changed bool) {
	var fresh []fold
	for _, f := range folds {
		switch i, ok := c.findFold(f.node); {
		case !ok:
			fresh = append(fresh, f)
		case f.after(&c.folds[i]):
			c.folds[i], changed = f, true
		}
	}
	if len(fresh) == 0 && !changed {
		return false
	}
	c.folds = append(c.folds, fresh...)
	slices.SortFunc(c.folds, func(a, b fold) int { return cmp.Compare(a.node, b.node) })
	c.slots = slices.DeleteFunc(c.slots, c.folded)
	return true
}

// Fold takes the given actors, and every earlier incarnation of their nodes, into one sum
// a node, so that incarnations of the past cost nothing. It returns the delta for the
// others.
//
// Of two folds of a node that of more incarnations stands, so what a folded actor has
// counted beyond what is known where it was folded is lost: fold what has ended and has
// been exchanged. A node that folds earlier incarnations of itself is the only one that
// does.
func (c *GCounter) Fold(actors ...Actor) GCounter {
	var folds []fold
	for _, a := range actors {
		if a.Incarnation != math.MaxUint64 { // no incarnation is above it
			folds = append(folds, c.foldOf(a))
		}
	}
	slices.SortFunc(folds, func(a, b fold) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(b.below, a.below)) })
	folds = slices.CompactFunc(folds, func(a, b fold) bool { return a.node == b.node })
	c.raiseFolds(folds)
	return GCounter{folds: folds}
}

// foldOf is the fold of the actor's node up to it, with what was folded before.
func (c *GCounter) foldOf(a Actor) fold {
	f := fold{node: a.Node, below: a.Incarnation + 1}
	if i, ok := c.findFold(a.Node); ok {
		f.below, f.sum = max(f.below, c.folds[i].below), c.folds[i].sum
	}
	from, _ := c.find(Actor{Node: a.Node})
	for _, s := range c.slots[from:] {
		if s.actor.Node != f.node || s.actor.Incarnation >= f.below {
			break
		}
		f.sum = addCapped(f.sum, s.n)
	}
	return f
}

// ByNode is what folded incarnations have counted, by node.
func (c *GCounter) ByNode() map[string]uint64 {
	sums := make(map[string]uint64, len(c.folds))
	for _, f := range c.folds {
		sums[f.node] = f.sum
	}
	return sums
}

// Part is the counter of the actors that keep reports true for, and of all that were
// folded, as a delta.
func (c *GCounter) Part(keep func(Actor) bool) GCounter {
	part := GCounter{folds: slices.Clone(c.folds)}
	for _, s := range c.slots {
		if keep(s.actor) {
			part.slots = append(part.slots, s)
		}
	}
	return part
}

// Split cuts the counter into parts that together are all of it, as deltas of at most size
// bytes each when they are encoded, or of one actor. There is at least one.
func (c *GCounter) Split(size int) []GCounter {
	var parts []GCounter
	var part GCounter
	used := 0
	next := func(more int) {
		if more += 3 * binary.MaxVarintLen64; used > 0 && used+more > size {
			parts, part, used = append(parts, part), GCounter{}, 0
		}
		if used == 0 {
			used = emptySize
		}
		used += more
	}
	for _, f := range c.folds {
		next(len(f.node))
		part.folds = append(part.folds, f)
	}
	for _, s := range c.slots {
		next(len(s.actor.Node))
		part.slots = append(part.slots, s)
	}
	return append(parts, part)
}

// emptySize bounds the encoding of a counter without actors.
const emptySize = 2 + 2*binary.MaxVarintLen64 + 4

// clone shares nothing with c.
func (c *GCounter) clone() GCounter {
	return GCounter{slots: slices.Clone(c.slots), folds: slices.Clone(c.folds)}
}

// State is the whole counter as a delta: for a node that begins, or has missed some.
func (c *GCounter) State() GCounter { return c.clone() }

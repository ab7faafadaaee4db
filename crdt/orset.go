package crdt

import (
	"maps"
	"slices"
)

// ORSet is a set from which elements can be removed. A removal takes what its node
// has seen; an addition that it has not seen wins. A delta of a removal takes the additions that
// counted at its node; one that a later addition had replaced goes by the delta of that, so that
// a node which has missed it may have the element until it hears of it. It keeps no trace of removed
// elements but the numbers of additions and removals, which pack into one number an actor.
// The zero value is empty.
type ORSet struct {
	dots    map[dot]string              // the additions that count
	of      map[string]map[dot]struct{} // by element
	context context                     // every addition and removal that was heard of
}

// dot is one addition or removal: the n-th of its actor.
type dot struct {
	actor Actor
	n     uint64
}

const (
	// maxNumber is the greatest number of a dot that is read: no actor adds and removes so often.
	maxNumber = 1 << 48
	// maxJump is how far ahead of what is known of an actor a number is believed. One that is forged may
	// not lead the actor to the end of its numbers, nor make all that it will add look like removed.
	maxJump = 1 << 32
)

func compareDots(a, b dot) int {
	if c := a.actor.Compare(b.actor); c != 0 {
		return c
	}
	switch {
	case a.n < b.n:
		return -1
	case a.n > b.n:
		return 1
	}
	return 0
}

// context is a set of dots: all up to a number, for each actor, and a cloud of those
// that came out of order.
type context struct {
	upTo  map[Actor]uint64
	cloud map[dot]struct{}
}

func (c *context) has(d dot) bool {
	if d.n <= c.upTo[d.actor] {
		return true
	}
	_, ok := c.cloud[d]
	return ok
}

// add notes a dot and packs the cloud where it has become a run.
func (c *context) add(d dot) (fresh bool) {
	if c.has(d) {
		return false
	}
	if c.upTo == nil {
		c.upTo, c.cloud = map[Actor]uint64{}, map[dot]struct{}{}
	}
	c.cloud[d] = struct{}{}
	c.pack(d.actor)
	return true
}

func (c *context) pack(a Actor) {
	for next := (dot{a, c.upTo[a] + 1}); ; next.n++ {
		if _, ok := c.cloud[next]; !ok {
			return
		}
		delete(c.cloud, next)
		c.upTo[a] = next.n
	}
}

// raise notes all dots of an actor up to n.
func (c *context) raise(a Actor, n uint64) (fresh bool) {
	if c.upTo[a] >= n {
		return false
	}
	if c.upTo == nil {
		c.upTo, c.cloud = map[Actor]uint64{}, map[dot]struct{}{}
	}
	c.upTo[a] = n
	for d := range c.cloud {
		if d.actor == a && d.n <= n {
			delete(c.cloud, d)
		}
	}
	c.pack(a)
	return true
}

// Add adds e for the actor and returns the delta for the others.
func (s *ORSet) Add(a Actor, e string) ORSet {
	var d ORSet
	for old := range s.of[e] { // one addition that has seen the others stands for all
		d.context.add(old)
		s.drop(old)
	}
	one := dot{a, s.next(a)}
	s.put(one, e)
	d.put(one, e)
	return d
}

// next is the number of the actor's next addition: behind all that were heard of, but those that are too far ahead
// of the others.
func (s *ORSet) next(a Actor) uint64 {
	var ahead []uint64
	for d := range s.context.cloud { // its own are in order; this is for a set that was read back in pieces
		if d.actor == a {
			ahead = append(ahead, d.n)
		}
	}
	slices.Sort(ahead)
	n := s.context.upTo[a]
	for _, m := range ahead {
		if m-n > maxJump {
			break
		}
		n = m
	}
	return n + 1
}

// Remove removes e for the actor, as far as its additions are known here, and returns the
// delta for the others. It has a number as an addition has, by which a version tells it.
func (s *ORSet) Remove(a Actor, e string) ORSet {
	var d ORSet
	if !s.Has(e) {
		return d
	}
	for old := range s.of[e] {
		d.context.add(old)
		s.drop(old)
	}
	one := dot{a, s.next(a)}
	s.context.add(one)
	d.context.add(one)
	return d
}

// put notes an addition.
func (s *ORSet) put(d dot, e string) {
	if s.dots == nil {
		s.dots, s.of = map[dot]string{}, map[string]map[dot]struct{}{}
	}
	if s.of[e] == nil {
		s.of[e] = map[dot]struct{}{}
	}
	s.dots[d] = e
	s.of[e][d] = struct{}{}
	s.context.add(d)
}

// drop takes an addition out; that it was heard of stays known.
func (s *ORSet) drop(d dot) {
	e, ok := s.dots[d]
	if !ok {
		return
	}
	delete(s.dots, d)
	if delete(s.of[e], d); len(s.of[e]) == 0 {
		delete(s.of, e)
	}
}

// Has reports that e is in the set.
func (s *ORSet) Has(e string) bool { return len(s.of[e]) > 0 }

// Len is how many elements there are.
func (s *ORSet) Len() int { return len(s.of) }

// Elements are the elements in order.
func (s *ORSet) Elements() []string { return slices.Sorted(maps.Keys(s.of)) }

// Merge joins what another node knows and reports whether anything was new. A delta
// costs what it carries, whatever the size of the set; a whole state costs both
// sizes.
func (s *ORSet) Merge(o ORSet) (changed bool) {
	for d := range o.context.cloud {
		changed = s.learn(d, &o) || changed
	}
	if len(o.context.upTo) > 0 {
		changed = s.learnAll(&o) || changed
	}
	return changed
}

// learn takes over one addition that the other has heard of: it is there, or it was
// removed.
func (s *ORSet) learn(d dot, o *ORSet) (changed bool) {
	e, there := o.dots[d]
	switch {
	case there && !s.context.has(d):
		s.put(d, e)
		return true
	case there:
		return false
	}
	_, mine := s.dots[d]
	s.drop(d)
	return s.context.add(d) || mine
}

// learnAll takes over what the other has heard of without gaps.
func (s *ORSet) learnAll(o *ORSet) (changed bool) {
	for d := range o.dots {
		if d.n <= o.context.upTo[d.actor] && s.believes(d.actor, o) {
			changed = s.learn(d, o) || changed
		}
	}
	for d := range s.dots {
		if _, there := o.dots[d]; !there && d.n <= o.context.upTo[d.actor] && s.believes(d.actor, o) {
			s.drop(d)
			changed = true
		}
	}
	for a, n := range o.context.upTo {
		if s.believes(a, o) {
			changed = s.context.raise(a, n) || changed
		}
	}
	return changed
}

// believes: what the other has heard of an actor is not absurd by what is known here. Of one that is not
// known here there is nothing to judge by.
func (s *ORSet) believes(a Actor, o *ORSet) bool {
	known := s.context.upTo[a]
	return known == 0 || o.context.upTo[a] <= known+maxJump
}

// State is the whole set as a delta.
func (s *ORSet) State() ORSet {
	var c ORSet
	c.Merge(*s)
	return c
}

package crdt

import (
	"iter"
	"maps"
	"math"
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

// maxNumber is the greatest number of a dot: no actor adds and removes so often. Greater ones are not read, so that
// none may be made. All below are taken over as they are, for a set that refused some by what it knows would
// not come to the same as the others.
const maxNumber = 1 << 48

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

// context is a set of dots: for each actor all up to a number, and a cloud of those
// that came out of order.
type context struct {
	upTo  map[Actor]uint64
	cloud map[Actor]map[uint64]struct{}
}

// early are the dots that came out of order.
func (c *context) early() iter.Seq[dot] {
	return func(yield func(dot) bool) {
		for a, numbers := range c.cloud {
			for n := range numbers {
				if !yield(dot{a, n}) {
					return
				}
			}
		}
	}
}

// numbers is how many dots came without gaps.
func (c *context) numbers() (sum uint64) {
	for _, n := range c.upTo {
		sum += min(n, math.MaxUint64-sum)
	}
	return sum
}

// packed are the dots that came without gaps.
func (c *context) packed() iter.Seq[dot] {
	return func(yield func(dot) bool) {
		for a, last := range c.upTo {
			for n := uint64(1); n <= last; n++ {
				if !yield(dot{a, n}) {
					return
				}
			}
		}
	}
}

func (c *context) has(d dot) bool {
	if d.n <= c.upTo[d.actor] {
		return true
	}
	_, ok := c.cloud[d.actor][d.n]
	return ok
}

// add notes a dot and packs the cloud where it has become a run.
func (c *context) add(d dot) (fresh bool) {
	if c.has(d) {
		return false
	}
	c.begin()
	if c.cloud[d.actor] == nil {
		c.cloud[d.actor] = map[uint64]struct{}{}
	}
	c.cloud[d.actor][d.n] = struct{}{}
	c.pack(d.actor)
	return true
}

func (c *context) begin() {
	if c.upTo == nil {
		c.upTo, c.cloud = map[Actor]uint64{}, map[Actor]map[uint64]struct{}{}
	}
}

func (c *context) pack(a Actor) {
	numbers := c.cloud[a]
	for next := c.upTo[a] + 1; ; next++ {
		if _, ok := numbers[next]; !ok {
			break
		}
		delete(numbers, next)
		c.upTo[a] = next
	}
	if len(numbers) == 0 {
		delete(c.cloud, a)
	}
}

// raise notes all dots of an actor up to n.
func (c *context) raise(a Actor, n uint64) (fresh bool) {
	if c.upTo[a] >= n {
		return false
	}
	c.begin()
	numbers := c.cloud[a]
	if n-c.upTo[a] < uint64(len(numbers)) {
		for next := c.upTo[a] + 1; next <= n; next++ {
			delete(numbers, next)
		}
	} else {
		maps.DeleteFunc(numbers, func(early uint64, _ struct{}) bool { return early <= n })
	}
	c.upTo[a] = n
	c.pack(a)
	return true
}

// Add adds e for the actor and returns the delta for the others. An actor has 2⁴⁸ numbers, which only
// a delta that is forged can use up: then nothing is added, the delta is empty, and the actor has to go on as its next
// incarnation.
func (s *ORSet) Add(a Actor, e string) ORSet {
	one, ok := s.next(a)
	if !ok {
		return ORSet{}
	}
	d := s.take(e) // one addition that has seen the others stands for all
	s.put(one, e)
	d.put(one, e)
	return d
}

// take drops the additions of e that are known here and returns the delta of that.
func (s *ORSet) take(e string) (d ORSet) {
	for old := range s.of[e] {
		d.context.add(old)
		s.drop(old)
	}
	return d
}

// next is the actor's next addition, behind all that were heard of, if there is a number left.
func (s *ORSet) next(a Actor) (_ dot, ok bool) {
	n := s.context.upTo[a]
	for early := range s.context.cloud[a] { // its own are in order; this is for a set that was read back in pieces
		n = max(n, early)
	}
	return dot{a, n + 1}, n < maxNumber
}

// Remove removes e for the actor, as far as its additions are known here, and returns the
// delta for the others. It has a number as an addition has, by which a version tells it; an actor that has
// no more numbers removes without.
func (s *ORSet) Remove(a Actor, e string) ORSet {
	if !s.Has(e) {
		return ORSet{}
	}
	d := s.take(e)
	if one, ok := s.next(a); ok {
		s.context.add(one)
		d.context.add(one)
	}
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
	for d := range o.context.early() {
		changed = s.learn(d, &o) || changed
	}
	if len(o.context.upTo) > 0 {
		changed = s.learnAll(&o) || changed
	}
	return changed
}

// learn takes over one addition that the other has heard of: it is there, or it was
// removed. Two elements under one number come from a mistake; even then all sets have the same.
func (s *ORSet) learn(d dot, o *ORSet) (changed bool) {
	e, there := o.dots[d]
	own, mine := s.dots[d]
	switch {
	case there && (!s.context.has(d) || mine && own < e):
		s.drop(d)
		s.put(d, e)
		return true
	case there:
		return false
	}
	s.drop(d)
	return s.context.add(d) || mine
}

// learnAll takes over what the other has heard of without gaps.
func (s *ORSet) learnAll(o *ORSet) (changed bool) {
	for d := range o.dots {
		if d.n <= o.context.upTo[d.actor] {
			changed = s.learn(d, o) || changed
		}
	}
	for d := range s.among(&o.context) {
		if _, there := o.dots[d]; !there {
			s.drop(d)
			changed = true
		}
	}
	for a, n := range o.context.upTo {
		changed = s.context.raise(a, n) || changed
	}
	return changed
}

// among are the additions here that c has heard of without gaps. It goes through the numbers of c or the
// additions here, whichever are fewer: a delta that begins with its actor's first number has few of
// them, and a state has one for each addition and removal that ever was.
func (s *ORSet) among(c *context) iter.Seq[dot] {
	return func(yield func(dot) bool) {
		for d := range s.candidates(c) {
			if _, mine := s.dots[d]; mine && d.n <= c.upTo[d.actor] && !yield(d) {
				return
			}
		}
	}
}

// candidates are what among looks at.
func (s *ORSet) candidates(c *context) iter.Seq[dot] {
	if c.numbers() <= uint64(len(s.dots)) {
		return c.packed()
	}
	return maps.Keys(s.dots)
}

// State is the whole set as a delta.
func (s *ORSet) State() ORSet {
	var c ORSet
	c.Merge(*s)
	return c
}

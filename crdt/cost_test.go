package crdt

import (
	"fmt"
	"testing"
)

// many is a set of so many elements of one actor, and one of another's.
func many(size int) (s ORSet) {
	for i := range size {
		s.Add(Actor{"many", 1}, fmt.Sprint(i))
	}
	s.Add(Actor{"one", 1}, "first")
	return s
}

// count is how much a sequence looks at.
func count(s *ORSet, o ORSet) (looks int) {
	for range s.candidates(&o.context) {
		looks++
	}
	return looks
}

// TestORSet_CostOfADelta: "A delta costs what it carries, whatever the size of the set", also one that begins with its
// actor's first number; "a whole state costs both sizes", not the numbers of all that was ever removed.
func TestORSet_CostOfADelta(t *testing.T) {
	s := many(1000)
	other := s.State()
	d := s.Remove(Actor{"remover", 1}, "first")
	if looks := count(&other, d); looks > 2 {
		t.Errorf("a removal of an actor's only addition looks at %d numbers", looks)
	}
	if !other.Merge(d) || other.Has("first") || other.Len() != 1000 || other.Merge(d) {
		t.Errorf("the removal leaves %d", other.Len())
	}
	for i := range 999 {
		s.Remove(Actor{"remover", 1}, fmt.Sprint(i))
	}
	if looks := count(&s, s.State()); looks > 1 {
		t.Errorf("a state of one element, of which 999 were removed, looks at %d", looks)
	}
	if !other.Merge(s.State()) || other.Len() != 1 {
		t.Errorf("the state leaves %d", other.Len())
	}
}

// TestContext_Raise: what came early is packed, whether more of it than is raised by or less.
func TestContext_Raise(t *testing.T) {
	a := Actor{"a", 1}
	for early := uint64(2); early < 20; early++ {
		for to := uint64(1); to < 25; to++ {
			var c context
			for n := uint64(3); n <= early; n++ {
				c.add(dot{a, n})
			}
			c.raise(a, to)
			want := to
			if to >= 2 {
				want = max(to, early)
			}
			if left := len(c.cloud[a]); c.upTo[a] != want || to >= 2 && left > 0 || to < 2 && left != int(early)-2 {
				t.Fatalf("3 to %d, raised to %d: up to %d with %d early ones", early, to, c.upTo[a], left)
			}
		}
	}
}

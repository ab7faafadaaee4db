package crdt

import (
	"cmp"
	"fmt"
)

// Actor is one writer: a node, by any text that names it alone, and how often it
// has begun without its old state.
type Actor struct {
	Node        string
	Incarnation uint64
}

// String is node#incarnation.
func (a Actor) String() string { return fmt.Sprintf("%s#%d", a.Node, a.Incarnation) }

// Compare orders actors by node, then by incarnation.
func (a Actor) Compare(b Actor) int {
	if c := cmp.Compare(a.Node, b.Node); c != 0 {
		return c
	}
	return cmp.Compare(a.Incarnation, b.Incarnation)
}

// addCapped is a sum that stays at the greatest number instead of beginning anew.
func addCapped(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return 1<<64 - 1
}

package edge

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/edge/edgetest"
)

// TestForgedNumbers: where a forged message has left a node one number for its additions, the second one is refused; all
// that it tells is understood, and after it has begun anew it adds again.
func TestForgedNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := edgetest.NewHub(edgetest.Faults{})
		a := open(t, Config{Actor: "a", Link: hub.Link("a")})
		b := open(t, Config{Actor: "b", Link: hub.Link("b")})
		pass(time.Second)
		a.values.merge(a, &valueSection{kind: sectionSet, name: "s", set: allUpTo(t, a.Actor(), 1<<48-1)}, nil)
		last, none := setOf(t, a).Add("last"), setOf(t, a).Add("none")
		if last != nil || !errors.Is(none, ErrFull) || setOf(t, a).Has("none") {
			t.Fatalf("the last addition: %v; one more: %v", last, none)
		}
		add(t, a, "x", 1)
		pass(time.Second)
		if got := setOf(t, b).Elements(); !slices.Equal(got, []string{"last"}) || b.Count("x") != 1 || b.Stats().Garbage != 0 {
			t.Fatalf("the other has %q and counts %d: %+v", got, b.Count("x"), b.Stats())
		}
		a.Close()
		again := open(t, Config{Actor: "a", Link: hub.Link("a")})
		pass(time.Second)
		if err := setOf(t, again).Add("again"); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if !setOf(t, b).Has("again") {
			t.Error("what it added when it had begun anew is not there")
		}
	})
}

// allUpTo is a set that claims to have heard of all changes of an actor up to n.
func allUpTo(t *testing.T, a crdt.Actor, n uint64) (s crdt.ORSet) {
	b := append([]byte{4, 1, 1, byte(len(a.Node))}, a.Node...)
	b = binary.AppendUvarint(binary.AppendUvarint(b, a.Incarnation), n)
	if err := s.Decode(seal(append(b, 0, 0))); err != nil {
		t.Fatal(err)
	}
	return s
}

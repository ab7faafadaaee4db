package edge

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/edge/edgetest"
)

// slow is a node for tests of days.
func slow(t *testing.T, s *store, name string) *Node {
	return open(t, Config{Actor: name, Link: s.link(name), Flush: 10 * time.Minute, State: time.Hour})
}

// TestRestartsAreFolded: a node that was restarted many times costs what one costs that
// was not, a day later; its counts stay, everywhere, also with old messages still kept.
func TestRestartsAreFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(edgetest.Faults{Loss: 20, Repeat: 20}, 20)
		b := slow(t, s, "b")
		a := slow(t, s, "a")
		told := uint64(0)
		for i := range uint64(50) {
			add(t, a, "x", i+1)
			add(t, b, "x", 1)
			told += i + 2
			pass(6 * time.Hour) // so that the others know all that was counted, whichever messages are lost
			a.Close()
			a = slow(t, s, "a")
		}
		late := slow(t, s, "late")
		pass(48 * time.Hour) // of the states after a day a third is lost on their way
		for _, n := range []*Node{a, b, late} {
			x, err := n.Counter("x")
			if err != nil {
				t.Fatal(err)
			}
			if x.Value() != told || len(x.ByActor()) != 2 || x.ByActor()[crdt.Actor{Node: "a"}] != told-50 {
				t.Errorf("%s has %d, not %d: %v", n.Actor(), x.Value(), told, x.ByActor())
			}
		}
		add(t, a, "x", 1)
		pass(24 * time.Hour)
		if late.Count("x") != told+1 || b.Count("x") != told+1 {
			t.Errorf("one more: %d and %d, not %d", b.Count("x"), late.Count("x"), told+1)
		}
	})
}

// TestFoldedWhileItRuns: a node that was cut off for a day while another of its name ran
// counts nothing twice when it is back, agrees with the others, and reports the conflict.
func TestFoldedWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(edgetest.Faults{}, 0)
		first := slow(t, s, "a")
		link := first.keeper.(*keeper)
		add(t, first, "x", 5)
		pass(3 * time.Hour)
		link.name = "cut off"
		s.harm("cut off")
		second := slow(t, s, "a")
		add(t, second, "x", 2)
		pass(30 * time.Hour)
		add(t, first, "x", 1) // nobody knows which of its counts are new
		link.mend()
		pass(6 * time.Hour)
		if first.Count("x") != 7 || second.Count("x") != 7 || first.Stats().Conflicts == 0 {
			t.Errorf("%d and %d, not 7; %+v", first.Count("x"), second.Count("x"), first.Stats())
		}
		if g := second.Stats().Garbage + first.Stats().Garbage; g > 0 {
			t.Errorf("%d messages were garbage", g)
		}
	})
}

// TestAwait_Folded: a version of a node that has folded since is reached where that was heard of, although
// no value changes by it.
func TestAwait_Folded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(edgetest.Faults{}, 0)
		b, a := slow(t, s, "b"), slow(t, s, "a")
		add(t, a, "x", 5)
		pass(3 * time.Hour)
		a.Close()
		a = slow(t, s, "a")
		here, _ := a.Counter("x")
		there, _ := b.Counter("x")
		folded := func(c *Counter) bool { return c.ByActor()[crdt.Actor{Node: "a"}] == 5 }
		for start := time.Now(); !folded(here); pass(10 * time.Minute) {
			if time.Since(start) > 48*time.Hour {
				t.Fatal("it folds nothing")
			}
		}
		if folded(there) {
			t.Fatal("the other knows already")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Hour)
		defer cancel()
		if err := there.Await(ctx, here.Version()); err != nil || !folded(there) {
			t.Errorf("%v, and the other knows it: %t", err, folded(there))
		}
	})
}

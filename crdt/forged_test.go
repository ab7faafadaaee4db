package crdt

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// tell has one set hear the whole of another as it travels.
func tell(t *testing.T, from, to *ORSet) {
	t.Helper()
	var heard ORSet
	if err := heard.Decode(from.Append(nil)); err != nil {
		t.Fatal(err)
	}
	to.Merge(heard)
}

// forgeries are deltas that an actor never made, with a number of it.
func forgeries(d dot) map[string]ORSet {
	state := ORSet{context: context{upTo: map[Actor]uint64{d.actor: d.n}}}
	full := state.State()
	full.put(d, "forged")
	return map[string]ORSet{"removal": {context: context{cloud: map[Actor]map[uint64]struct{}{d.actor: {d.n: {}}}}}, "state": state, "full state": full, "addition": addition(d)}
}

func addition(d dot) (s ORSet) {
	s.put(d, "forged")
	return s
}

// A forged number leads to the same in all sets, whichever of them hear of it, in whatever order, and whatever they know of
// the actor: also it itself, before it has added anything, and one that begins. All of them go on to read
// what the others tell, and what the actor adds later is in all, as long as it has numbers.
func TestORSet_ForgedNumbers(t *testing.T) {
	a := Actor{"a", 1}
	for _, n := range []uint64{1, 2, 4, 6, 1 << 20, 1<<32 + 4, 1 << 40, maxNumber - 1, maxNumber} {
		for what, forged := range forgeries(dot{a, n}) {
			for seed := range uint64(40) {
				sets := forgedHistory(t, forged, rand.New(rand.NewPCG(seed, n)))
				last := sets[0].Add(a, "last")
				exchange(t, sets)
				for i := range sets {
					if !bytes.Equal(sets[i].Append(nil), sets[0].Append(nil)) {
						t.Fatalf("%s of %d, seed %d: set %d has %q, set 0 %q", what, n, seed, i, sets[i].Elements(), sets[0].Elements())
					}
				}
				if fine := n < maxNumber-1; sets[2].Has("last") != last.Has("last") || fine && !last.Has("last") {
					t.Fatalf("%s of %d, seed %d: what was added last is there %v", what, n, seed, sets[2].Has("last"))
				}
			}
		}
	}
}

// forgedHistory is of three sets, of which the first adds and removes, and some hear of a forged delta at some time.
func forgedHistory(t *testing.T, forged ORSet, rng *rand.Rand) []*ORSet {
	sets := []*ORSet{{}, {}, {}}
	at := []int{rng.IntN(8), rng.IntN(8), rng.IntN(8)}
	at[rng.IntN(3)] = 0
	for step := range 6 { // at 6 and 7 it is never heard of directly
		for i, s := range sets {
			if at[i] == step {
				s.Merge(forged)
			}
		}
		d := sets[0].Add(Actor{"a", 1}, fmt.Sprint(step))
		if step == 4 {
			d.Merge(sets[0].Remove(Actor{"a", 1}, "3"))
		}
		if rng.IntN(2) == 0 {
			tell(t, &d, sets[1])
		}
		tell(t, sets[rng.IntN(3)], sets[rng.IntN(3)])
	}
	exchange(t, sets)
	return sets
}

// exchange has each hear of all.
func exchange(t *testing.T, sets []*ORSet) {
	for range 2 {
		for i := range sets {
			tell(t, sets[i], sets[(i+1)%len(sets)])
		}
	}
}

// An actor without numbers adds nothing and says so; what it removes is gone everywhere.
func TestORSet_NoNumbersLeft(t *testing.T) {
	a := Actor{"a", 1}
	for what, forged := range forgeries(dot{a, maxNumber}) {
		var one, two ORSet
		two.Add(Actor{"b", 1}, "b")
		one.Merge(forged)
		tell(t, &two, &one)
		was := one.Append(nil)
		if d := one.Add(a, "b"); d.Has("b") || !bytes.Equal(one.Append(nil), was) || len(d.context.cloud)+len(d.context.upTo) > 0 {
			t.Errorf("%s: an addition without a number changed the set", what)
		}
		if d := one.Remove(a, "b"); one.Has("b") || !two.Has("b") || !two.Merge(d) || two.Has("b") {
			t.Errorf("%s: the removed element is there %v and %v", what, one.Has("b"), two.Has("b"))
		}
	}
}

// A number beyond what anybody counts to is no encoding.
func TestORSet_AbsurdNumbers(t *testing.T) {
	a := Actor{"a", 1}
	for n, fine := range map[uint64]bool{1: true, maxNumber: true, maxNumber + 1: false, math.MaxUint64: false} {
		for _, s := range []ORSet{{context: context{upTo: map[Actor]uint64{a: n}}}, addition(dot{a, n})} {
			var got ORSet
			if err := got.Decode(s.Append(nil)); (err == nil) != fine || err != nil && !errors.Is(err, ErrDecode) {
				t.Errorf("%d: %v", n, err)
			}
		}
	}
}

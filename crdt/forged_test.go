package crdt

import (
	"errors"
	"fmt"
	"math"
	"testing"
)

// A forged delta with a number that an actor never had does not keep what the actor adds later from the others.
func TestORSet_ForgedNumbers(t *testing.T) {
	a, b := Actor{"a", 1}, Actor{"b", 1}
	for _, n := range []uint64{4, 1 << 20, 1<<32 + 4, 1 << 40, maxNumber, math.MaxUint64} {
		for what, forged := range map[string]ORSet{
			"removal": {context: context{cloud: map[dot]struct{}{{a, n}: {}}}},
			"state":   {context: context{upTo: map[Actor]uint64{a: n}}},
			"add":     addition(dot{a, n}),
		} {
			var one, two ORSet
			for i := range 3 {
				two.Merge(one.Add(a, fmt.Sprint(i)))
			}
			two.Add(b, "b")
			one.Merge(forged)
			two.Merge(forged)
			for i := range 3 {
				two.Merge(one.Add(a, fmt.Sprint("later ", i)))
				one.Merge(two.State())
				two.Merge(one.State())
			}
			for i := range 3 {
				if e := fmt.Sprint("later ", i); !one.Has(e) || !two.Has(e) {
					t.Errorf("%s of %d: %q is there %v and %v", what, n, e, one.Has(e), two.Has(e))
				}
			}
		}
	}
}

func addition(d dot) (s ORSet) {
	s.put(d, "forged")
	return s
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

package crdt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/crdt"
)

// "It keeps no trace of removed elements but the numbers of their additions, which pack
// into one number an actor", however many there were and in whatever order they came.
func TestORSetPacks(t *testing.T) {
	var own, other crdt.ORSet
	var deltas []crdt.ORSet
	for i := range 5000 {
		e := fmt.Sprint(i)
		deltas = append(deltas, own.Add(actor(1), e), own.Remove(actor(1), e))
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	rnd.Shuffle(len(deltas), func(i, j int) { deltas[i], deltas[j] = deltas[j], deltas[i] })
	for _, d := range deltas {
		other.Merge(d)
	}
	if a, b := own.Append(nil), other.Append(nil); len(a) > 40 || !bytes.Equal(a, b) {
		t.Errorf("%d and %d bytes are left of 5000 removed elements", len(a), len(b))
	}
}

// "A delta of a removal takes the additions that counted at its node; one that a later addition had replaced goes by the
// delta of that", whichever of the two comes first.
func TestRemovalOfWhatWasReplaced(t *testing.T) {
	for _, late := range []bool{false, true} {
		var a, b crdt.ORSet
		b.Merge(a.Add(actor(1), "x"))
		again, removal := b.Add(actor(2), "x"), b.Remove(actor(2), "x")
		deltas := []crdt.ORSet{again, removal}
		if late {
			deltas = []crdt.ORSet{removal, again}
		}
		a.Merge(deltas[0])
		if !a.Has("x") {
			t.Errorf("late %t: with one of the deltas it is gone", late)
		}
		if a.Merge(deltas[1]); a.Has("x") || !bytes.Equal(a.Append(nil), b.Append(nil)) {
			t.Errorf("late %t: with both it is there", late)
		}
	}
}

// Two values under one stamp come from a mistake; even then all nodes have the same.
func TestOneStamp(t *testing.T) {
	stamp := crdt.Stamp{At: 7, Actor: actor(1)}
	var a, b crdt.Register
	a.Set([]byte("x"), stamp)
	b.Set([]byte("y"), stamp)
	var m, n crdt.Map
	m.Set("k", []byte("x"), stamp)
	n.Delete("k", stamp)
	was, wasMap := a.State(), m.State()
	a.Merge(b)
	b.Merge(was)
	m.Merge(n)
	n.Merge(wasMap)
	if !bytes.Equal(a.Append(nil), b.Append(nil)) || !bytes.Equal(m.Append(nil), n.Append(nil)) {
		t.Errorf("%v and %v, %v and %v", a, b, m, n)
	}
}

// Register.Set: "A stamp that is earlier than the last write changes nothing, nor does the zero Stamp".
func TestSet_NotLater(t *testing.T) {
	var r crdt.Register
	var m crdt.Map
	for i, s := range []crdt.Stamp{{}, {At: 7, Actor: actor(1)}, {At: 6, Actor: actor(2)}, {}} {
		value := []byte{byte(i)}
		delta, deltaMap := r.Set(value, s), m.Set("k", value, s)
		got, at := r.Value()
		inMap, there := m.Get("k")
		if want := []byte{1}; i == 0 && (got != nil || at != (crdt.Stamp{}) || there) || i > 0 && (!bytes.Equal(got, want) || !bytes.Equal(inMap, want)) {
			t.Errorf("after %v the register has %v of %v, the map %v", s, got, at, inMap)
		}
		var o crdt.Register
		var n crdt.Map
		if never := s == (crdt.Stamp{}); o.Merge(delta) == never || n.Merge(deltaMap) == never {
			t.Errorf("after %v others hear %v and %v", s, delta, deltaMap)
		}
	}
}

// GCounter.Folded: "what it adds counts at no other node that knows the fold, and here until the next one comes".
func TestFolded_Adds(t *testing.T) {
	var a crdt.GCounter
	a.Add(actor(1), 5)
	a.Fold(actor(1))
	b := a.State()
	b.Merge(a.Add(actor(1), 3))
	before := a.Value()
	a.Add(actor(2), 1)
	if a.Fold(actor(2)); before != 8 || b.Value() != 5 || a.Value() != 6 || !a.Folded(actor(1)) {
		t.Errorf("it counts %d, then %d, and another %d", before, a.Value(), b.Value())
	}
}

// Two nodes that fold at the same time lose nothing: each its own incarnations, or both
// the same ones with different knowledge of them.
func TestTwoFolders(t *testing.T) {
	var a crdt.GCounter
	a.Add(actor(1), 5)
	a.Add(actor(2), 5)
	b := a.State()
	a.Fold(actor(1))
	b.Fold(actor(2))
	was := a.State()
	a.Merge(b)
	b.Merge(was)
	if a.Value() != 10 || b.Value() != 10 || !bytes.Equal(a.Append(nil), b.Append(nil)) {
		t.Errorf("%+v counts %d, %+v counts %d", a, a.Value(), b, b.Value())
	}
	var less, more crdt.GCounter
	less.Add(actor(1), 3)
	more.Add(actor(1), 7)
	less.Fold(actor(1))
	more.Fold(actor(1))
	was = less.State()
	less.Merge(more)
	more.Merge(was)
	if less.Value() != 7 || more.Value() != 7 || !bytes.Equal(less.Append(nil), more.Append(nil)) {
		t.Errorf("%d and %d, not 7", less.Value(), more.Value())
	}
}

// A deletion that is not older than the time of a Prune stays: a late write from before
// it does not bring the key back.
func TestPrune_KeepsYoungDeletions(t *testing.T) {
	var m crdt.Map
	m.Delete("k", crdt.Stamp{At: 9})
	m.Prune(9)
	m.Set("k", []byte("late"), crdt.Stamp{At: 8})
	if v, ok := m.Get("k"); ok {
		t.Errorf("a late write came back as %s", v)
	}
}

// sealed is an encoding with the checksum that belongs to it.
func sealed(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = binary.AppendUvarint(b, uint64(p))
		case string:
			b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
		}
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// What carries a right checksum and makes no sense is refused like all else, and changes
// nothing. The numbers are kind and version, then the body.
func TestSealedNonsense(t *testing.T) {
	for what, b := range map[string]struct {
		name string
		b    []byte
	}{
		"version 0":                      {"gset", sealed(3, 0, 0)},
		"a newer version":                {"gset", sealed(3, 2, 0)},
		"more things than bytes":         {"gset", sealed(3, 1, 1<<30)},
		"a text longer than all":         {"gset", sealed(3, 1, 1, 200, 7)},
		"an element twice":               {"gset", sealed(3, 1, 2, "e", "e")},
		"an actor both folded and apart": {"gcounter", sealed(1, 1, 1, "n", 2, 5, 1, "n", 1, 3)},
		"a fold of nothing":              {"gcounter", sealed(1, 1, 1, "n", 0, 5, 0)},
		"a node folded twice":            {"gcounter", sealed(1, 1, 2, "n", 2, 5, "n", 3, 5, 0)},
		"actors out of order":            {"gcounter", sealed(1, 1, 0, 2, "n", 2, 3, "n", 1, 3)},
		"an addition not heard of":       {"orset", sealed(4, 1, 0, 0, 1, "n", 1, 1, "e")},
		"an addition twice":              {"orset", sealed(4, 1, 1, "n", 1, 1, 0, 2, "n", 1, 1, "e", "n", 1, 1, "f")},
		"addition 0":                     {"orset", sealed(4, 1, 0, 1, "n", 1, 0, 0)},
		"a key twice":                    {"map", sealed(6, 1, 2, "k", 0, 1, "n", 1, "v", "k", 0, 2, "n", 1, "w")},
		"neither kept nor deleted":       {"map", sealed(6, 1, 1, "k", 2, 1, "n", 1, "v")},
		"something left over":            {"register", sealed(5, 1, 1, "n", 1, "v", 9)},
	} {
		if changed, _, err := decodeInto(b.name, b.b); !errors.Is(err, crdt.ErrDecode) || changed {
			t.Errorf("%s: error %v, changed %v", what, err, changed)
		}
	}
	for name, b := range map[string][]byte{ // what is refused above is so for its own reason
		"gset": sealed(3, 1, 2, "e", "f"), "gcounter": sealed(1, 1, 1, "n", 2, 5, 1, "n", 2, 3), "orset": sealed(4, 1, 1, "n", 1, 1, 0, 1, "n", 1, 1, "e"),
		"map": sealed(6, 1, 1, "k", 0, 1, "n", 1, "v"), "register": sealed(5, 1, 1, "n", 1, "v"),
	} {
		if _, again, err := decodeInto(name, b); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSplit: the parts of a counter are of the size that was asked for and together, in any
// order, all of it, also of what was folded.
func TestSplit(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var c crdt.GCounter
		for range rng.IntN(200) {
			a := crdt.Actor{Node: strings.Repeat("n", rng.IntN(20)) + fmt.Sprint(rng.IntN(40)), Incarnation: rng.Uint64() >> rng.IntN(64)}
			if !c.Folded(a) {
				c.Add(a, rng.Uint64()>>rng.IntN(64))
			}
			if rng.IntN(10) == 0 {
				c.Fold(a)
			}
		}
		size := 1 + rng.IntN(2000)
		parts := c.Split(size)
		var all crdt.GCounter
		for _, i := range rng.Perm(len(parts)) {
			if n := len(parts[i].Append(nil)); n > size && len(parts[i].Actors())+len(parts[i].ByNode()) > 1 {
				t.Fatalf("seed %d: a part has %d bytes, not %d", seed, n, size)
			}
			all.Merge(parts[i])
		}
		if !bytes.Equal(all.Append(nil), c.Append(nil)) {
			t.Fatalf("seed %d: %d parts are not all of it", seed, len(parts))
		}
		if whole := len(c.Append(nil)); size > 100 && len(parts) > 1+6*whole/size {
			t.Fatalf("seed %d: %d bytes in %d parts of %d", seed, whole, len(parts), size)
		}
	}
}

// TestVersionOfASet: a set has reached a version exactly if the set that gave it has
// nothing to tell it, neither an addition nor a removal, whatever was lost on the way.
func TestVersionOfASet(t *testing.T) {
	reached := 0
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 4))
		var sets [3]crdt.ORSet
		for range 40 {
			i := rng.IntN(3)
			e := fmt.Sprint(rng.IntN(4))
			d := sets[i].Remove(actor(i), e)
			if rng.IntN(2) == 0 {
				d = sets[i].Add(actor(i), e)
			}
			for k := range sets {
				if rng.IntN(3) > 0 {
					sets[k].Merge(d)
				}
			}
			from, to := &sets[rng.IntN(3)], sets[rng.IntN(3)].State()
			got, err := to.Reached(from.AppendVersion(nil))
			if want := !to.Merge(from.State()); err != nil || got != want {
				t.Fatalf("seed %d: %v, %v; want %v", seed, got, err, want)
			}
			if got {
				reached++
			}
		}
	}
	if reached < 1000 || reached > 19_000 {
		t.Fatalf("%d of 20,000 were reached", reached)
	}
	var s crdt.ORSet
	d := s.Add(actor(1), "e")
	for _, bad := range [][]byte{nil, {1}, s.Append(nil), d.AppendVersion(nil)[1:]} {
		if _, err := s.Reached(bad); !errors.Is(err, crdt.ErrDecode) {
			t.Errorf("the version %x: %v", bad, err)
		}
	}
}

// TestMergeOfMany: to hear of very many actors, and that very many were folded, takes no time that grows with
// their square, and is right. Sixteen times as many may take eighty times as long, where about thirty are usual and 256 would be the
// square; the shortest of several tries counts, and there are more of them while others on the machine disturb.
func TestMergeOfMany(t *testing.T) {
	const some, many = 128, 2_048
	few, all := time.Hour, time.Hour
	for try := 0; try < 3 || try < 30 && all > 80*few; try++ {
		few, all = min(few, mergeOf(t, some)), min(all, mergeOf(t, many))
	}
	if all > 80*few {
		t.Errorf("%d actors took %s, %d of them %s", some, few, many, all)
	}
}

// mergeOf is how long it takes to hear of so many actors.
func mergeOf(t *testing.T, many int) time.Duration {
	var apart, even, odd, folded crdt.GCounter
	var gone []crdt.Actor
	for i := range many {
		a := crdt.Actor{Node: fmt.Sprintf("pod-%05d", i), Incarnation: 1}
		apart.Add(a, 1)
		even.Add(crdt.Actor{Node: fmt.Sprintf("pod-%05d", 2*(i/2)), Incarnation: 2}, 1)
		odd.Add(crdt.Actor{Node: fmt.Sprintf("pod-%05d", 2*(i/2)+1), Incarnation: 2}, 1)
		gone = append(gone, a)
	}
	start := time.Now()
	folded.Merge(apart)
	folded.Fold(gone...)
	even.Merge(odd)
	even.Merge(apart)
	for range 2 { // the second time there is nothing new
		even.Merge(folded)
	}
	took := time.Since(start)
	if even.Value() != uint64(3*many) || len(even.Actors()) != many || len(even.ByNode()) != many || even.Merge(apart) {
		t.Fatalf("%d are counted by %d actors and %d folds", even.Value(), len(even.Actors()), len(even.ByNode()))
	}
	return took
}

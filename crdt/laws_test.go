package crdt_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/crdt"
)

// The laws of a join: the order and the grouping of merges, and repeating one, change
// nothing.
func TestLaws(t *testing.T) {
	type kind struct {
		name  string
		fresh func() replica
	}
	for _, k := range []kind{
		{"gcounter", func() replica { return &gcounter{} }}, {"pncounter", func() replica { return &pncounter{} }},
		{"gset", func() replica { return &gset{} }}, {"orset", func() replica { return &orset{} }},
		{"register", func() replica { return &register{} }}, {"map", func() replica { return &lwwmap{} }},
	} {
		for seed := range uint64(*histories) {
			rnd := rand.New(rand.NewPCG(seed, 9))
			var v [3]replica
			for i := range v {
				v[i] = k.fresh()
				for range rnd.IntN(6) {
					v[i].act(rnd, actor(i), &model{ops: map[int]op{}})
				}
				if i > 0 && rnd.IntN(2) == 0 {
					v[i].merge(v[i-1].state())
				}
			}
			join := func(order ...replica) []byte {
				r := k.fresh()
				for _, o := range order {
					r.merge(o.state())
				}
				return r.state()
			}
			bc := k.fresh()
			bc.merge(v[2].state())
			bc.merge(v[1].state())
			want := join(v[0], v[1], v[2])
			for i, got := range [][]byte{join(v[2], v[1], v[0]), join(bc, v[0]), join(v[0], v[1], v[0], v[2], v[1])} {
				if !bytes.Equal(got, want) {
					t.Fatalf("%s, seed %d: law %d", k.name, seed, i)
				}
			}
		}
		t.Logf("proof: crdt: %s: %s: %d triples of states", t.Name(), k.name, *histories)
	}
}

func TestCountsSaturate(t *testing.T) {
	var g crdt.GCounter
	g.Add(actor(1), math.MaxUint64)
	g.Add(actor(1), 5)
	g.Add(actor(2), 5)
	if g.Value() != math.MaxUint64 {
		t.Error(g.Value())
	}
	var p crdt.PNCounter
	p.Add(actor(1), math.MinInt64)
	if p.Value() != math.MinInt64 {
		t.Error(p.Value())
	}
	p.Add(actor(2), math.MinInt64)
	if p.Value() != math.MinInt64 {
		t.Error(p.Value())
	}
	for range 4 {
		p.Add(actor(1), math.MaxInt64)
	}
	if p.Value() > 0 { // up stopped at 2⁶⁴-1, as down did
		t.Error(p.Value())
	}
}

// Folded actors cost nothing and count on, in whatever order the news comes, and a
// late report of one counts once.
func TestFold(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		var all, folder crdt.GCounter
		var deltas []crdt.GCounter
		sum := uint64(0)
		for inc := range uint64(20) {
			n := 1 + rnd.Uint64N(9)
			sum += n
			deltas = append(deltas, all.Add(crdt.Actor{Node: fmt.Sprint("n", inc%3), Incarnation: inc}, n))
		}
		folder.Merge(all.State())
		deltas = append(deltas, folder.Fold(crdt.Actor{Node: "n0", Incarnation: 11}, crdt.Actor{Node: "n1", Incarnation: 9}))
		deltas = append(deltas, folder.Fold(crdt.Actor{Node: "n2", Incarnation: 17}))
		if folder.Value() != sum {
			t.Fatalf("folding changed %d to %d", sum, folder.Value())
		}
		var other crdt.GCounter
		rnd.Shuffle(len(deltas), func(i, j int) { deltas[i], deltas[j] = deltas[j], deltas[i] })
		for _, d := range append(deltas, deltas[:5]...) {
			other.Merge(d)
		}
		if other.Value() != sum || len(other.Actors()) != len(folder.Actors()) || len(other.Actors()) != 7 {
			t.Fatalf("seed %d: %d of %d with actors %v", seed, other.Value(), sum, other.Actors())
		}
		if !other.Folded(crdt.Actor{Node: "n0", Incarnation: 3}) || other.Folded(crdt.Actor{Node: "n0", Incarnation: 12}) {
			t.Fatal("Folded is wrong")
		}
	}
}

func TestSkew(t *testing.T) {
	var c crdt.Clock
	now := time.UnixMilli(1_000_000)
	first := c.Next(now)
	if second := c.Next(now.Add(-time.Hour)); second <= first {
		t.Error("a clock that goes back gave an earlier time")
	}
	var far crdt.Clock
	if err := c.Observe(far.Next(time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)), now, time.Minute); !errors.Is(err, crdt.ErrSkew) {
		t.Errorf("a clock in 2099: %v", err)
	}
	if c.Next(now).Wall().Year() > 1971 {
		t.Error("the refused time was taken over")
	}
	if err := c.Observe(first+70_000, now, time.Minute); err != nil || c.Next(now) <= first+70_000 {
		t.Error("an observed time was not passed", err)
	}
}

// A clock that believes every time goes on to give later ones, whatever it is told.
func TestClock_Forged(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	for _, forged := range []crdt.Time{1<<64 - 1, 1<<64 - 2, (1<<48 - 1) << 16, (1<<48-1)<<16 - 1, 1 << 63} {
		var c crdt.Clock
		seen := c.Next(now)
		if err := c.Observe(forged, now, 1<<63-1); err == nil {
			seen = forged
		} else if !errors.Is(err, crdt.ErrSkew) {
			t.Errorf("%x: %v", uint64(forged), err)
		}
		for range 3 {
			next := c.Next(now)
			if next <= seen {
				t.Fatalf("%x: after %x came %x", uint64(forged), uint64(seen), uint64(next))
			}
			seen = next
		}
	}
	var c crdt.Clock
	late := time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)
	if a, b := c.Next(late), c.Next(late); b <= a {
		t.Errorf("in the year 20000 after %x came %x", uint64(a), uint64(b))
	}
}

func TestPrune(t *testing.T) {
	var m crdt.Map
	var c crdt.Clock
	now := time.UnixMilli(5000)
	m.Set("a", nil, crdt.Stamp{At: c.Next(now)})
	m.Delete("a", crdt.Stamp{At: c.Next(now)})
	m.Set("b", []byte("x"), crdt.Stamp{At: c.Next(now)})
	size := len(m.Append(nil))
	m.Prune(c.Next(now))
	if v, ok := m.Get("b"); !ok || string(v) != "x" || len(m.Append(nil)) >= size {
		t.Error("Prune took the wrong ones")
	}
}

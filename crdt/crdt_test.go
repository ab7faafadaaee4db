package crdt_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/crdt"
)

var histories = flag.Int("crdt.histories", 1_000, "random histories of each type")

// replica is one node's value of some type, behind what all types share.
type replica interface {
	merge(delta []byte) bool // of an encoding
	state() []byte
	value() string
	// act makes one random change and returns its delta and what the model has to
	// know.
	act(rnd *rand.Rand, a crdt.Actor, seen *model) []byte
}

// model keeps every operation that a node has heard of, and says by definition what
// the value is.
type model struct {
	ops map[int]op // by number of the operation
}

type op struct {
	kind  string
	key   string
	n     int64
	stamp crdt.Stamp
	saw   map[int]bool // the additions that it takes back
}

func (m *model) add(o op, serial *int) {
	*serial++
	m.ops[*serial] = o
}

// gone are the additions that something heard of has taken back.
func (m *model) gone() map[int]bool {
	gone := map[int]bool{}
	for _, o := range m.ops {
		for s := range o.saw {
			gone[s] = true
		}
	}
	return gone
}

func actor(i int) crdt.Actor { return crdt.Actor{Node: fmt.Sprintf("node-%d", i), Incarnation: 1} }

type message struct {
	to    int
	delta []byte
	ops   map[int]op
}

// history runs one random history: changes on all nodes, deltas and whole states
// lost, repeated and out of order; then everybody hears everything.
func history(t *testing.T, seed uint64, fresh func() replica, judge func(*model) string) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	n := 2 + rnd.IntN(4)
	w := make([]replica, n)
	heard := make([]*model, n)
	for i := range w {
		w[i], heard[i] = fresh(), &model{ops: map[int]op{}}
	}
	var flying []message
	check := func(i int, when string) {
		if got, want := w[i].value(), judge(heard[i]); got != want {
			t.Fatalf("seed %d, %s, node %d: got %s, want %s", seed, when, i, got, want)
		}
	}
	send := func(from int, delta []byte, ops map[int]op) {
		for to := range w {
			if to != from && rnd.IntN(4) > 0 { // lost one time in four
				flying = append(flying, message{to, delta, ops})
			}
		}
	}
	serial = 0
	for range 10 + rnd.IntN(40) {
		i := rnd.IntN(n)
		switch k := rnd.IntN(6); {
		case k < 3:
			before := maps.Clone(heard[i].ops)
			delta := w[i].act(rnd, actor(i), heard[i])
			fresh := map[int]op{}
			for s, o := range heard[i].ops {
				if _, old := before[s]; !old {
					fresh[s] = o
				}
			}
			send(i, delta, fresh)
		case k == 3:
			send(i, w[i].state(), maps.Clone(heard[i].ops))
		case len(flying) > 0:
			m := flying[rnd.IntN(len(flying))] // out of order, and it stays there to come again
			w[m.to].merge(m.delta)
			maps.Copy(heard[m.to].ops, m.ops)
			check(m.to, "after a message")
			if w[m.to].merge(m.delta) {
				t.Fatalf("seed %d: the same message was new twice", seed)
			}
		}
		check(i, "after a step")
	}
	for range 2 {
		for i := range w {
			for j := range w {
				w[j].merge(w[i].state())
				maps.Copy(heard[j].ops, heard[i].ops)
			}
		}
	}
	for i := range w {
		check(i, "at the end")
		if !bytes.Equal(w[i].state(), w[0].state()) {
			t.Fatalf("seed %d: node %d and node 0 have heard the same and differ", seed, i)
		}
	}
}

var serial int

func decoded[T any, P interface {
	*T
	Decode([]byte) error
}](b []byte) T {
	var v T
	if err := P(&v).Decode(b); err != nil {
		panic(err)
	}
	return v
}

type gcounter struct{ crdt.GCounter }

func (r *gcounter) merge(b []byte) bool { return r.Merge(decoded[crdt.GCounter](b)) }
func (r *gcounter) state() []byte       { s := r.State(); return s.Append(nil) }
func (r *gcounter) value() string       { return fmt.Sprint(r.Value()) }
func (r *gcounter) act(rnd *rand.Rand, a crdt.Actor, seen *model) []byte {
	n := rnd.Int64N(5)
	seen.add(op{n: n, key: a.String()}, &serial)
	d := r.Add(a, uint64(n))
	return d.Append(nil)
}

// counts is the sum of all that was heard; a counter's delta carries all earlier ones
// of its actor too.
func counts(m *model) string {
	sum := int64(0)
	for _, o := range m.ops {
		sum += o.n
	}
	return fmt.Sprint(sum)
}

type pncounter struct{ crdt.PNCounter }

func (r *pncounter) merge(b []byte) bool { return r.Merge(decoded[crdt.PNCounter](b)) }
func (r *pncounter) state() []byte       { s := r.State(); return s.Append(nil) }
func (r *pncounter) value() string       { return fmt.Sprint(r.Value()) }
func (r *pncounter) act(rnd *rand.Rand, a crdt.Actor, seen *model) []byte {
	n := rnd.Int64N(11) - 5
	seen.add(op{n: n, key: fmt.Sprint(a, n < 0)}, &serial)
	d := r.Add(a, n)
	return d.Append(nil)
}

type gset struct{ crdt.GSet }

func (r *gset) merge(b []byte) bool { return r.Merge(decoded[crdt.GSet](b)) }
func (r *gset) state() []byte       { s := r.State(); return s.Append(nil) }
func (r *gset) value() string       { return fmt.Sprint(r.Elements()) }
func (r *gset) act(rnd *rand.Rand, _ crdt.Actor, seen *model) []byte {
	e := fmt.Sprint(rnd.IntN(6))
	if !r.Has(e) { // what was there before is no news
		seen.add(op{key: e}, &serial)
	}
	d := r.Add(e)
	return d.Append(nil)
}

func elements(m *model) string {
	set := map[string]bool{}
	for _, o := range m.ops {
		set[o.key] = true
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(set)))
}

type orset struct{ crdt.ORSet }

func (r *orset) merge(b []byte) bool { return r.Merge(decoded[crdt.ORSet](b)) }
func (r *orset) state() []byte       { s := r.State(); return s.Append(nil) }
func (r *orset) value() string       { return fmt.Sprint(r.Elements()) }
func (r *orset) act(rnd *rand.Rand, a crdt.Actor, seen *model) []byte {
	e := fmt.Sprint(rnd.IntN(4))
	o := op{kind: "add", key: e, saw: map[int]bool{}}
	gone := seen.gone()
	for s, old := range seen.ops {
		if old.key == e && old.kind == "add" && !gone[s] {
			o.saw[s] = true
		}
	}
	var d crdt.ORSet
	if rnd.IntN(3) == 0 {
		o.kind = "remove"
		d = r.Remove(a, e)
	} else {
		d = r.Add(a, e)
	}
	seen.add(o, &serial)
	return d.Append(nil)
}

// present: an element is there if some addition of it was not seen by a removal, or
// by an addition that stands for it.
func present(m *model) string {
	gone := m.gone()
	set := map[string]bool{}
	for s, o := range m.ops {
		if o.kind == "add" && !gone[s] {
			set[o.key] = true
		}
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(set)))
}

type register struct {
	crdt.Register
	clock crdt.Clock
}

func wall(rnd *rand.Rand) time.Time { return time.UnixMilli(1_000_000 + rnd.Int64N(3)) }

func (r *register) merge(b []byte) bool { return r.Merge(decoded[crdt.Register](b)) }
func (r *register) state() []byte       { s := r.State(); return s.Append(nil) }
func (r *register) value() string {
	v, s := r.Value()
	return fmt.Sprintf("%s %v", v, s)
}
func (r *register) act(rnd *rand.Rand, a crdt.Actor, seen *model) []byte {
	o := op{key: fmt.Sprint(serial), stamp: crdt.Stamp{At: r.clock.Next(wall(rnd)), Actor: a}}
	seen.add(o, &serial)
	d := r.Set([]byte(o.key), o.stamp)
	return d.Append(nil)
}

func lastWrite(m *model) string {
	var last op
	for _, o := range m.ops {
		if o.stamp.Compare(last.stamp) > 0 {
			last = o
		}
	}
	return fmt.Sprintf("%s %v", last.key, last.stamp)
}

type lwwmap struct {
	crdt.Map
	clock crdt.Clock
}

func (r *lwwmap) merge(b []byte) bool { return r.Merge(decoded[crdt.Map](b)) }
func (r *lwwmap) state() []byte       { s := r.State(); return s.Append(nil) }
func (r *lwwmap) value() string {
	s := ""
	for _, k := range r.Keys() {
		v, _ := r.Get(k)
		s += k + "=" + string(v) + " "
	}
	return s
}
func (r *lwwmap) act(rnd *rand.Rand, a crdt.Actor, seen *model) []byte {
	o := op{kind: "set", key: fmt.Sprint(rnd.IntN(3)), n: int64(serial), stamp: crdt.Stamp{At: r.clock.Next(wall(rnd)), Actor: a}}
	var d crdt.Map
	if rnd.IntN(3) == 0 {
		o.kind = "delete"
		d = r.Delete(o.key, o.stamp)
	} else {
		d = r.Set(o.key, fmt.Append(nil, o.n), o.stamp)
	}
	seen.add(o, &serial)
	return d.Append(nil)
}

func lastOfEach(m *model) string {
	last := map[string]op{}
	for _, o := range m.ops {
		if o.stamp.Compare(last[o.key].stamp) > 0 {
			last[o.key] = o
		}
	}
	s := ""
	for _, k := range slices.Sorted(maps.Keys(last)) {
		if last[k].kind == "set" {
			s += fmt.Sprintf("%s=%d ", k, last[k].n)
		}
	}
	return s
}

// Whatever is lost, repeated or comes out of order, a node's value is what a model
// that keeps all operations says, and nodes that heard the same are the same to the
// byte.
func TestHistories(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fresh func() replica
		judge func(*model) string
		whole bool // a delta carries the earlier changes of its actor too
	}{
		{"gset", func() replica { return &gset{} }, elements, false},
		{"orset", func() replica { return &orset{} }, present, false},
		{"register", func() replica { return &register{} }, lastWrite, false},
		{"map", func() replica { return &lwwmap{} }, lastOfEach, false},
		{"gcounter", func() replica { return &gcounter{} }, counts, true},
		{"pncounter", func() replica { return &pncounter{} }, counts, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(*histories) {
				if tt.whole {
					countHistory(t, seed, tt.fresh, tt.judge)
				} else {
					history(t, seed, tt.fresh, tt.judge)
				}
			}
			t.Logf("proof: crdt: %s: %d histories", t.Name(), *histories)
		})
	}
}

// countHistory is history for counters: a delta is absolute, so a node that hears it has
// heard all earlier ones of its actor.
func countHistory(t *testing.T, seed uint64, fresh func() replica, judge func(*model) string) {
	all := &model{ops: map[int]op{}}
	history(t, seed, func() replica { return &absolute{fresh(), all} }, func(m *model) string {
		for s, o := range all.ops {
			for s2, o2 := range m.ops {
				if o2.key == o.key && s2 > s && s2 > 0 {
					m.ops[s] = o
					break
				}
			}
		}
		return judge(m)
	})
}

// absolute notes every operation beside.
type absolute struct {
	replica
	all *model
}

func (a *absolute) act(rnd *rand.Rand, by crdt.Actor, seen *model) []byte {
	b := a.replica.act(rnd, by, seen)
	a.all.ops[serial] = seen.ops[serial]
	return b
}

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

// corpus is one encoding of each type.
func corpus() map[string][]byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	all := map[string][]byte{}
	for name, r := range map[string]replica{"gcounter": &gcounter{}, "pncounter": &pncounter{}, "gset": &gset{}, "orset": &orset{}, "register": &register{}, "map": &lwwmap{}} {
		for i := range 12 {
			r.act(rnd, actor(i%3), &model{ops: map[int]op{}})
		}
		all[name] = r.state()
	}
	return all
}

// decodeInto decodes into a value that is not empty and reports whether it changed.
func decodeInto(name string, b []byte) (changed bool, again []byte, err error) {
	rnd := rand.New(rand.NewPCG(8, 2))
	try := func(r replica, decode func([]byte) error) {
		r.act(rnd, actor(7), &model{ops: map[int]op{}})
		before := r.state()
		err = decode(b)
		again = r.state()
		changed = !bytes.Equal(before, again)
	}
	switch name {
	case "gcounter":
		r := &gcounter{}
		try(r, r.Decode)
	case "pncounter":
		r := &pncounter{}
		try(r, r.Decode)
	case "gset":
		r := &gset{}
		try(r, r.Decode)
	case "orset":
		r := &orset{}
		try(r, r.Decode)
	case "register":
		r := &register{}
		try(r, r.Decode)
	case "map":
		r := &lwwmap{}
		try(r, r.Decode)
	}
	return changed, again, err
}

// What is cut off, flipped in one bit, longer or of another kind is refused and changes
// nothing.
func TestBadEncodings(t *testing.T) {
	for name, good := range corpus() {
		if _, again, err := decodeInto(name, good); err != nil || !bytes.Equal(again, good) {
			t.Fatalf("%s: %v", name, err)
		}
		bad := func(what string, b []byte) {
			if changed, _, err := decodeInto(name, b); !errors.Is(err, crdt.ErrDecode) || changed {
				t.Errorf("%s, %s: error %v, changed %v", name, what, err, changed)
			}
		}
		for i := range good {
			bad("cut", good[:i])
		}
		for bit := range len(good) * 8 {
			flipped := bytes.Clone(good)
			flipped[bit/8] ^= 1 << (bit % 8)
			bad("flipped", flipped)
		}
		bad("longer", append(bytes.Clone(good), 0))
		for other, b := range corpus() {
			if other != name {
				bad("of another kind", b)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, b := range corpus() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for name := range corpus() {
			changed, again, err := decodeInto(name, b)
			if err != nil && changed {
				t.Errorf("%s: refused, and yet it changed", name)
			}
			if err == nil {
				if _, twice, err := decodeInto(name, again); err != nil || !bytes.Equal(twice, again) {
					t.Errorf("%s: what was decoded does not come back: %v", name, err)
				}
			}
		}
	})
}

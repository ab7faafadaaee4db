package crdt_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
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

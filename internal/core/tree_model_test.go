package core

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

var fullModels = flag.Bool("core.models", false, "drive every container through every size instead of a share of them")

// thing is an item of the containers under test.
type thing struct {
	name string
	at   int32
}

func (t *thing) id() string           { return t.name }
func (t *thing) pos() *int32          { return &t.at }
func (t *thing) before(o *thing) bool { return t.name < o.name }

// things are n items in order of name.
func things(n int) []*thing {
	list := make([]*thing, n)
	for i := range list {
		list[i] = &thing{name: fmt.Sprintf("%07d", i)}
	}
	return list
}

// treeModel is a tree beside a model of it: which of all things it has.
type treeModel struct {
	t    testing.TB
	tr   tree[string, *thing]
	all  []*thing
	has  []bool
	low  int // no thing below is in
	high int // nor one at or above
	n    int
}

func newTreeModel(t testing.TB, all []*thing) *treeModel {
	return &treeModel{t: t, all: all, has: make([]bool, len(all)), low: len(all)}
}

func (m *treeModel) insert(i int) {
	m.tr.insert(m.all[i])
	m.has[i] = true
	m.n++
	m.low, m.high = min(m.low, i), max(m.high, i+1)
}

// remove takes i out and looks at both ends of what is left.
func (m *treeModel) remove(i int) {
	m.tr.remove(m.all[i].name)
	m.has[i] = false
	m.n--
	for m.low < m.high && !m.has[m.low] {
		m.low++
	}
	for m.high > m.low && !m.has[m.high-1] {
		m.high--
	}
	if m.n == 0 {
		m.low, m.high = len(m.all), 0
	}
	if m.tr.n != m.n || (m.tr.root == nil) != (m.n == 0) {
		m.t.Fatalf("%d items, root %v: the model has %d", m.tr.n, m.tr.root != nil, m.n)
	}
	if m.n > 0 && m.tr.least() != m.all[m.low] {
		m.t.Fatalf("of %d items the least is %s, want %s", m.n, m.tr.least().name, m.all[m.low].name)
	}
}

// drain takes everything out in an order and checks the whole on the way.
func (m *treeModel) drain(order string, r *rand.Rand) {
	every := 1 + m.n/5
	for step := 0; m.n > 0; step++ {
		switch order {
		case "least":
			m.remove(m.low)
		case "greatest":
			m.remove(m.high - 1)
		default:
			i := m.low + r.IntN(m.high-m.low)
			for !m.has[i] {
				i = m.low + (i-m.low+1)%(m.high-m.low)
			}
			m.remove(i)
		}
		if step%every == 0 {
			m.check()
		}
	}
	m.check()
}

// check compares everything and looks at every invariant of the tree.
func (m *treeModel) check() {
	if m.tr.root != nil {
		m.checkNode(m.tr.root, "", "", true, true)
	}
	i := m.low
	m.tr.from("", func(x *thing) bool {
		for i < len(m.all) && !m.has[i] {
			i++
		}
		if i == len(m.all) || x != m.all[i] {
			m.t.Fatalf("%s comes out, which is not next", x.name)
		}
		i++
		return true
	})
	if i < m.high {
		m.t.Fatalf("nothing comes out after %d of %d", i, m.high)
	}
}

// checkNode checks the node whose names are at least low and below high, "" being
// no bound, and returns its depth.
func (m *treeModel) checkNode(n *treeNode[string, *thing], low, high string, root, last bool) int {
	least, size := treeLeast, len(n.items)+len(n.kids)
	switch {
	case root && n.kids != nil:
		least = 2
	case root || last && n.kids == nil:
		least = 1
	}
	if size < least || size >= treeWidth {
		m.t.Fatalf("a node has %d, want %d to %d (root %v, last %v)", size, least, treeWidth-1, root, last)
	}
	for i, name := range n.names {
		if name < low || high != "" && name >= high || i > 0 && name <= n.names[i-1] {
			m.t.Fatalf("%q is out of order, or not between %q and %q", name, low, high)
		}
	}
	if n.kids == nil {
		return m.checkLeaf(n)
	}
	if len(n.names) != len(n.kids)-1 || len(n.items) != 0 {
		m.t.Fatalf("a node of %d children has %d names and %d items", len(n.kids), len(n.names), len(n.items))
	}
	depth := 0
	for i, kid := range n.kids {
		from, to := low, high
		if i > 0 {
			from = n.names[i-1]
		}
		if i < len(n.names) {
			to = n.names[i]
		}
		d := m.checkNode(kid, from, to, false, last && i == len(n.kids)-1)
		if i > 0 && d != depth {
			m.t.Fatalf("leaves lie %d and %d deep", d, depth)
		}
		depth = d
	}
	return depth + 1
}

func (m *treeModel) checkLeaf(n *treeNode[string, *thing]) int {
	if len(n.names) != len(n.items) {
		m.t.Fatalf("a leaf of %d items has %d names", len(n.items), len(n.names))
	}
	for i, it := range n.items {
		if it == nil || it.name != n.names[i] {
			m.t.Fatalf("item %d of a leaf is not what its name says", i)
		}
	}
	return 0
}

// TestTreeSizes: trees of every size up to 12,000, put in in both orders, are
// drained from either end and at random.
func TestTreeSizes(t *testing.T) {
	all := things(12_000)
	step := func(n int) int { return max(1, n/40) }
	if *fullModels {
		step = func(int) int { return 1 }
	}
	r := rand.New(rand.NewPCG(1, 0))
	for n := 1; n <= len(all); n += step(n) {
		for _, order := range []string{"least", "greatest", "random"} {
			up, down := newTreeModel(t, all[:n]), newTreeModel(t, all[:n])
			for i := range n {
				up.insert(i)
				down.insert(n - 1 - i)
			}
			up.drain(order, r)
			down.drain(order, r)
		}
	}
}

// TestTreeKnown: sizes at which a leaf was once left empty, with all before them.
func TestTreeKnown(t *testing.T) {
	all := things(4000)
	r := rand.New(rand.NewPCG(2, 0))
	for _, n := range []int{93, 94, 1921, 1922, 1923, 3721, 3722, 3723} {
		for _, order := range []string{"least", "greatest", "random"} {
			up, down := newTreeModel(t, all[:n]), newTreeModel(t, all[:n])
			for i := range n {
				up.insert(i)
				down.insert(n - 1 - i)
			}
			up.drain(order, r)
			down.drain(order, r)
		}
	}
}

// TestTreeRandom: many items come and go at random, grow, shrink and drain.
func TestTreeRandom(t *testing.T) {
	size := 100_000
	if *fullModels {
		size = 1_000_000
	}
	r := rand.New(rand.NewPCG(3, 0))
	m := newTreeModel(t, things(size))
	for _, i := range r.Perm(size) {
		m.insert(i)
	}
	m.check()
	for range size {
		if i := r.IntN(size); m.has[i] {
			m.remove(i)
		} else {
			m.insert(i)
		}
	}
	m.check()
	m.tr.remove("absent")
	m.tr.remove("")
	m.check()
	m.drain("random", r)
}

// TestTreeFill: an order of insertion that always meets the end of a full leaf
// must not leave a leaf behind for every item.
func TestTreeFill(t *testing.T) {
	all := things(2 * treeWidth * treeWidth)
	m := newTreeModel(t, all)
	const full = treeWidth - 1
	for i := range full {
		m.insert(i)
	}
	for i := len(all) - 1; i >= full; i-- {
		m.insert(i)
	}
	m.check()
}

// TestTreeFrom: from begins at the first that is not less, present or not, and
// stops when it is told to.
func TestTreeFrom(t *testing.T) {
	const n = 10_000
	all := things(n)
	m := newTreeModel(t, all)
	r := rand.New(rand.NewPCG(4, 0))
	for i := range n {
		if r.IntN(3) > 0 {
			m.insert(i)
		}
	}
	for range 2000 {
		begin, max := r.IntN(n), r.IntN(300)
		var got, want []*thing
		m.tr.from(all[begin].name, func(x *thing) bool {
			got = append(got, x)
			return len(got) < max+1
		})
		for i := begin; i < n && len(want) < max+1; i++ {
			if m.has[i] {
				want = append(want, all[i])
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("from %d, %d: %d items, want %d", begin, max+1, len(got), len(want))
		}
	}
}

// FuzzTree plays a list of runs: how many to put in or take out, where and in
// what order.
func FuzzTree(f *testing.F) {
	for _, up := range []byte{0, 1} {
		for _, n := range []uint16{93, 1922, 3722} {
			in := append(binary.LittleEndian.AppendUint16([]byte{up}, n), 0, 0)
			out := append(binary.LittleEndian.AppendUint16([]byte{2 + up}, n-1), 0, 0)
			f.Add(append(in, out...))
		}
	}
	all := things(1 << 14)
	f.Fuzz(func(t *testing.T, b []byte) {
		m := newTreeModel(t, all)
		for ; len(b) >= 5; b = b[5:] {
			n, at := int(binary.LittleEndian.Uint16(b[1:])), int(binary.LittleEndian.Uint16(b[3:]))
			m.run(b[0]&2 == 0, b[0]&1 == 0, n%len(all), at%len(all))
		}
		m.check()
		m.drain("least", nil)
	})
}

// run puts in, or takes out, n things from at on, upwards or downwards.
func (m *treeModel) run(put, up bool, n, at int) {
	for k := range n {
		i := (at + k) % len(m.all)
		if !up {
			i = (at + n - 1 - k) % len(m.all)
		}
		switch {
		case put && !m.has[i]:
			m.insert(i)
		case !put && m.has[i]:
			m.remove(i)
		}
	}
}

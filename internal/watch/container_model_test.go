package watch

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
)

var fullModels = flag.Bool("watch.models", false, "drive every container through every size instead of a share of them")

func modelSizes() []int {
	if *fullModels {
		return []int{1, 2, 3, 255, 256, 257, 1000, 4095, 4096, 4097, 10_000, 65_536, 100_000}
	}
	return []int{1, 2, 255, 256, 257, 1000, 5000}
}

// ringModel is a ring beside all events that were ever added.
type ringModel struct {
	*ring
	all []core.Event
}

func newRingModel(size int) *ringModel { return &ringModel{ring: newRing(size, 0)} }

// add adds an entry of n events at one revision.
func (m *ringModel) add(t testing.TB, n int) {
	m.entry = m.head
	revision := uint64(1)
	if k := len(m.all); k > 0 {
		revision = m.all[k-1].Revision + 1
	}
	for i := range n {
		e := core.Event{Revision: revision, Ordinal: uint32(i)}
		if pos := m.ring.add(e); pos != uint64(len(m.all)) {
			t.Fatalf("event %d is at %d", len(m.all), pos)
		}
		m.all = append(m.all, e)
	}
}

func (m *ringModel) check(t testing.TB, last int) {
	t.Helper()
	if n, least := m.head-m.tail, min(uint64(len(m.all)), m.size); m.head != uint64(len(m.all)) || n < least || n > burst*m.size+1 {
		t.Fatalf("of %d events %d are kept, in a ring of %d", len(m.all), n, m.size)
	}
	if uint64(last) <= m.size && m.tail > m.entry {
		t.Fatal("the newest entry is not whole")
	}
	for pos := m.tail; pos < m.head; pos++ {
		if e := m.at(pos); e.Revision != m.all[pos].Revision || e.Ordinal != m.all[pos].Ordinal {
			t.Fatalf("event %d is another", pos)
		}
	}
	if m.tail > 0 && m.floor != m.all[m.tail-1].Revision+1 {
		t.Fatalf("the floor is %d", m.floor)
	}
	if room := uint64(len(m.chunks)) * chunk; room > m.head-m.tail+2*chunk {
		t.Fatalf("%d events have room for %d", m.head-m.tail, room)
	}
	m.checkFind(t)
}

// checkFind looks for revisions before, in and behind the ring.
func (m *ringModel) checkFind(t testing.TB) {
	t.Helper()
	if len(m.all) == 0 {
		return
	}
	newest := m.all[len(m.all)-1].Revision
	for revision := uint64(0); revision <= newest+1; revision += 1 + newest/16 {
		want, _ := slices.BinarySearchFunc(m.all, revision, func(e core.Event, r uint64) int { return int(int64(e.Revision) - int64(r)) })
		if got := m.find(revision); got != max(uint64(want), m.tail) {
			t.Fatalf("revision %d begins at %d, want %d", revision, got, want)
		}
	}
}

// TestRingSizes: rings of every size take entries of one event, of a few, and of more
// than they have room for.
func TestRingSizes(t *testing.T) {
	for _, size := range modelSizes() {
		for _, entry := range []int{1, 3, size, 2 * size} {
			m := newRingModel(size)
			m.check(t, 0)
			for len(m.all) < 6*size {
				m.add(t, entry)
				if rounds := len(m.all) / entry; rounds < 20 || rounds%(size/8+1) == 0 {
					m.check(t, entry)
				}
			}
			m.check(t, entry)
		}
	}
}

func FuzzRing(f *testing.F) {
	f.Add(uint16(300), []byte{1, 200, 255, 255, 1})
	f.Fuzz(func(t *testing.T, size uint16, b []byte) {
		m := newRingModel(1 + int(size)%2000)
		for _, x := range b {
			m.add(t, 1+int(x))
			m.check(t, 1+int(x))
		}
	})
}

// treeModel is a tree of prefixes beside a list of what is in it.
type treeModel struct {
	tree
	has  map[string][]*Watcher
	n    int
	made uint64
}

func newPrefixModel() *treeModel { return &treeModel{has: map[string][]*Watcher{}} }

func (m *treeModel) put(prefix string) {
	m.made++
	w := &Watcher{from: m.made} // as its name
	m.add(prefix, w)
	m.has[prefix] = append(m.has[prefix], w)
	m.n++
}

// take takes the oldest watcher of a prefix.
func (m *treeModel) take(prefix string) {
	list := m.has[prefix]
	if len(list) == 0 {
		m.remove(prefix, &Watcher{}) // nobody's: nothing happens
		return
	}
	m.remove(prefix, list[0])
	if m.has[prefix] = list[1:]; len(list) == 1 {
		delete(m.has, prefix)
	}
	m.n--
}

// visits compares which watchers see an event of that name.
func (m *treeModel) visits(t testing.TB, name string) {
	t.Helper()
	var got, want []*Watcher
	m.visit(name, func(w *Watcher) { got = append(got, w) })
	for i := range len(name) + 1 {
		want = append(want, m.has[name[:i]]...)
	}
	if !slices.Equal(sorted(got), sorted(want)) {
		t.Fatalf("%d watchers see %q, want %d", len(got), name, len(want))
	}
}

// sorted are watchers in an order of their own: in which they see an event nobody is promised.
func sorted(list []*Watcher) []*Watcher {
	slices.SortFunc(list, func(a, b *Watcher) int { return cmp.Compare(a.from, b.from) })
	return list
}

// check looks at every node: none but the root is without use, and no two children
// begin alike.
func (m *treeModel) check(t testing.TB) {
	t.Helper()
	n := 0
	m.root.each(func(*Watcher) { n++ })
	if n != m.n {
		t.Fatalf("%d watchers, want %d", n, m.n)
	}
	var look func(k *node, root bool)
	look = func(k *node, root bool) {
		seen := map[byte]bool{}
		for _, c := range k.children {
			if c.label == "" || seen[c.label[0]] {
				t.Fatalf("a child %q beside another, or without a label", c.label)
			}
			seen[c.label[0]] = true
			look(c, false)
		}
		if !root && len(k.watchers) == 0 && len(k.children) < 2 {
			t.Fatalf("the node %q is of no use", k.label)
		}
	}
	look(&m.root, true)
}

// TestPrefixSizes: many prefixes, some of them within others, come and go in every
// order.
func TestPrefixSizes(t *testing.T) {
	for _, n := range modelSizes() {
		prefixes := make([]string, n)
		for i := range prefixes {
			prefixes[i] = strings.Repeat("a", i%5) + fmt.Sprintf("%b/%d", i%64, i/3)
		}
		r := rand.New(rand.NewPCG(uint64(n), 0))
		for _, shuffle := range []bool{false, true} {
			m := newPrefixModel()
			if shuffle {
				r.Shuffle(n, func(i, j int) { prefixes[i], prefixes[j] = prefixes[j], prefixes[i] })
			}
			for _, p := range prefixes {
				m.put(p)
			}
			m.check(t)
			if shuffle {
				r.Shuffle(n, func(i, j int) { prefixes[i], prefixes[j] = prefixes[j], prefixes[i] })
			}
			for i, p := range prefixes {
				m.visits(t, p+"0")
				if m.take(p); i%(n/8+1) == 0 {
					m.check(t)
				}
				m.visits(t, p)
			}
			if m.check(t); len(m.root.children) > 0 {
				t.Fatal("nodes are left")
			}
		}
	}
}

// Watchers of one prefix that end together cost as much each as one alone.
func TestPrefix_ManyLeave(t *testing.T) {
	const n = 5000
	m := newPrefixModel()
	for range n {
		m.put("")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		m.take("")
	}
	runtime.ReadMemStats(&after)
	if b := after.TotalAlloc - before.TotalAlloc; b > 1000*n {
		t.Errorf("the end of %d watchers has cost %d bytes", n, b)
	}
	m.check(t)
}

func FuzzPrefix(f *testing.F) {
	f.Add("ab abc abd -ab a -abc b -a ")
	f.Fuzz(func(t *testing.T, words string) {
		m := newPrefixModel()
		for _, w := range strings.Split(words, " ") {
			if p, ok := strings.CutPrefix(w, "-"); ok {
				m.take(p)
			} else {
				m.put(w)
			}
			m.visits(t, w)
			m.check(t)
		}
	})
}

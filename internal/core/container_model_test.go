package core

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// modelSizes are how many items the containers are driven with.
func modelSizes() []int {
	if !*fullModels {
		return []int{0, 1, 2, 3, 24, 25, 63, 64, 65, 127, 128, 129, 1000, 5000}
	}
	sizes := []int{10_000, 32_767, 32_768, 65_535, 65_536, 100_000}
	for n := range 1300 {
		sizes = append(sizes, n)
	}
	return sizes
}

// orders are the numbers below n in several orders.
func orders(n int) map[string][]int {
	up, down := make([]int, n), make([]int, n)
	for i := range n {
		up[i], down[i] = i, n-1-i
	}
	return map[string][]int{"up": up, "down": down, "random": rand.New(rand.NewPCG(uint64(n), 0)).Perm(n)}
}

// eachOrder calls f with every size, and orders to put in and to take out.
func eachOrder(t *testing.T, f func(t *testing.T, in, out []int)) {
	for _, n := range modelSizes() {
		all := orders(n)
		for _, in := range slices.Sorted(maps.Keys(all)) {
			for _, out := range slices.Sorted(maps.Keys(all)) {
				if f(t, all[in], all[out]); t.Failed() {
					t.Fatalf("%d items, put in %s, taken out %s", n, in, out)
				}
			}
		}
	}
}

// seldom says whether a check that costs as much as there are items is due after the
// i-th of n changes.
func seldom(i, n int) bool { return n < 200 || i%(n/8+1) == 0 }

// heapModel is a heap beside what is in it.
type heapModel struct {
	heap[*thing]
	all []*thing
	at  map[*thing]int64
}

func newHeapModel(n int) *heapModel { return &heapModel{all: things(n), at: map[*thing]int64{}} }

func (m *heapModel) put(i int, at int64) {
	m.set(m.all[i], at)
	m.at[m.all[i]] = at
}

func (m *heapModel) take(i int) {
	m.remove(m.all[i])
	delete(m.at, m.all[i])
}

func (m *heapModel) check(t testing.TB) {
	t.Helper()
	if m.len() != len(m.at) {
		t.Fatalf("%d items, want %d", m.len(), len(m.at))
	}
	for i, x := range m.a {
		if want, ok := m.at[x.it]; !ok || want != x.at || int(*x.it.pos()) != i+1 {
			t.Fatalf("%q at place %d says place %d and time %d; want %d %v", x.it.name, i, *x.it.pos(), x.at, want, ok)
		}
		if i > 0 && less(x, m.a[(i-1)/2]) {
			t.Fatalf("%q comes before the one above it", x.it.name)
		}
	}
	if cap(m.a) > leastHeap && cap(m.a) > 16*len(m.a)+16 {
		t.Fatalf("%d items have room for %d", len(m.a), cap(m.a))
	}
}

func TestHeapSizes(t *testing.T) {
	eachOrder(t, func(t *testing.T, in, out []int) {
		m := newHeapModel(len(in))
		for k, i := range in {
			if m.put(i, int64(i/3)); seldom(k, len(in)) {
				m.check(t)
			}
		}
		for k, i := range out { // moved, then taken out
			if m.put(i, int64(len(in)-i)); k%2 == 0 {
				m.take(i)
			}
			if seldom(k, len(in)) {
				m.check(t)
			}
		}
		var last timer[*thing]
		for m.len() > 0 {
			at, x, _ := m.top()
			if next := (timer[*thing]{at, x}); last.it != nil && less(next, last) {
				t.Fatalf("%q comes after %q", x.name, last.it.name)
			} else {
				last = next
			}
			m.remove(x)
			delete(m.at, x)
		}
		m.check(t)
	})
}

func FuzzHeap(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := newHeapModel(256)
		for ; len(b) >= 2; b = b[2:] {
			if b[1]%4 == 0 {
				m.take(int(b[0]))
			} else {
				m.put(int(b[0]), int64(b[1]))
			}
			m.check(t)
		}
	})
}

// slabItem is an item of a slab.
type slabItem struct {
	node
	value int
}

func (r *slabItem) head() *node { return &r.node }

// slabModel is a slab beside what is in it, by slot.
type slabModel struct {
	slab[slabItem, *slabItem]
	has   map[uint32]*slabItem
	freed []uint32 // slots that are free below the highest ever used, in no order
	next  int
}

func (m *slabModel) put(t testing.TB) {
	p := m.alloc(0)
	want := m.n - 1 // a new slot
	if len(m.freed) > 0 {
		at := slices.Index(m.freed, slices.Min(m.freed))
		want = m.freed[at]
		m.freed = slices.Delete(m.freed, at, at+1)
	}
	if p.slot != want || p.value != 0 || !p.live || m.at(want) != p {
		t.Fatalf("slot %d with %d, want %d", p.slot, p.value, want)
	}
	m.next++
	p.value = m.next
	m.has[p.slot] = p
}

func (m *slabModel) take(slot uint32) {
	m.release(m.has[slot])
	delete(m.has, slot)
	m.freed = append(m.freed, slot)
}

func (m *slabModel) check(t testing.TB) {
	t.Helper()
	n := 0
	last := -1
	m.each(func(p *slabItem) {
		n++
		if int(p.slot) <= last || m.has[p.slot] != p || p.value == 0 {
			t.Fatalf("slot %d after %d holds %d", p.slot, last, p.value)
		}
		last = int(p.slot)
	})
	if n != len(m.has) {
		t.Fatalf("%d records, want %d", n, len(m.has))
	}
	for i, page := range m.pages {
		if (page == nil) != (m.used[i] == 0) {
			t.Fatalf("page %d has %d records and is kept: %v", i, m.used[i], page != nil)
		}
	}
}

func newSlabModel() *slabModel { return &slabModel{has: map[uint32]*slabItem{}} }

func TestSlabSizes(t *testing.T) {
	eachOrder(t, func(t *testing.T, in, out []int) {
		n := len(in)
		m := newSlabModel()
		for range in {
			m.put(t)
		}
		m.check(t)
		for k, i := range out[:n/2] {
			if m.take(uint32(i)); seldom(k, n) {
				m.check(t)
			}
		}
		for range min(n/2, 300) { // the lowest are used again
			m.put(t)
		}
		m.check(t)
		for k, slot := range slices.Sorted(maps.Keys(m.has)) {
			if m.take(slot); seldom(k, n) {
				m.check(t)
			}
		}
		m.check(t)
	})
}

func FuzzSlab(f *testing.F) {
	f.Add([]byte{0, 0, 0, 255, 255, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := newSlabModel()
		for _, x := range b {
			if x%2 == 0 {
				for range int(x) + 1 {
					m.put(t)
				}
				continue
			}
			for _, slot := range slices.Sorted(maps.Keys(m.has)) {
				if slot%(uint32(x)+1) != 0 {
					m.take(slot)
				}
			}
			m.check(t)
		}
		m.check(t)
	})
}

// waitModel is a list in order of arrival beside what is in it.
type waitModel struct {
	waitList
	all []part
	has []bool
}

func newWaitModel(n int) *waitModel {
	m := &waitModel{all: make([]part, n), has: make([]bool, n)}
	for i := range m.all {
		m.all[i].c = &claim{arrival: uint64(i)}
	}
	return m
}

func (m *waitModel) flip(i int) {
	if m.has[i] {
		m.remove(&m.all[i])
	} else {
		m.insert(&m.all[i])
	}
	m.has[i] = !m.has[i]
}

func (m *waitModel) check(t testing.TB) {
	t.Helper()
	at, n, near := m.head, 0, m.near == nil
	var prev *part
	for i, in := range m.has {
		if !in {
			continue
		}
		if n++; at != &m.all[i] || at.prev != prev {
			t.Fatalf("number %d is not at its place", i)
		}
		near = near || m.near == at
		prev, at = at, at.next
	}
	if at != nil || m.tail != prev || m.n != n || !near {
		t.Fatalf("%d are listed, want %d; the finger is in the list: %v", m.n, n, near)
	}
}

func TestWaitListSizes(t *testing.T) {
	eachOrder(t, func(t *testing.T, in, out []int) {
		in, out = in[:min(len(in), 20_000)], out[:min(len(out), 20_000)] // at random it is linear
		m := newWaitModel(slices.Max(append(slices.Concat(in, out), -1)) + 1)
		for k, i := range in {
			if m.flip(i); seldom(k, len(in)) {
				m.check(t)
			}
		}
		for k, i := range out {
			if m.flip(i); seldom(k, len(in)) {
				m.check(t)
			}
		}
		m.check(t)
	})
}

func FuzzWaitList(f *testing.F) {
	f.Add([]byte{9, 3, 5, 4, 3, 7, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := newWaitModel(256)
		for _, x := range b {
			m.flip(int(x))
			m.check(t)
		}
	})
}

// stockModel is the data of a session beside what is in it, by number.
type stockModel struct {
	m   *Machine
	s   *session
	has map[uint64]*claim
}

func newStockModel() *stockModel {
	m := New(Config{})
	s := m.newSession(SessionID{1}, m.space(""), &Command{TTL: 1})
	return &stockModel{m: m, s: s, has: map[uint64]*claim{}}
}

func (m *stockModel) flip(seq uint64) {
	if c := m.has[seq]; c != nil {
		m.m.unlink(c)
		m.m.claims.release(c)
		delete(m.has, seq)
		return
	}
	m.has[seq] = m.m.bareClaim(m.s, seq)
}

func (m *stockModel) check(t testing.TB) {
	t.Helper()
	k := m.s.has
	want := slices.Sorted(maps.Keys(m.has))
	at := k.head()
	for i, seq := range want {
		if at == nil || at != m.has[seq] || k.find(seq) != at || i == 0 != (at.prev == nil) {
			t.Fatalf("number %d is not at its place", seq)
		}
		if i > 0 && (k.lastBefore(seq) != at.prev || k.after(want[i-1]) != at || k.after(seq-1) != at) {
			t.Fatalf("number %d is not found from the one before", seq)
		}
		at = at.next
	}
	if at != nil || k.size() != len(want) {
		t.Fatalf("%d claims, want %d", k.size(), len(want))
	}
	if k != nil && k.find(1<<40) != nil || k.after(1<<40) != nil {
		t.Fatal("one is found that is not there")
	}
}

func TestStockSizes(t *testing.T) {
	eachOrder(t, func(t *testing.T, in, out []int) {
		m := newStockModel()
		for k, i := range in {
			if m.flip(1 + 2*uint64(i)); seldom(k, len(in)) {
				m.check(t)
			}
		}
		for k, i := range out {
			if m.flip(1 + 2*uint64(i)); seldom(k, len(in)) {
				m.check(t)
			}
		}
		m.check(t)
	})
}

func FuzzStock(f *testing.F) {
	f.Add([]byte{9, 3, 5, 4, 3, 7, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := newStockModel()
		for _, x := range b {
			m.flip(1 + uint64(x))
			m.check(t)
		}
	})
}

// TestResultSizes: results are found by their numbers, however many there are, until
// the mark has passed them.
func TestResultSizes(t *testing.T) {
	for _, n := range modelSizes() {
		for name, in := range orders(n) {
			m := newStockModel()
			m.s.mark = 1
			for _, i := range in {
				m.m.newDone(m.s, 1+uint64(i), CodeOK)
			}
			for mark := uint64(1); ; mark += max(1, uint64(n/5)) {
				m.m.acknowledge(m.s, mark)
				for seq := range uint64(n) + 2 {
					d := m.s.has.result(seq)
					if in := seq >= mark && seq >= 1 && seq <= uint64(n); (d != nil) != in || in && d.seq != seq {
						t.Fatalf("%s: of %d with the mark %d number %d is there: %v", name, n, mark, seq, d != nil)
					}
				}
				if mark > uint64(n) {
					break
				}
			}
			if live := len(m.m.dones.pages); n > 0 && m.m.dones.used[0] != 0 {
				t.Fatalf("%s: results are left on %d pages", name, live)
			}
		}
	}
}

// TestWithoutSizes: a map from which most is taken keeps the rest.
func TestWithoutSizes(t *testing.T) {
	eachOrder(t, func(t *testing.T, in, out []int) {
		m, peak := map[int]int{}, 0
		for _, i := range in {
			m[i] = i
		}
		for k, i := range out {
			m = without(m, i, &peak)
			if _, ok := m[i]; ok || len(m) != len(in)-k-1 {
				t.Fatalf("after %d there are %d", k+1, len(m))
			}
			if seldom(k, len(in)) {
				for _, j := range out[k+1:] {
					if m[j] != j {
						t.Fatalf("%d is lost", j)
					}
				}
			}
		}
	})
}

package core

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// idleModel is the list of free names beside the names in the order in which they
// became free.
type idleModel struct {
	*Machine
	names []*resource
	since map[*resource]int // its place in order
	order []*resource       // nil: taken again
}

func newIdleModel(n int) *idleModel {
	m := &idleModel{Machine: New(Config{Idle: n + 1}), since: map[*resource]int{}}
	for i := range n {
		m.names = append(m.names, m.name(m.space("a"), fmt.Sprint("n/", i), Mutex, 1))
	}
	return m
}

func (m *idleModel) free(i int) {
	r := m.names[i]
	m.rest(r)
	m.since[r] = len(m.order)
	m.order = append(m.order, r)
}

func (m *idleModel) take(i int) {
	r := m.names[i]
	m.unrest(r)
	r.ns.inUse++
	m.order[m.since[r]] = nil
	delete(m.since, r)
}

// check walks the list both ways.
func (m *idleModel) check(t *testing.T) {
	t.Helper()
	at, last := m.idle.first, (*resource)(nil)
	for _, want := range m.order {
		if want == nil {
			continue
		}
		if at != want || at.prevIdle != last || !at.idle {
			t.Fatalf("the list has %v, want %s", at, want.name)
		}
		at, last = at.nextIdle, at
	}
	if at != nil || m.idle.last != last || m.idle.n != len(m.since) {
		t.Fatalf("%d names are free, want %d; or the list has another end", m.idle.n, len(m.since))
	}
}

func TestIdleSizes(t *testing.T) {
	eachOrder(t, func(t *testing.T, in, out []int) {
		m := newIdleModel(len(in))
		for k, i := range in {
			if m.free(i); seldom(k, len(in)) {
				m.check(t)
			}
		}
		for k, i := range out {
			if m.take(i); seldom(k, len(in)) {
				m.check(t)
			}
			if k%3 == 0 { // and free once more
				m.free(i)
			}
		}
		m.check(t)
	})
}

// The sweep forgets the names that were longest free, and as many as are too many.
func TestIdleSweep(t *testing.T) {
	for _, n := range modelSizes() {
		m := newIdleModel(n)
		for _, i := range rand.New(rand.NewPCG(uint64(n), 0)).Perm(n) {
			m.free(i)
		}
		m.cfg.Idle = n / 3
		m.sweep()
		for _, r := range m.order[:n-n/3] {
			delete(m.since, r)
		}
		m.order = m.order[n-n/3:]
		m.check(t)
		if left := len(m.space("a").names); left != n/3 {
			t.Fatalf("%d of %d names are remembered, want %d", left, n, n/3)
		}
	}
}

// endedModel is the ids of ended sessions of one namespace beside all that were ever
// refused, of which the first ones are forgotten.
type endedModel struct {
	*Machine
	ns   *namespace
	ids  []SessionID
	at   []int64
	from int // what is before is forgotten
}

func (m *endedModel) end(k int) {
	var id SessionID
	copy(id[:], fmt.Sprintf("%016d", k))
	for n := 0; n < mostAllowed && m.from < len(m.ids) && (len(m.ids)-m.from >= m.cfg.Ended || m.at[m.from]+m.cfg.EndedFor <= m.now); n++ {
		m.from++
	}
	m.refuseID(id, m.ns)
	m.ids, m.at = append(m.ids, id), append(m.at, m.now)
}

func (m *endedModel) check(t *testing.T) {
	t.Helper()
	e := m.ns.ended.first
	var last *ended
	for i := m.from; i < len(m.ids); i++ {
		if e == nil || e.id != m.ids[i] || e.at != m.at[i] || m.endedIDs[e.id] != e {
			t.Fatalf("place %d of the list has %v, want %v", i-m.from, e, m.ids[i])
		}
		e, last = e.next, e
	}
	if e != nil || m.ns.ended.last != last || m.ns.ended.n != len(m.ids)-m.from || len(m.endedIDs) != len(m.ids)-m.from {
		t.Fatalf("%d ids are refused, %d by name; want %d", m.ns.ended.n, len(m.endedIDs), len(m.ids)-m.from)
	}
	for i, id := range m.ids {
		if i%(len(m.ids)/100+1) != 0 {
			continue
		}
		if got, want := m.hasEnded(id), i >= m.from && m.now < m.at[i]+m.cfg.EndedFor; got != want {
			t.Fatalf("id %d of %d is refused: %v, want %v", i, len(m.ids), got, want)
		}
	}
}

// However many sessions end, as many ids as asked are refused, for as long as asked, and
// those that nobody can be waiting to send any more are forgotten, some with each.
func TestEndedSizes(t *testing.T) {
	for _, n := range modelSizes() {
		for _, most := range []int{1, 100, 1 << 30} {
			m := &endedModel{Machine: New(Config{Ended: most})}
			m.ns = m.space("a")
			r := rand.New(rand.NewPCG(uint64(n), uint64(most)))
			for k := range n {
				m.now += m.cfg.EndedFor * int64(r.IntN(3)) / int64(n)
				if r.IntN(n) == 0 {
					m.now += m.cfg.EndedFor
				}
				if m.end(k); seldom(k, n) {
					m.check(t)
				}
			}
			m.check(t)
		}
	}
}

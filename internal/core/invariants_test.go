package core

import (
	"fmt"
	"maps"
)

// Invariants looks at everything that a machine keeps beside its primary tables, and
// says what does not follow from them; nil: all does.
func Invariants(m *Machine) (err error) {
	wrong := func(format string, args ...any) {
		if err == nil {
			err = fmt.Errorf(format, args...)
		}
	}
	held, waits := map[*resource]int{}, map[*resource]int{}
	m.claims.each(func(c *claim) {
		for i := range c.parts() {
			switch p := &c.parts()[i]; p.place {
			case inHolders:
				held[p.r]++
			case inQueue, inLater, inSet, inUpgrade:
				waits[p.r]++
			}
		}
	})
	dirty := 0
	m.resources.each(func(r *resource) {
		if r.dirty() {
			dirty++
		}
		if r.holders.n != held[r] || (r.queue != nil) != (waits[r] > 0) {
			wrong("%q has %d holders, want %d; a line: %v, for %d", r.name, r.holders.n, held[r], r.queue != nil, waits[r])
		}
		r.checkHolders(wrong)
		if r.queue != nil {
			r.checkLine(waits[r], wrong)
		}
		if r.idle && (held[r] > 0 || waits[r] > 0) || r.ns.names[r.name] != r {
			wrong("%q is idle though in use, or not found by its name", r.name)
		}
	})
	if dirty != m.dirty.len() {
		wrong("%d names are to be served, %d are listed", dirty, m.dirty.len())
	}
	m.sessions.each(func(s *session) { s.checkStock(wrong) })
	for i, t := range m.sessionDue.a {
		if t.at != t.it.due || int(t.it.heapPos) != i+1 || i > 0 && less(t, m.sessionDue.a[(i-1)/2]) {
			wrong("a session is due at %d, and is told as due at %d, or is out of its place", t.it.due, t.at)
		}
	}
	for name, ns := range m.spaces {
		checkNames(&ns.order, len(ns.names), func(r *resource) bool { return ns.names[r.name] == r }, name, wrong)
		checkNames(&ns.keyOrder, len(ns.keys), func(k *key) bool { return ns.keys[k.name] == k }, name, wrong)
	}
	return err
}

func checkNames[T interface{ id() string }](t *tree[string, T], want int, known func(T) bool, ns string, wrong func(string, ...any)) {
	n, last := 0, ""
	t.from("", func(it T) bool {
		if n > 0 && it.id() <= last || !known(it) {
			wrong("%q of %q is out of order, or not found by its name", it.id(), ns)
		}
		n, last = n+1, it.id()
		return true
	})
	if n != want || t.n != want {
		wrong("%q has %d in order, says %d, and finds %d by name", ns, n, t.n, want)
	}
}

func (r *resource) checkHolders(wrong func(string, ...any)) {
	used, orphans, late, lateTakes := int64(0), 0, 0, int64(0)
	token := uint64(0)
	for p := r.holders.head; p != nil; p = p.next {
		used += p.takes()
		if p.c.token <= token {
			wrong("the holders of %q are not in order of token", r.name)
		}
		if token = p.c.token; r.holderWith(token) != p {
			wrong("the holder of %q with token %d is not found", r.name, token)
		}
		if p.c.s == nil {
			orphans++
		}
		if p.late {
			late, lateTakes = late+1, lateTakes+p.takes()
		}
		if p.reclaimable(nil) && !p.late {
			wrong("the holder of %q with token %d may be taken from, but is not noted", r.name, token)
		}
	}
	if used != r.used {
		wrong("of %q %d is used, want %d", r.name, r.used, used)
	}
	crowded := late+orphans > 0 || r.holders.n > indexHolders
	if c := r.crowd; c == nil && crowded || c != nil && (!crowded && c.byToken.n == 0 || c.late.n != late || c.takes != lateTakes || c.orphans != orphans ||
		c.byToken.n > 0 && c.byToken.n != r.holders.n || c.byToken.n == 0 && r.holders.n > indexHolders) {
		wrong("of the %d holders of %q %d are late and %d nobody's: %+v", r.holders.n, r.name, late, orphans, c)
	}
}

func (r *resource) checkLine(waits int, wrong func(string, ...any)) {
	l := r.queue
	if l.waiting() != waits {
		wrong("%d wait for %q, want %d", l.waiting(), r.name, waits)
	}
	reserved, weights := int64(0), map[int64]int{}
	for _, list := range [...]*waitList{&l.order, &l.later, &l.set} {
		n, near := 0, list.near == nil
		for p := list.head; p != nil; p = p.next {
			n++
			near = near || p == list.near
			if p.weight > 1 {
				weights[p.weight]++
			}
			if p.next == nil && list.tail != p || p.next != nil && (p.next.prev != p || p.next.c.arrival < p.c.arrival) {
				wrong("the waiters of %q are linked wrongly, or out of order", r.name)
			}
			if list == &l.set {
				reserved += p.takes()
			}
		}
		if n != list.n || !near {
			wrong("a list of %q says %d, and has %d; its finger is in it: %v", r.name, list.n, n, near)
		}
	}
	if reserved != l.reserved || !maps.Equal(weights, l.weights) {
		wrong("of %q %d is reserved, want %d; weights are %v, want %v", r.name, l.reserved, reserved, l.weights, weights)
	}
}

func (s *session) checkStock(wrong func(string, ...any)) {
	if s.has == nil {
		return
	}
	n, held, replaced, seq := 0, 0, 0, uint64(0)
	for c := s.has.first; c != nil; c = c.next {
		n++
		switch c.state {
		case granted, revoked:
			held++
		case over:
			replaced++
		}
		if c.s != s || c.seq <= seq && n > 1 || s.has.find(c.seq) != c || c.next == nil && s.has.last != c {
			wrong("claim %d of %x is out of order, or not found by its number", c.seq, s.id)
		}
		seq = c.seq
	}
	kept := 0
	for _, d := range s.has.results {
		if d != nil {
			kept += len(d.rest)
		}
	}
	if kept != s.has.kept {
		wrong("%x keeps %d bytes of results, and says %d", s.id, kept, s.has.kept)
	}
	if n != s.has.claims || held != s.has.held || replaced != s.has.over || s.has.index.n > 0 && s.has.index.n != n {
		wrong("%x has %d claims and %d holds, says %d and %d, and finds %d by number", s.id, n, held, s.has.claims, s.has.held, s.has.index.n)
	}
}

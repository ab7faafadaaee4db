package core

import (
	"encoding/binary"
	"fmt"
)

// Reseal makes one chunk of records into a whole snapshot whose checks are
// right, so that tests can say anything in it.
func Reseal(chunk []byte) [][]byte {
	r := open(chunk, tagSnapshot)
	if r.err != nil {
		return [][]byte{chunk}
	}
	r.uvarint()
	v := &View{}
	out := binary.AppendUvarint(header(nil, tagSnapshot), 0)
	for r.err == nil && r.rest() > 0 {
		table := int(r.byte()) % tables
		if body := r.span(); r.err == nil && table != tableEnd {
			out = v.append(out, table, body)
		}
	}
	end := binary.LittleEndian.AppendUint64(binary.AppendUvarint(nil, v.records), v.sum)
	out = v.append(out, tableEnd, end)
	var seal digest
	addBytes(&seal, out)
	return [][]byte{binary.LittleEndian.AppendUint64(out, uint64(seal))}
}

// Untouched opens a view and returns a check that every record which the
// machine says it has not changed since is still as it was; "": all are.
func Untouched(m *Machine) (check func() string, done func()) {
	v := m.View()
	was, nodes := map[string]string{}, map[string]*node{}
	each(m, func(key string, n *node, r record) { was[key], nodes[key] = string(r.encode(nil)), n })
	return func() (wrong string) {
		for key, n := range nodes {
			if !n.live && n.seen < v.epoch {
				wrong = key + " is gone"
			}
		}
		each(m, func(key string, n *node, r record) {
			if now := string(r.encode(nil)); n.seen < v.epoch && was[key] != now {
				wrong = fmt.Sprintf("%s was %q and is %q", key, was[key], now)
			}
		})
		return wrong
	}, v.Close
}

func each(m *Machine, f func(key string, n *node, r record)) {
	visit := func(n *node, r record) {
		if !r.hidden() {
			f(fmt.Sprint(r.table(), " ", n.slot), n, r)
		}
	}
	m.sessions.each(func(s *session) { visit(&s.node, s) })
	m.resources.each(func(r *resource) { visit(&r.node, r) })
	m.claims.each(func(c *claim) { visit(&c.node, c) })
	m.dones.each(func(d *done) { visit(&d.node, d) })
	m.keys.each(func(k *key) { visit(&k.node, k) })
	m.endeds.each(func(e *ended) { visit(&e.node, e) })
	m.usages.each(func(u *usage) { visit(&u.node, u) })
}

// Reserved is how many claims have a name set aside that they do not hold yet.
func Reserved(m *Machine, ns, name string) int {
	if r := m.known(ns).lookup(name); r != nil && r.queue != nil {
		return r.queue.set.n
	}
	return 0
}

// Untold counts what an entry may change without telling it: keys of limiters, names that
// are set aside, and how far the walks over claims are that need nothing done.
func Untold(m *Machine) (counts [3]uint64) {
	counts[0] = uint64(Usages(m))
	m.sessions.each(func(s *session) {
		if c := s.has.at(); c != nil {
			counts[2] += c.seq
		}
	})
	m.resources.each(func(r *resource) {
		if r.queue != nil {
			counts[1] += uint64(r.queue.set.n)
		}
	})
	return counts
}

// EndedIDs is how many ids of ended sessions are remembered.
func EndedIDs(m *Machine) int { return len(m.endedIDs) }

// RestoredVersion is what is wrong with a snapshot that tells that version.
func RestoredVersion(version uint8) error {
	m := New(Config{})
	m.version = BaseVersion + 1
	own := m.appendSelf(nil)
	own[len(own)-1] = version
	r := reader{b: own}
	New(Config{}).readSelf(&r)
	return r.end()
}

// OfNext is a snapshot that a program of the next version begins with a record that this one does not
// know; kind: also its machine has one of a kind of its own.
func OfNext(kind bool) []byte {
	m := New(Config{})
	m.version = EntryVersion + 1
	own := m.appendSelf(nil)
	if kind {
		m.version = BaseVersion
		own = append(m.appendSelf(nil), "new"...)
		own[len(own)-4] = selfLimits + 1
	}
	v := m.View()
	defer v.Close()
	chunk := binary.AppendUvarint(header(nil, tagSnapshot), 0)
	chunk = v.append(v.append(chunk, tableMachine, own), 99, []byte("new"))
	var seal digest
	addBytes(&seal, chunk)
	return binary.LittleEndian.AppendUint64(chunk, uint64(seal))
}

// Reword gives all kept refusals another text, as another program would, and returns how
// many there are.
func Reword(m *Machine, text string) (n int) {
	m.dones.each(func(d *done) {
		if d.rest == nil {
			return
		}
		var res Result
		r := reader{b: d.rest}
		if r.result(&res); res.Text != "" {
			res.Text = text
			d.rest, n = appendResult(nil, &res), n+1
		}
	})
	return n
}

// LimitKeys is how many keys the limiters of a namespace remember, and how many
// records of keys there are in all, those of limiters that are gone among them.
func LimitKeys(m *Machine, ns string) (remembered, records int) {
	return m.known(ns).limitKeys, Usages(m)
}

// Usages is how many records of keys of limiters there are.
func Usages(m *Machine) (n int) {
	m.usages.each(func(*usage) { n++ })
	return n
}

package core

import (
	"encoding/binary"
	"slices"
	"strings"
)

// View is the machine as it was when View was called, to be written as a
// snapshot piece by piece while the machine goes on: the machine saves a record
// for it before it first changes it. Close it when done.
type View struct {
	m       *Machine
	epoch   uint32
	first   []byte   // the machine's own fields
	kept    [][]byte // saved records, encoded
	table   int
	slot    uint32 // next to look at; names are walked in order instead
	slots   [tables]uint32
	spaces  []*namespace // with names still to be walked
	name    string       // the last name that was walked
	number  uint64       // of the next chunk
	seal    digest       // of all chunks so far
	sum     uint64
	records uint64
	ended   bool
	bare    bool // to be compared only
}

// The tables of a snapshot.
const (
	tableMachine = iota
	tableSessions
	tableResources
	tableClaims
	tableDones
	tableKeys
	tableEnded
	tableEnd // closes the last chunk
	tableUsages
	tables
)

// record is what a snapshot consists of.
type record interface {
	table() int
	hidden() bool // not part of a snapshot: it can be told from the rest
	encode(dst []byte) []byte
}

// View begins a snapshot of the machine as it is now. It costs no more for a
// great machine than for a small one.
func (m *Machine) View() *View {
	m.epoch++
	v := &View{m: m, epoch: m.epoch, first: m.appendSelf(nil), table: tableSessions}
	v.slots = [tables]uint32{0, m.sessions.n, 0, m.claims.n, m.dones.n, m.keys.n, m.endeds.n, 0, m.usages.n}
	for _, ns := range m.spaces {
		v.spaces = append(v.spaces, ns)
	}
	slices.SortFunc(v.spaces, func(a, b *namespace) int { return strings.Compare(a.name, b.name) })
	m.views = append(m.views, v)
	return v
}

// CheckView is a View that is only used for its Sum: that leaves out what programs of one
// version may say in other words, the texts of refusals.
func (m *Machine) CheckView() *View {
	v := m.View()
	v.bare = true
	return v
}

// Close lets the machine save nothing for v any more. Next must not follow.
func (v *View) Close() {
	v.m.views = slices.DeleteFunc(v.m.views, func(o *View) bool { return o == v })
	v.kept = nil
}

// Sum is a hash of the whole state that does not depend on the order in which
// it was written: equal machines have equal sums. It is complete after the last
// chunk.
func (v *View) Sum() uint64 { return v.sum }

// Next appends the next chunk to dst, of about size bytes or one record if that
// is greater, and says whether it was the last. Chunks of one view belong
// together and are checked as a whole when they are restored. Next must not run
// at the same time as the machine's own methods.
func (v *View) Next(dst []byte, size int) (chunk []byte, done bool) {
	begin := len(dst)
	dst = header(dst, tagSnapshot)
	dst = binary.AppendUvarint(dst, v.number)
	if v.number == 0 {
		dst = v.append(dst, tableMachine, v.first)
	}
	v.number++
	end := max(begin+size, len(dst)+1)
	dst = v.drain(dst, end)
	dst = v.walk(dst, end)
	if done = v.table == tables && len(v.kept) == 0; done {
		var end []byte
		end = binary.AppendUvarint(end, v.records)
		end = binary.LittleEndian.AppendUint64(end, v.sum)
		dst = v.append(dst, tableEnd, end)
		v.ended = true
	}
	addBytes(&v.seal, dst[begin:])
	return binary.LittleEndian.AppendUint64(dst, uint64(v.seal)), done
}

// drain writes saved records.
func (v *View) drain(dst []byte, end int) []byte {
	for len(v.kept) > 0 && len(dst) < end {
		dst = append(dst, v.kept[0]...)
		v.kept[0] = nil
		v.kept = v.kept[1:]
	}
	return dst
}

// maxWalk bounds the records that one chunk looks at, written or not.
const maxWalk = 1 << 14

// walk writes records that have not changed since the view began. It goes by
// slot and by name, never by what it finds, so that equal machines that stand
// still write the same bytes.
func (v *View) walk(dst []byte, end int) []byte {
	for left := maxWalk; left > 0 && len(dst) < end && v.table < tables; left-- {
		switch {
		case v.table == tableResources && len(v.spaces) > 0:
			dst = v.walkNames(dst, end, &left)
		case v.slot == v.slots[v.table]:
			v.table++
			v.slot = 0
		default:
			n, r := v.m.recordAt(v.table, v.slot)
			if n == nil { // nor in the rest of the page
				v.slot = min(v.slot|(pageLen-1), v.slots[v.table]-1)
			}
			v.slot++
			dst = v.visit(dst, n, r)
		}
	}
	return dst
}

// walkNames walks over the names of the first namespace.
func (v *View) walkNames(dst []byte, end int, left *int) []byte {
	over := true
	v.spaces[0].order.from(v.name, func(r *resource) bool {
		if *left--; *left < 0 || len(dst) >= end {
			over = false
			return false
		}
		if r.name != v.name {
			dst = v.visit(dst, &r.node, r)
			v.name = r.name
		}
		return true
	})
	if over {
		v.spaces, v.name = v.spaces[1:], ""
	}
	return dst
}

func (v *View) visit(dst []byte, n *node, r record) []byte {
	if n != nil && n.live && n.seen < v.epoch && !r.hidden() {
		return v.write(dst, n.slot, r)
	}
	return dst
}

// recordAt returns what lies at a slot; nil if nothing ever did.
func (m *Machine) recordAt(table int, slot uint32) (*node, record) {
	switch table {
	case tableSessions:
		return found(m.sessions.at(slot))
	case tableClaims:
		return found(m.claims.at(slot))
	case tableDones:
		return found(m.dones.at(slot))
	case tableKeys:
		return found(m.keys.at(slot))
	case tableEnded:
		return found(m.endeds.at(slot))
	default:
		return found(m.usages.at(slot))
	}
}

func found[P interface {
	comparable
	record
	head() *node
}](p P) (*node, record) {
	var none P
	if p == none {
		return nil, nil
	}
	return p.head(), p
}

func (v *View) write(dst []byte, slot uint32, r record) []byte {
	v.m.encoding = v.m.encoding[:0]
	if r.table() != tableResources {
		v.m.encoding = binary.AppendUvarint(v.m.encoding, uint64(slot))
	}
	if d, ok := r.(*done); ok && v.bare && d.rest != nil {
		r = d.textless()
	}
	v.m.encoding = r.encode(v.m.encoding)
	return v.append(dst, r.table(), v.m.encoding)
}

// append writes one record and counts it.
func (v *View) append(dst []byte, table int, body []byte) []byte {
	dst = append(dst, byte(table))
	begin := len(dst)
	dst = appendString(dst, body)
	if table != tableEnd {
		d := digest(table)
		addBytes(&d, dst[begin:])
		v.sum += uint64(d)
		v.records++
	}
	return dst
}

const keptSize = 64 << 10

// keep saves a record that is about to change.
func (v *View) keep(slot uint32, r record) {
	if r.hidden() || v.ended {
		return
	}
	last := len(v.kept) - 1
	if last < 0 || len(v.kept[last]) > keptSize-1024 {
		v.kept = append(v.kept, make([]byte, 0, keptSize))
		last++
	}
	v.kept[last] = v.write(v.kept[last], slot, r)
}

// passed says whether the walk has seen the record.
func (v *View) passed(slot uint32, r record) bool {
	if v.table != r.table() {
		return v.table > r.table()
	}
	res, ok := r.(*resource)
	if !ok {
		return v.slot > slot
	}
	if len(v.spaces) == 0 || res.ns.name != v.spaces[0].name {
		return len(v.spaces) == 0 || res.ns.name < v.spaces[0].name
	}
	return res.name <= v.name
}

// save keeps r for every open view that still needs it as it is.
func (m *Machine) save(n *node, r record) {
	if n.seen == m.epoch {
		return
	}
	for _, v := range m.views {
		if n.seen < v.epoch && !v.passed(n.slot, r) {
			v.keep(n.slot, r)
		}
	}
	n.seen = m.epoch
}

// Every change of a record that a snapshot holds is preceded by one of these.

func (m *Machine) touchSession(s *session) {
	if len(m.views) > 0 {
		m.save(&s.node, s)
	}
}

func (m *Machine) touchResource(r *resource) {
	if len(m.views) > 0 {
		m.save(&r.node, r)
	}
}

func (m *Machine) touchClaim(c *claim) {
	if len(m.views) > 0 {
		m.save(&c.node, c)
	}
}

func (m *Machine) touchDone(d *done) {
	if len(m.views) > 0 {
		m.save(&d.node, d)
	}
}

func (m *Machine) touchKey(k *key) {
	if len(m.views) > 0 {
		m.save(&k.node, k)
	}
}

func (m *Machine) touchEnded(e *ended) {
	if len(m.views) > 0 {
		m.save(&e.node, e)
	}
}

// touchUsage is for nil too.
func (m *Machine) touchUsage(u *usage) {
	if len(m.views) > 0 && u != nil {
		m.save(&u.node, u)
	}
}

package core

import (
	"encoding/binary"
	"fmt"
)

// What a snapshot holds of each record. References are by id and name; lists,
// sums, heaps and indexes are not written: they follow from the rest.

func (s *session) table() int  { return tableSessions }
func (r *resource) table() int { return tableResources }
func (c *claim) table() int    { return tableClaims }
func (d *done) table() int     { return tableDones }
func (k *key) table() int      { return tableKeys }
func (e *ended) table() int    { return tableEnded }
func (u *usage) table() int    { return tableUsages }

func (s *session) hidden() bool  { return false }
func (r *resource) hidden() bool { return r.idle }
func (c *claim) hidden() bool    { return false }
func (d *done) hidden() bool     { return false }
func (k *key) hidden() bool      { return false }
func (e *ended) hidden() bool    { return false }
func (u *usage) hidden() bool    { return false }

func uvarints(dst []byte, list ...uint64) []byte {
	for _, x := range list {
		dst = binary.AppendUvarint(dst, x)
	}
	return dst
}

func (m *Machine) appendSelf(dst []byte) []byte {
	c := &m.cfg
	dst = uvarints(dst, c.Revision, c.Window, uint64(c.Waiters), uint64(c.Budget), uint64(c.MaxTTL), uint64(c.EndedFor),
		uint64(c.Ended), uint64(c.Name), uint64(c.Meta), uint64(c.Ops), uint64(c.Result), uint64(c.Sessions),
		uint64(c.Names), uint64(c.Keys), uint64(c.Holds), uint64(c.Idle))
	dst = binary.AppendVarint(dst, m.now)
	dst = uvarints(dst, m.revision, uint64(m.ordinal), m.serial, m.hash)
	dst = appendBool(dst, m.frozen)
	if m.version == BaseVersion {
		return append(dst, selfDirty)
	}
	dst = append(dst, selfLimits)
	dst = uvarints(dst, uint64(m.limitKeys), m.limiters)
	dst = binary.AppendVarint(dst, m.date)
	return append(appendBool(dst, m.dated), m.version)
}

// What follows in the machine's own record.
const (
	// selfDirty: names tell whether they are to be served. Snapshots of before do not:
	// they were never left with any, except while frozen.
	selfDirty = 1
	// selfVersion: that, and the machine's version follows. Without it that is
	// BaseVersion.
	selfVersion = 2
	// selfLimits: before the version there are the quota of limiters' keys, how many
	// rates were ever set, and the date.
	selfLimits = 3
)

func (r *reader) size() int {
	n := r.uvarint()
	if n > 1<<63-1 {
		r.fail("size out of range")
	}
	return int(n)
}

// readSelf reads it; early: of a snapshot that does not tell what is to be served.
func (m *Machine) readSelf(r *reader) (early bool) {
	m.cfg = Config{
		Revision: r.uvarint(), Window: r.uvarint(), Waiters: r.size(), Budget: r.size(), MaxTTL: r.duration(),
		EndedFor: r.duration(), Ended: r.size(), Name: r.size(), Meta: r.size(), Ops: r.size(), Result: r.size(),
		Sessions: r.size(), Names: r.size(), Keys: r.size(), Holds: r.size(), Idle: r.size(),
	}
	if r.err == nil && m.cfg != m.cfg.withDefaults() {
		r.fail("a limit is zero")
	}
	m.now = r.varint()
	m.revision = r.uvarint()
	m.ordinal = uint32(r.uvarint())
	m.serial = r.uvarint()
	m.hash = r.uvarint()
	m.frozen = r.flag(r.byte())
	if r.rest() == 0 {
		return true
	}
	switch r.byte() {
	case selfDirty:
	case selfVersion:
		m.version = r.version()
	case selfLimits:
		m.limitKeys, m.limiters, m.date, m.dated = r.size(), r.uvarint(), r.varint(), r.flag(r.byte())
		m.version = r.version()
	default:
		r.err = fmt.Errorf("%w of a snapshot: its kind is none that this program knows", ErrVersion)
	}
	return false
}

// version reads that of a machine.
func (r *reader) version() uint8 {
	v := r.byte()
	switch {
	case r.err != nil:
	case v > EntryVersion:
		r.err = fmt.Errorf("%w %d of a snapshot: this program knows version %d", ErrVersion, v, EntryVersion)
	case v <= BaseVersion:
		r.fail("a version that is told by silence")
	}
	return v
}

func flags(bits ...bool) (b byte) {
	for i, on := range bits {
		if on {
			b |= 1 << i
		}
	}
	return b
}

func (s *session) encode(dst []byte) []byte {
	dst = append(dst, s.id[:]...)
	dst = append(dst, byte(s.life), byte(s.work), byte(s.policy), flags(s.fleeting, s.revoked, s.asked, s.atOnce, s.told))
	for _, text := range [...]string{s.ns.name, s.identity, s.owner, s.meta} {
		dst = appendString(dst, text)
	}
	for _, t := range [...]int64{s.deadline, s.due, s.ttl, s.grace, s.openedAt} {
		dst = binary.AppendVarint(dst, t)
	}
	dst = uvarints(dst, s.window, s.mark, s.opened, s.order)
	cursor := uint64(0)
	if c := s.has.at(); c != nil {
		cursor = c.seq
	}
	return binary.AppendUvarint(dst, cursor)
}

func (r *reader) session(m *Machine, s *session) (cursor uint64) {
	s.id = r.id()
	s.life, s.work = life(r.enum(byte(ending), "life")), work(r.enum(byte(freeing), "work"))
	t := terms{policy: Policy(r.enum(byte(Never), "policy"))}
	f := r.enum(31, "flags")
	t.fleeting, s.revoked, s.asked, s.atOnce, s.told = f&1 != 0, f&2 != 0, f&4 != 0, f&8 != 0, f&16 != 0
	t.ns = m.space(r.string())
	t.identity, t.owner, t.meta = r.string(), r.string(), r.string()
	s.deadline, s.due, t.ttl, t.grace, s.openedAt = r.varint(), r.varint(), r.varint(), r.varint(), r.varint()
	t.window, s.mark, s.opened, s.order = r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint()
	s.terms = m.recent.share(&t)
	return r.uvarint()
}

func (r *resource) encode(dst []byte) []byte {
	dst = append(dst, byte(r.kind), flags(r.unsigned, r.dirty()))
	dst = appendString(dst, r.ns.name)
	dst = appendString(dst, r.name)
	dst = binary.AppendVarint(dst, r.limit)
	dst = uvarints(dst, r.number, r.created, r.modified, r.version)
	if r.kind != Limiter {
		return dst
	}
	dst = binary.AppendUvarint(dst, r.limiter.number)
	return appendRate(dst, &r.limiter.rate)
}

// resource reads a name; it is refused if the machine has it already.
func (r *reader) resource(m *Machine) {
	kind := Kind(r.enum(byte(Limiter), "kind"))
	f := r.enum(3, "flags")
	ns := m.space(r.string())
	name, limit := r.string(), r.varint()
	if r.err == nil && (kind == 0 || ns.names[name] != nil || limit < 0) {
		r.fail("a name of no kind, twice, or with a negative limit")
	}
	if r.err != nil {
		return
	}
	res := m.name(ns, name, kind, limit)
	res.limit, res.unsigned = limit, f&1 != 0
	if f&2 != 0 {
		m.markDirty(res)
	}
	res.number, res.created, res.modified, res.version = r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint()
	if kind == Limiter {
		res.limiter = r.limiter(ns)
	}
}

func (c *claim) encode(dst []byte) []byte {
	dst = uvarints(dst, c.arrival)
	dst = append(dst, byte(c.state), byte(c.reason), flags(c.s != nil, c.rare != nil, c.twin != nil, c.rare != nil && c.rare.owner != ""))
	if c.s != nil {
		dst = append(dst, c.s.id[:]...)
	} else {
		dst = appendString(dst, c.one0().r.ns.name)
	}
	dst = uvarints(dst, c.seq, c.token, c.created, c.modified, uint64(c.version))
	dst = binary.AppendVarint(dst, c.since)
	dst = binary.AppendVarint(dst, c.deadline)
	if c.rare != nil {
		dst = uvarints(dst, uint64(c.rare.maxHold), uint64(c.rare.minHold), uint64(c.rare.delay))
		dst = appendString(dst, c.rare.value)
		if c.rare.owner != "" {
			dst = appendString(dst, c.rare.owner)
		}
	}
	if c.twin != nil {
		dst = binary.AppendUvarint(dst, c.twin.seq)
	}
	parts := c.parts()
	dst = binary.AppendUvarint(dst, uint64(len(parts)))
	if c.many != nil {
		dst = binary.AppendUvarint(dst, uint64(c.many.at))
	}
	for i := range parts {
		p := &parts[i]
		dst = appendString(dst, p.r.name)
		dst = append(dst, byte(p.mode), byte(p.place))
		dst = binary.AppendVarint(dst, p.weight)
	}
	return dst
}

func (c *claim) one0() *part { return &c.parts()[0] }

func (d *done) encode(dst []byte) []byte {
	dst = append(dst, d.s.id[:]...)
	dst = append(dst, byte(d.code), flags(d.ok, d.gone))
	dst = uvarints(dst, d.seq, d.revision, d.token, uint64(d.deadline), d.number)
	return appendString(dst, d.rest)
}

// textless is d without the text of a refusal.
func (d *done) textless() *done {
	var res Result
	r := reader{b: d.rest}
	r.result(&res)
	res.Text = ""
	c := *d
	c.rest = appendResult(nil, &res)
	return &c
}

func (k *key) encode(dst []byte) []byte {
	dst = appendString(dst, k.ns.name)
	row := k.row()
	return appendKey(dst, &row)
}

func (e *ended) encode(dst []byte) []byte {
	dst = append(dst, e.id[:]...)
	dst = appendString(dst, e.ns.name)
	dst = binary.AppendVarint(dst, e.at)
	return binary.AppendUvarint(dst, e.order)
}

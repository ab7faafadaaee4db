package core

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Restorer makes a machine of the chunks of one view, given in order.
type Restorer struct {
	number  uint64
	seal    digest
	sum     uint64
	records uint64
	bodies  [tables][][]byte
	ended   bool
	err     error
}

// NewRestorer returns a Restorer that has seen nothing.
func NewRestorer() *Restorer { return &Restorer{} }

// Write takes the next chunk, of which it keeps nothing. A chunk that is
// damaged, missing or out of order is an error, then and ever after.
func (x *Restorer) Write(chunk []byte) error {
	if x.err == nil {
		x.err = x.write(bytes.Clone(chunk))
	}
	return x.err
}

func (x *Restorer) write(b []byte) error {
	if len(b) < 8 {
		return fmt.Errorf("%w at offset 0: a chunk of %d bytes", ErrFrame, len(b))
	}
	body, seal := b[:len(b)-8], binary.LittleEndian.Uint64(b[len(b)-8:])
	r := open(body, tagSnapshot)
	if r.err != nil {
		return r.err
	}
	addBytes(&x.seal, body)
	if uint64(x.seal) != seal {
		return fmt.Errorf("%w: chunk %d is damaged, missing or out of order: fetch the snapshot again", ErrFrame, x.number)
	}
	if r.uvarint() != x.number || x.ended {
		r.fail("wrong chunk number")
	}
	x.number++
	for r.err == nil && r.rest() > 0 {
		x.record(&r)
	}
	return r.end()
}

func (x *Restorer) record(r *reader) {
	table := int(r.enum(tableUsages, "table"))
	begin := r.i
	body := r.span()
	switch {
	case r.err != nil:
	case x.ended:
		r.fail("a record after the end")
	case table == tableEnd:
		x.end(body, r)
	default:
		d := digest(table)
		addBytes(&d, r.b[begin:r.i])
		x.sum += uint64(d)
		if table == tableMachine {
			r.newer(body)
		}
		x.records++
		x.bodies[table] = append(x.bodies[table], body)
	}
}

// newer refuses what follows the machine's own record if that is of a newer version: it need
// not be damaged to make no sense here.
func (r *reader) newer(machine []byte) {
	var m Machine
	self := reader{b: machine}
	if m.readSelf(&self); errors.Is(self.err, ErrVersion) {
		r.err = self.err
	}
}

func (x *Restorer) end(body []byte, r *reader) {
	e := reader{b: body}
	x.ended = true
	if e.uvarint() != x.records || e.rest() != 8 || binary.LittleEndian.Uint64(body[e.i:]) != x.sum {
		r.fail("records are missing or damaged")
	}
}

// Machine builds the machine when all chunks are there.
func (x *Restorer) Machine() (*Machine, error) {
	switch {
	case x.err != nil:
		return nil, x.err
	case !x.ended || len(x.bodies[tableMachine]) != 1:
		return nil, fmt.Errorf("%w: the snapshot is not complete: its last chunk is missing", ErrFrame)
	}
	b := &builder{m: New(Config{})}
	b.all(x.bodies[tableMachine], func(r *reader) { b.early = b.m.readSelf(r) })
	b.all(x.bodies[tableSessions], b.session)
	b.all(x.bodies[tableResources], func(r *reader) { r.resource(b.m) })
	b.all(x.bodies[tableClaims], b.claim)
	b.link()
	b.all(x.bodies[tableDones], b.done)
	b.all(x.bodies[tableKeys], b.key)
	b.all(x.bodies[tableEnded], b.endedID)
	b.limiters()
	b.all(x.bodies[tableUsages], b.usage)
	b.finish()
	if b.err != nil {
		x.err = b.err
		return nil, b.err
	}
	return b.m, nil
}

// maxSlot bounds how many records of a kind there can be in a snapshot, so that
// a damaged one does not eat all memory.
const maxSlot = 1 << 26

func (r *reader) slot() uint32 {
	n := r.uvarint()
	if n >= maxSlot {
		r.fail("place out of range")
		return 0
	}
	return uint32(n)
}

// builder builds tables and indexes from records.
type builder struct {
	m       *Machine
	early   bool // names do not tell whether they are to be served
	err     error
	claims  []*claim
	twins   []uint64 // of claims: the number of its twin
	cursors map[*session]uint64
	ended   []*ended
	rates   map[uint64]*limiter // by number
}

// all decodes bodies one by one until one fails.
func (b *builder) all(bodies [][]byte, decode func(*reader)) {
	for _, body := range bodies {
		if b.err != nil {
			return
		}
		r := reader{b: body}
		decode(&r)
		b.err = r.end()
	}
}

func (b *builder) session(r *reader) {
	m := b.m
	s := m.sessions.place(r.slot())
	if s == nil {
		r.fail("two sessions at one place")
		return
	}
	cursor := r.session(m, s)
	if m.byID[s.id] != nil || s.window == 0 || s.mark == 0 {
		r.fail("a session twice, or without window or mark")
		return
	}
	m.byID[s.id] = s
	s.ns.sessions++
	if s.due != 0 && s.life != ending {
		m.sessionDue.set(s, s.due)
	}
	if cursor != 0 {
		if b.cursors == nil {
			b.cursors = map[*session]uint64{}
		}
		b.cursors[s] = cursor
	}
}

func (b *builder) claim(r *reader) {
	m := b.m
	c := m.claims.place(r.slot())
	if c == nil {
		r.fail("two claims at one place")
		return
	}
	c.arrival = r.uvarint()
	c.state, c.reason = state(r.enum(byte(over), "claim state")), reason(r.enum(byte(endLinger), "reason"))
	f := r.enum(15, "flags")
	var ns *namespace
	if f&1 != 0 {
		if c.s = m.byID[r.id()]; c.s == nil {
			r.fail("a claim of no session")
			return
		}
		ns = c.s.ns
	} else {
		ns = m.space(r.string())
	}
	c.seq, c.token, c.created, c.modified, c.version = r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint(), uint32(r.uvarint())
	c.since, c.deadline = r.varint(), r.varint()
	if f&2 != 0 {
		c.rare = &claimOptions{maxHold: r.duration(), minHold: r.duration(), delay: r.duration()}
		c.rare.value = bytes.Clone(r.bytes())
	}
	if f&8 != 0 {
		if c.rare == nil {
			r.fail("a claim with an owner and no place for it")
			return
		}
		c.rare.owner = r.string()
	}
	twin := uint64(0)
	if f&4 != 0 {
		twin = r.uvarint()
	}
	b.parts(c, ns, r)
	if r.err == nil && !c.sane(twin) {
		r.fail("a claim that makes no sense")
	}
	b.claims, b.twins = append(b.claims, c), append(b.twins, twin)
}

func (b *builder) parts(c *claim, ns *namespace, r *reader) {
	n := r.count()
	if n == 0 {
		r.fail("a claim of nothing")
		return
	}
	if n > 1 {
		c.many = &several{parts: make([]part, n), at: r.size()}
	}
	parts := c.parts()
	for i := range parts {
		res := ns.lookup(r.string())
		if r.err != nil || res == nil {
			r.fail("a claim of no name")
			return
		}
		parts[i] = part{
			r: res, c: c, mode: Mode(r.enum(byte(Shared), "mode")), place: queuePlace(r.enum(byte(inUpgrade), "place")), weight: r.varint(),
		}
	}
}

// sane says whether the parts are where the state says.
func (c *claim) sane(twin uint64) bool {
	if c.state == 0 || c.s == nil && c.state != granted || c.deadline < 0 {
		return false
	}
	for i, p := range c.parts() {
		want := [...]queuePlace{granted: inHolders, revoked: inHolders, over: nowhere}
		ok := p.place == inQueue && (c.many == nil || i == c.many.at) || p.place == inUpgrade && twin != 0 && c.many == nil ||
			c.many != nil && (p.place == inSet && i < c.many.at || p.place == inLater && i > c.many.at)
		if c.state != waiting {
			ok = p.place == want[c.state]
		}
		if !ok || p.weight < 1 || p.weight > 1 && p.r.kind != Semaphore {
			return false
		}
	}
	return c.many == nil || c.state != waiting || c.many.at < len(c.many.parts)
}

// link puts the claims, by arrival, into sessions, queues and holders.
func (b *builder) link() {
	if b.err != nil {
		return
	}
	by := make([]int, len(b.claims))
	for i := range by {
		by[i] = i
	}
	slices.SortFunc(by, func(i, j int) int { return order(b.claims[i].arrival, b.claims[j].arrival) })
	for _, i := range by {
		b.linkClaim(b.claims[i])
	}
	for i, c := range b.claims {
		b.linkTwin(c, b.twins[i])
	}
	slices.SortFunc(by, func(i, j int) int { return order(b.claims[i].token, b.claims[j].token) })
	for _, i := range by {
		b.linkHolder(b.claims[i])
	}
	for s, seq := range b.cursors {
		s.has.point(s.has.find(seq))
		if s.has.at() == nil {
			b.fail("work on a claim that is not there")
		}
	}
	for _, c := range b.claims {
		b.linkLate(c)
	}
}

func (b *builder) fail(reason string) {
	if b.err == nil {
		b.err = fmt.Errorf("%w: %s", ErrFrame, reason)
	}
}

func (b *builder) linkClaim(c *claim) {
	if c.s != nil {
		if c.s.has.find(c.seq) != nil {
			b.fail("a claim twice")
			return
		}
		b.m.dataOf(c.s).link(c)
		switch c.state {
		case granted, revoked:
			c.s.has.held++
		case over:
			c.s.has.over++
		}
	}
	if c.state == waiting {
		parts := c.parts()
		for i := range parts {
			b.m.list(&parts[i], parts[i].place)
		}
	}
	if c.reason != noDeadline && c.state != over {
		b.m.claimDue.set(c, c.deadline)
	}
}

func (b *builder) linkTwin(c *claim, twin uint64) {
	if twin == 0 || b.err != nil {
		return
	}
	if c.s != nil {
		c.twin = c.s.has.find(twin)
	}
	if c.twin == nil || c.twin == c || c.many != nil || c.twin.many != nil || c.one[0].r != c.twin.one[0].r {
		b.fail("an upgrade without its shared claim")
	}
}

func (b *builder) linkHolder(c *claim) {
	if c.state != granted && c.state != revoked {
		return
	}
	parts := c.parts()
	for i := range parts {
		p := &parts[i]
		p.r.addHolder(p)
		if c.s == nil {
			p.r.orphaned(p)
		}
	}
}

// linkLate notes which holders others may take from.
func (b *builder) linkLate(c *claim) {
	parts := c.parts()
	for i := range parts {
		if p := &parts[i]; p.place == inHolders && p.reclaimable(nil) {
			p.r.nowLate(p)
		}
	}
}

func (b *builder) done(r *reader) {
	m := b.m
	d := m.dones.place(r.slot())
	s := m.byID[r.id()]
	if d == nil || s == nil {
		r.fail("two results at one place, or one of no session")
		return
	}
	code := Code(r.enum(byte(lastCode), "code"))
	f := r.enum(3, "flags")
	seq := r.uvarint()
	if r.err != nil || seq < s.mark || seq-s.mark >= s.window || s.has.result(seq) != nil {
		r.fail("a result out of its window, or twice")
		return
	}
	d.s, d.seq, d.code = s, seq, code
	m.dataOf(s).keep(d)
	d.ok, d.gone = f&1 != 0, f&2 != 0
	d.revision, d.token, d.deadline, d.number = r.uvarint(), r.uvarint(), int64(r.uvarint()), r.uvarint()
	d.rest = bytes.Clone(r.bytes())
	s.has.kept += len(d.rest)
}

func (b *builder) key(r *reader) {
	m := b.m
	k := m.keys.place(r.slot())
	ns := m.space(r.string())
	row := r.key()
	if k == nil || r.err != nil || ns.keys[row.Name] != nil || row.Version == 0 {
		r.fail("a key twice, or without a version")
		return
	}
	k.ns, k.name, k.value = ns, clone(row.Name), bytes.Clone(row.Value)
	k.created, k.modified, k.version, k.deadline = row.Created, row.Modified, row.Version, row.Deadline
	ns.keys[k.name] = k
	ns.keyOrder.insert(k)
	if k.deadline != 0 {
		m.keyDue.set(k, k.deadline)
	}
	if row.Session == (SessionID{}) {
		return
	}
	s := m.byID[row.Session]
	if s == nil {
		r.fail("a key of no session")
		return
	}
	m.bind(k, s)
}

func (b *builder) endedID(r *reader) {
	e := b.m.endeds.place(r.slot())
	if e == nil {
		r.fail("two ended ids at one place")
		return
	}
	e.id = r.id()
	e.ns = b.m.space(r.string())
	e.at, e.order = r.varint(), r.uvarint()
	b.ended = append(b.ended, e)
}

// finish restores what has an order of its own.
func (b *builder) finish() {
	if b.err != nil {
		return
	}
	m := b.m
	m.sessions.placed()
	m.claims.placed()
	m.dones.placed()
	m.keys.placed()
	m.endeds.placed()
	m.usages.placed()
	slices.SortFunc(b.ended, func(x, y *ended) int { return order(x.order, y.order) })
	for _, e := range b.ended {
		e.ns.ended.push(e)
		m.endedIDs[e.id] = e
	}
	m.sessions.each(func(s *session) {
		if s.work != noWork {
			m.backlog = append(m.backlog, job{s, s.order})
		}
	})
	slices.SortFunc(m.backlog, func(x, y job) int { return order(x.order, y.order) })
	if m.frozen && b.early {
		m.resources.each(func(r *resource) { m.changed(r) })
	}
}

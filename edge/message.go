package edge

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"
	"unique"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/limit"
)

// A message is: magic, version, flags, sender, run, number, time, total, sections, checksum. A
// section is a counter, a set, a register or a window of a key; a window names its limiter
// only if the section before has another. Actors are given once and then by number; 0 is
// the sender.
const (
	magic   = "hfe"
	version = 2

	flagAsk  = 1
	flagKept = 2
	flagAll  = 4 // with it the sender has told all that it knows
	flagLast = 8 // the sender leaves

	sectionCounter  = 1
	sectionLimiter  = 2
	sectionWindow   = 3
	sectionSet      = 4
	sectionRegister = 5
	sectionPart     = 6 // of a counter that takes several messages
	// sectionWhole is added to the kind of a section that tells all that its sender knows,
	// to a Keeper without the parts of others that run.
	sectionWhole = 0x80
)

var (
	table      = crc32.MakeTable(crc32.Castagnoli)
	errMessage = errors.New("edge: not a valid message")
)

// message is what came from another node.
type message struct {
	ask     bool
	all     bool // the last of a state
	last    bool // the sender leaves
	sender  crdt.Actor
	run     uint64
	seq     uint64
	kept    bool  // it may have come long after it was sent
	sent    int64 // by the sender's clock, in milliseconds since 1970
	total   uint64
	counts  []count
	windows []window
	values  []valueSection
}

// valueSection is what a sender knows of a set or a register.
type valueSection struct {
	kind byte
	name string
	set  crdt.ORSet
	reg  crdt.Register
}

// count is what a sender knows of a counter.
type count struct {
	whole bool // all of it, or a part of that
	part  uint64
	of    uint64 // how many parts there are; 0: it is not in parts
	name  string
	count crdt.GCounter
}

// window is what a sender knows of one key.
type window struct {
	whole     bool
	told      int64 // when the sender has told all that it knew last, in nanoseconds since 1970
	limiter   string
	per       int64
	algorithm limit.Algorithm
	key       string
	epoch     int64
	debt      int64
	slots     []slot
}

// batch gathers sections into packets and sends them.
type batch struct {
	node    *Node
	ask     bool // the next packet asks for the others' states
	open    packet
	most    int                                  // from so many bytes on the open packet is sent
	actors  map[unique.Handle[crdt.Actor]]uint64 // of the open packet
	limiter *Limiter
	ready   []packet
	last    bool      // the node leaves
	total   uint64    // Node.Total
	keep    bool      // packets are parts of the state that a Keeper keeps
	kind    string    // of those parts
	parts   int       // of that kind so far
	lost    bool      // the link has refused one of them
	refused bool      // the link has refused a packet of any sort
	took    bool      // the link has taken one, since it refused all news if it did
	view    *view     // of the state that is kept; nil: there is no Keeper
	told    time.Time // when what has changed was sent last
}

// packet is a message, and what is marked again if it cannot be sent.
type packet struct {
	buf      []byte
	ask      bool
	life     time.Duration // how long it is of use; 0: for good
	counters []*Counter
	entries  []sent
	values   []value
}

type sent struct {
	limiter *Limiter
	key     string
}

// begin starts a packet unless there is one.
func (b *batch) begin() {
	if len(b.open.buf) > 0 {
		return
	}
	n := b.node
	n.seq++
	flags := byte(0)
	if b.ask {
		flags = flagAsk
	}
	if b.keep {
		flags |= flagKept
	}
	if b.last {
		flags |= flagLast
	}
	buf := append([]byte(magic), version, flags)
	buf = binary.LittleEndian.AppendUint64(appendActor(buf, n.me), n.run)
	buf = binary.AppendVarint(binary.AppendUvarint(buf, n.seq), n.config.Now().UnixMilli())
	buf = binary.AppendUvarint(buf, b.total)
	b.open = packet{buf: buf, ask: b.ask}
	b.ask, b.limiter, b.most = false, nil, n.maxMessage()
	b.actors = map[unique.Handle[crdt.Actor]]uint64{n.self: 0}
}

// maxMessage is the size from which on a message is sent: with one more key in it the link still takes it.
func (n *Node) maxMessage() int {
	most := n.config.MaxMessage
	if l, ok := n.config.Link.(Bounded); ok {
		if takes := l.MaxMessage(); takes > 0 {
			most = min(most, max(takes-keyRoom, takes/2))
		}
	}
	return most
}

// keyRoom is what a key adds to a message, with the names of its limiter and of those that have used it.
const keyRoom = 4 << 10

// addDelta adds this node's part of a counter.
func (b *batch) addDelta(c *Counter) {
	c.dirty.Store(false)
	b.addCounter(c, c.delta(), 0)
}

// beginState has all that follows be a state.
func (b *batch) beginState() {
	n := b.node
	if n.keeper == nil {
		return
	}
	b.cut()
	b.send()
	b.keep = true
	b.view = n.view()
}

// begins has all that follows be of a kind, so that more of one kind moves nothing of
// another to a later part, by which it would not be kept for a moment.
func (b *batch) begins(kind string) { b.kind, b.parts, b.lost = kind, 0, false }

// ends keeps empty messages in the place of those that the last state had more of.
func (b *batch) ends() {
	if !b.keep {
		return
	}
	b.cut()
	b.send()
	now := b.parts
	for b.parts < b.node.kept[b.kind] {
		b.begin()
		b.open.life = b.node.config.State
		b.cut()
		b.send()
	}
	if b.lost { // which of them are kept is not known
		now = max(now, b.node.kept[b.kind])
	}
	b.node.kept[b.kind] = now
}

// endState tells that this was all: also a node that has nothing to tell is there.
func (b *batch) endState() {
	b.begin()
	b.open.buf[len(magic)+1] |= flagAll
	b.open.life = max(b.open.life, absence*b.node.config.State)
	b.ends()
}

// addState adds what is known of a counter, or this node's part if it is relieved of the
// whole.
func (b *batch) addState(c *Counter) {
	told, flag := c.told(b.view)
	if b.view != nil && told.Value() == 0 {
		return
	}
	parts := told.Split(b.node.maxMessage())
	if len(parts) == 1 {
		b.addCounter(c, told, flag)
		return
	}
	for i := range parts {
		b.addPart(c, i, len(parts), &parts[i])
	}
}

// addPart adds one part of a counter that is too large for one message.
func (b *batch) addPart(c *Counter, i, of int, part *crdt.GCounter) {
	text := part.Append(nil)
	b.room(len(text))
	b.open.buf = appendText(append(b.open.buf, sectionPart), c.name)
	b.open.buf = binary.AppendUvarint(binary.AppendUvarint(b.open.buf, uint64(i)), uint64(of))
	b.open.buf = appendText(b.open.buf, string(text))
	b.cutIfLarge()
	b.send()
}

func (b *batch) addCounter(c *Counter, g crdt.GCounter, flag byte) {
	text := g.Append(nil)
	b.room(len(text))
	if flag == 0 { // this node's part, which is marked again if it cannot be sent
		b.open.counters = append(b.open.counters, c)
	}
	b.open.buf = appendText(append(b.open.buf, sectionCounter|flag), c.name)
	b.open.buf = appendText(b.open.buf, string(text))
	b.cutIfLarge()
	b.send()
}

// addValue adds a set or a register, or what has changed of it.
func (b *batch) addValue(v value, text []byte) {
	b.room(len(text))
	kind, name := v.label()
	b.open.values = append(b.open.values, v)
	b.open.buf = appendText(append(b.open.buf, kind), name)
	b.open.buf = appendText(b.open.buf, string(text))
	b.cutIfLarge()
	b.send()
}

// addWindow adds what is known of a key, of this node or the whole; the entry's shard
// is locked.
func (b *batch) addWindow(l *Limiter, e *entry, state bool) {
	whole := state && !b.view.relieves(e.relief)
	slots := b.slots(e, whole)
	if state && b.view != nil && len(slots) == 0 && e.own == (pair{}) && (e.debt == 0 || !whole) {
		return
	}
	for most := b.slotsAtOnce(); len(slots) > most; slots, whole = slots[most:], false {
		b.addSlots(l, e, state, false, slots[:most])
	}
	b.addSlots(l, e, state, whole, slots)
}

// maxSlots is how many actors of a key go into one section, so that one that very many have
// used is sent in several: none of those is the whole.
const maxSlots = 500

// slotsAtOnce is less where messages are small: an actor takes about slotSize with its name.
func (b *batch) slotsAtOnce() int { return min(maxSlots, max(b.node.maxMessage()/slotSize, 1)) }

const slotSize = 64

func (b *batch) addSlots(l *Limiter, e *entry, state, whole bool, slots []slot) {
	b.begin()
	b.open.life = max(b.open.life, 2*time.Duration(l.rule.span)+b.node.config.State)
	if b.limiter != l {
		b.limiter = l
		b.open.buf = appendText(append(b.open.buf, sectionLimiter), l.name)
		b.open.buf = append(binary.AppendUvarint(b.open.buf, uint64(l.rule.rate.Per)), byte(l.rule.rate.Algorithm))
	}
	b.open.buf = appendText(append(b.open.buf, sectionWindow|wholeFlag(whole)), e.key)
	b.open.buf = binary.AppendVarint(b.open.buf, e.epoch)
	b.open.buf = binary.AppendUvarint(b.open.buf, uint64(e.debt))
	if !state {
		b.open.entries = append(b.open.entries, sent{l, e.key})
	}
	b.open.buf = binary.AppendUvarint(b.open.buf, uint64(len(slots)+1))
	b.addSlot(slot{b.node.self, e.own})
	for _, s := range slots {
		b.addSlot(s)
	}
	b.cutIfLarge()
}

// slots are those of others that are told with the entry.
func (b *batch) slots(e *entry, whole bool) []slot {
	switch {
	case !whole:
		return nil
	case b.view == nil:
		return e.slots
	}
	var told []slot
	for _, s := range e.slots {
		if b.view.tells(s.actor) {
			told = append(told, s)
		}
	}
	return told
}

func wholeFlag(whole bool) byte {
	if whole {
		return sectionWhole
	}
	return 0
}

func (b *batch) addSlot(s slot) {
	i, ok := b.actors[s.actor]
	if !ok {
		i = uint64(len(b.actors))
		b.actors[s.actor] = i
	}
	b.open.buf = binary.AppendUvarint(b.open.buf, i)
	if !ok {
		b.open.buf = appendActor(b.open.buf, s.actor.Value())
	}
	b.open.buf = binary.AppendUvarint(b.open.buf, uint64(s.n.now))
	b.open.buf = binary.AppendUvarint(b.open.buf, uint64(s.n.before))
}

// room ends the open packet if a section of that size would make it large, so that one
// that is too large for the link takes nothing else along, and begins one.
func (b *batch) room(size int) {
	if len(b.open.buf)+size > b.most {
		b.cut()
	}
	b.begin()
}

func (b *batch) cutIfLarge() {
	if len(b.open.buf) >= b.most {
		b.cut()
	}
}

// cut ends the open packet.
func (b *batch) cut() {
	if len(b.open.buf) == 0 {
		return
	}
	b.open.buf = binary.LittleEndian.AppendUint32(b.open.buf, crc32.Checksum(b.open.buf, table))
	b.ready = append(b.ready, b.open)
	b.open = packet{}
}

// send sends the packets that are ready; no lock is held. What the link refuses is
// sent again by the next flush: its counters and keys are marked, not its bytes kept.
func (b *batch) send() {
	for i := range b.ready {
		if b.node.config.Link == nil {
			break
		}
		b.node.tally.sent.Add(1)
		if b.give(&b.ready[i]) != nil {
			b.lost, b.refused = true, true
			b.node.failed(&b.ready[i])
			continue
		}
		b.took = b.took || !b.keep
	}
	b.ready = b.ready[:0]
}

// tells reports that a message of the batch, and so the total, was taken or is about to be sent.
func (b *batch) tells() bool { return b.took || len(b.ready) > 0 }

// deaf: the link takes nothing. One that refuses a packet that is too large for it, and takes the others,
// is not: to try it before each flush would double the messages.
func (b *batch) deaf() bool { return b.refused && !b.took }

// between sends what is ready of a state, and what has changed meanwhile if it is time: a state of very
// many keys takes seconds, for which the others would hear of nothing new.
func (b *batch) between() {
	b.send()
	n, passed := b.node, time.Since(b.told)
	if b.deaf() || passed < n.config.Flush || passed < n.config.Flush*n.stretch(n.peers.live(n.config.Now(), absence*n.config.State)) {
		return
	}
	b.total = n.Total() // or the others would seem to differ by the news
	news := &batch{node: n, total: b.total}
	n.addDirty(news)
	news.cut()
	news.send()
	b.told, b.refused = time.Now(), b.refused || news.refused
	b.took = news.took || b.took && !news.refused
}

func (b *batch) give(p *packet) error {
	if !b.keep {
		return b.node.config.Link.Send(p.buf)
	}
	b.parts++
	return b.node.keeper.Keep(Place{b.node.me, b.kind, b.parts - 1}, p.life, p.buf)
}

func (n *Node) failed(p *packet) {
	n.tally.sendErrors.Add(1)
	if p.ask {
		n.ask.Store(true)
	}
	for _, c := range p.counters {
		c.mark()
	}
	for _, s := range p.entries {
		s.limiter.markAgain(s.key)
	}
	for _, v := range p.values {
		v.again()
	}
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendActor(dst []byte, a crdt.Actor) []byte {
	return binary.AppendUvarint(appendText(dst, a.Node), a.Incarnation)
}

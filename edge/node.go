package edge

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/limit"
)

// The bounds of names.
const (
	// MaxName bounds the name of an actor, a counter or a limiter, and the key of a
	// limit, in bytes.
	MaxName = 512
	// MaxCounters bounds the counters of a node, those of the others included.
	MaxCounters = 100_000
)

// Link carries messages between the nodes, as well as it can: it may lose, repeat,
// delay and reorder them.
type Link interface {
	// Listen has receive called with each message that arrives, until stop was
	// called; a node's own messages may be among them. receive does not keep the
	// message, does not wait for others, and may be called by several goroutines.
	Listen(receive func(message []byte)) (stop func(), err error)
	// Send gives a message to all other nodes. It does not keep the message. After
	// an error the node tries a small message with each flush, and sends the same counts
	// again when one is taken.
	Send(message []byte) error
}

// Bounded is a Link that takes no message above a size.
type Bounded interface {
	Link
	// MaxMessage is that size in bytes; 0: it is not known yet. It may change from one message to the next.
	MaxMessage() int
}

// Keeper is a Link that keeps the last state of each node for those that come later.
// A node gives it its own counts instead of all that it knows; what those counted that are
// gone is told by the first node, in the order of actors, that knows it.
type Keeper interface {
	Link
	// Keep keeps a message until the next one of the same place, and gives it to
	// all other nodes as Send does, once it is kept. After life it may be forgotten; 0: it
	// is of use for as long as it can be kept. It does not wait until the message is kept: an error
	// may be that of the message before, of the same place.
	Keep(place Place, life time.Duration, message []byte) error
	// Replay has all that is kept arrive once more. It does not wait for that.
	Replay()
	// Missed has ask called whenever messages may have been lost on their way here,
	// as after a connection that was cut. What is kept arrives once more then.
	Missed(ask func())
}

// Place is where a Keeper keeps a message, the last one of each.
type Place struct {
	Actor crdt.Actor
	// Kind is what the message tells of: counters, values (sets and registers) or windows.
	Kind string
	// Part counts from 0.
	Part int
}

// The kinds of places.
const (
	kindCounters = "counters"
	kindValues   = "values"
	kindWindows  = "windows"
)

// Config is what a node needs.
type Config struct {
	// Actor names the node among all that are linked: a host, a pod of a StatefulSet.
	// Counters and sets remember every name that ever counted or added, for good: with them
	// use names that are used again. A pod's uid, which never is, does for limiters, which
	// forget.
	Actor string
	// Incarnation tells the runs of one actor apart and has to grow; 0: the time of
	// Open in nanoseconds. Give one only if something else counts the runs: a run
	// under an incarnation that was used before loses counts. So does one under an
	// incarnation below those of a day ago, which were folded: as of a machine with a clock that
	// was set back by more than that. OnConflict tells both.
	Incarnation uint64
	// Link leads to the other nodes; nil: there are none.
	Link Link
	// Flush is the time between two messages of what has changed, at least a millisecond; 0: 100 ms. The first comes sooner, by the name, so
	// that nodes which start together do not all send at one moment. A node that has only
	// heard of changes sends a message of some 40 bytes and its name, which says what its total is.
	Flush time.Duration
	// MaxIncoming is about how many messages a second each node is to receive if all
	// have the same: where there are many, this one flushes less often than Flush says.
	// Nothing that comes is refused for it. 0: 250, so with 100 nodes every 400 ms;
	// negative: no bound.
	MaxIncoming int
	// State is the time between two messages of everything that is known, which
	// repair what was lost, from Flush to [limit.MaxPer]; 0: 10 s.
	State time.Duration
	// MaxMessage is the size from which on a message is sent and the next one begun,
	// in bytes; what comes may be larger. 0: 48 KiB. It is less over a link that says so ([Bounded]). Only what is
	// larger by itself, as a set can be, exceeds it by more than a key.
	MaxMessage int
	// Now is the clock that tells which windows are over and which counts are from a
	// clock far off, of the years 1970 to 2261; nil: time.Now.
	Now func() time.Time
	// Observe is told every decision of every limiter, for metrics. It is called in
	// its midst: it must not block, nor call the limiter, nor close the node.
	Observe func(limiter, key string, d limit.Decision)
	// OnConflict is called once for each actor of which two were seen running, or
	// that lost its counts under an incarnation it uses again; also if it is this
	// one. An older node that runs beside a newer one of its name is reported after
	// three times State and 10 s, when it can no longer be what the newer one replaced,
	// with clocks that differ by up to 10 s; on the older itself the newer is, at once, also
	// if the newer is gone and this node's clock was set back. It must not block, nor close
	// the node.
	OnConflict func(actor crdt.Actor)
}

// Node is one of the nodes that count together. Its methods may be called by many
// goroutines.
type Node struct {
	config Config
	me     crdt.Actor
	self   unique.Handle[crdt.Actor]
	run    uint64         // tells two processes of one actor apart
	seq    uint64         // of the last message; the loop's own
	folded time.Time      // when incarnations were folded last; the loop's own
	kept   map[string]int // how many parts of each kind the last state had; the loop's own
	mute   bool           // the link has taken no message of the last flush; the loop's own
	said   uint64         // the total that was told last; the loop's own

	mu       sync.RWMutex
	counters map[string]*Counter
	counted  []*Counter // all counters, in the order of their creation
	limiters map[string]*Limiter
	limited  []*Limiter
	unopened unopened

	dirtyMu sync.Mutex
	dirty   []*Counter

	values values

	keeper   Keeper // the link, if it is one
	peers    peers
	ask      atomic.Bool // the next message asks the others for their state
	stateDue atomic.Bool // somebody has asked for ours
	told     atomic.Bool // the last message was sent
	tally    tally
	opened   time.Time
	end      func()
	quit     chan struct{}
	done     chan struct{}
}

// Open starts a node: it listens, asks the others for what they know, and tells what
// it counts, until Close.
func Open(c Config) (*Node, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	me := crdt.Actor{Node: c.Actor, Incarnation: c.Incarnation}
	n := &Node{
		config: c, me: me, self: unique.Make(me), run: newRun(), end: func() {},
		counters: map[string]*Counter{}, limiters: map[string]*Limiter{}, peers: peers{known: map[crdt.Actor]*peer{}},
		kept: map[string]int{}, opened: c.Now(), quit: make(chan struct{}), done: make(chan struct{}),
	}
	n.peers.learn(me, n.opened)
	n.ask.Store(true)
	if k, ok := c.Link.(Keeper); ok {
		n.keeper = k
		k.Missed(func() { // what was sent into a broken connection came to nobody
			n.ask.Store(true)
			n.stateDue.Store(true)
		})
	}
	if c.Link != nil {
		end, err := c.Link.Listen(n.receive)
		if err != nil {
			return nil, fmt.Errorf("edge: open %q: listen: %w", c.Actor, err)
		}
		n.end = end
	}
	go n.loop()
	return n, nil
}

// minFlush keeps a node from being busy with nothing but the time.
const minFlush = time.Millisecond

// complete checks the settings and fills in the defaults.
func (c *Config) complete() error {
	if err := checkName("actor", c.Actor); err != nil {
		return err
	}
	if c.Flush < 0 || c.State < 0 || c.MaxMessage < 0 {
		return invalid("open %q: Flush, State and MaxMessage must not be negative", c.Actor)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if err := checkTime(c.Now()); err != nil {
		return err
	}
	if c.Incarnation == 0 {
		c.Incarnation = uint64(c.Now().UnixNano())
	}
	setDefault(&c.Flush, 100*time.Millisecond)
	setDefault(&c.State, 10*time.Second)
	setDefault(&c.MaxMessage, 48<<10)
	setDefault(&c.MaxIncoming, 250)
	if c.Flush < minFlush {
		return invalid("open %q: a Flush of %s is too short; it needs %s", c.Actor, c.Flush, minFlush)
	}
	if c.State < c.Flush {
		return invalid("open %q: State %s is shorter than Flush %s", c.Actor, c.State, c.Flush)
	}
	if c.State > limit.MaxPer { // nodes reckon with several of it
		return invalid("open %q: a State of %s is too long; at most %s are allowed", c.Actor, c.State, limit.MaxPer)
	}
	return nil
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

func newRun() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

// Actor is this node and its incarnation.
func (n *Node) Actor() crdt.Actor { return n.me }

// Close tells the others what was not told yet, once and without an answer, and stops
// listening. Counters and limiters go on by themselves, as without a link. It waits for
// calls of [Config.OnConflict] and of the link's functions, so none of them may call it.
func (n *Node) Close() error {
	n.mu.Lock()
	select {
	case <-n.quit:
	default:
		close(n.quit)
	}
	n.mu.Unlock()
	<-n.done
	return nil
}

// loop sends, and forgets idle keys.
func (n *Node) loop() {
	defer close(n.done)
	defer n.end()
	first := n.offset()
	tick := time.NewTicker(first)
	defer tick.Stop()
	n.flush(false, false)
	every := n.config.State / n.config.Flush
	p := pace{}
	for ticks := n.phase(every); ; ticks++ {
		select {
		case <-n.quit:
			n.flush(n.keeper != nil, true)
			n.silence()
			return
		case <-tick.C:
			if first > 0 {
				tick.Reset(n.config.Flush)
				first = 0
			}
			if ticks%every == 0 {
				n.stateDue.Store(true)
			}
			if flush, state := p.tick(n); flush {
				n.flush(state, false)
			}
			n.sweep()
			n.fold()
		}
	}
}

// silence has nothing marked to be sent any more, so that idle keys can be forgotten.
func (n *Node) silence() {
	n.told.Store(true)
	_, limited := n.all()
	for _, l := range limited {
		l.unmark()
	}
}

// pace is how many ticks have passed since the last flush and the last state.
type pace struct{ flushed, told time.Duration }

// tick reports whether this one is for a flush, and with a state.
func (p *pace) tick(n *Node) (flush, state bool) {
	p.flushed, p.told = p.flushed+1, p.told+1
	live := n.peers.live(n.config.Now(), absence*n.config.State)
	if p.flushed < n.stretch(live) {
		return false, false
	}
	p.flushed = 0
	if p.told*n.config.Flush < time.Duration(live)*answerPause || !n.stateDue.Swap(false) {
		return true, false
	}
	p.told = 0
	return true, true
}

// stretch is how many times Flush are between two messages, so that no node receives
// more than it is to.
func (n *Node) stretch(live int) time.Duration {
	if n.config.MaxIncoming < 0 {
		return 1
	}
	apart := time.Duration(live) * time.Second / time.Duration(n.config.MaxIncoming)
	return max((apart+n.config.Flush-1)/n.config.Flush, 1)
}

// answerPause is the least time between two states, for each node that runs: a
// hundred nodes that start together, and ask each other, are told every two seconds.
const answerPause = 20 * time.Millisecond

// phase spreads the states of nodes that start together.
func (n *Node) phase(every time.Duration) time.Duration {
	return time.Duration(crc32.Checksum([]byte(n.me.Node), table)) % every
}

// offset is the time to the first flush after that of Open, within Flush. By its name each node has
// one of its own: nodes that start together would flush together, and each would admit for all of Flush
// what the others have taken.
func (n *Node) offset() time.Duration {
	sum := sha256.Sum256([]byte(n.me.Node))
	part, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:]), uint64(n.config.Flush))
	return time.Duration(part) + 1
}

// flush sends what has changed, everything if asked to, and that the node leaves. A node that has
// nothing of its own to tell still tells its total when it has heard of something: the others would
// compare an old one with theirs, and seem to differ by all that was taken since.
func (n *Node) flush(state, last bool) {
	b := &batch{node: n, ask: n.ask.Swap(false), last: last, total: n.Total(), told: time.Now()}
	if n.mute && !last && !n.reaches(b) {
		if state {
			n.stateDue.Store(true)
		}
		return
	}
	n.addDirty(b)
	total := b.total
	if b.ask || last && !state || total != n.said && !b.tells() {
		b.begin()
	}
	if state {
		n.addState(b)
	}
	b.cut()
	b.send()
	if n.mute = b.deaf(); !n.mute {
		n.said = total
	}
}

// reaches tries a link that has refused something with a message of nothing: to encode all
// that changed since, only to have it refused, would take more time with every flush. Keys that
// nobody would count any more are not kept for it.
func (n *Node) reaches(b *batch) bool {
	b.begin()
	b.cut()
	if b.send(); !b.refused {
		return true
	}
	_, limited := n.all()
	for _, l := range limited {
		l.unmarkPast()
	}
	return false
}

// addDirty adds what has changed.
func (n *Node) addDirty(b *batch) {
	for _, c := range n.takeDirty() {
		b.addDelta(c)
	}
	for _, v := range n.values.takeDirty() {
		b.addValue(v, v.delta())
	}
	_, limited := n.all()
	for _, l := range limited {
		l.addDirty(b)
	}
}

// addState adds all that has to be told.
func (n *Node) addState(b *batch) {
	counted, limited := n.all()
	b.beginState()
	b.begins(kindCounters)
	for _, c := range counted {
		b.addState(c)
		b.between()
	}
	b.ends()
	b.begins(kindValues)
	n.values.addState(b)
	b.ends()
	b.begins(kindWindows)
	for _, l := range limited {
		l.addState(b)
	}
	b.endState()
}

func (n *Node) takeDirty() []*Counter {
	n.dirtyMu.Lock()
	defer n.dirtyMu.Unlock()
	list := n.dirty
	n.dirty = nil
	return list
}

// all are the counters and limiters of this moment; both lists only grow.
func (n *Node) all() ([]*Counter, []*Limiter) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.counted, n.limited
}

func (n *Node) sweep() {
	_, limited := n.all()
	now := n.config.Now().UnixNano()
	for _, l := range limited {
		l.sweep(now)
	}
}

const (
	// foldAfter is how long an incarnation of this node was not heard before it is
	// folded: what others know of it and could not tell for so long is lost.
	foldAfter = 24 * time.Hour
	// foldEvery is the time between two looks for such incarnations.
	foldEvery = time.Hour
	// foldStates is how many states a node waits before it folds, to know what others do.
	foldStates = 10
)

// fold takes earlier incarnations of this node into one sum, so that restarts cost
// nothing for good. Each node folds its own: no two have to agree on which does.
func (n *Node) fold() {
	now := n.config.Now()
	if now.Sub(n.opened) < foldStates*n.config.State || now.Sub(n.folded) < foldEvery {
		return
	}
	n.folded = now
	counted, _ := n.all()
	for _, c := range counted {
		c.fold(func(a crdt.Actor) bool {
			return a.Incarnation < n.me.Incarnation && now.Sub(n.peers.heard(a, n.opened)) >= foldAfter
		})
	}
}

// receive merges one message; what is no message changes nothing.
func (n *Node) receive(b []byte) {
	n.tally.received.Add(1)
	m, err := parse(b)
	if err != nil {
		n.tally.garbage.Add(1)
		return
	}
	if m.sender == n.me && m.run == n.run {
		n.tally.own.Add(1)
		return
	}
	repeated, conflict, told := n.peers.note(n.me, &m, n.config.Now(), absence*n.config.State)
	if conflict {
		n.conflict(m.sender)
	}
	if repeated && !m.kept { // what is kept comes again for limiters that were not open
		n.tally.repeated.Add(1)
		return
	}
	if m.ask {
		n.stateDue.Store(true)
	}
	n.apply(&m, told)
}

// apply merges a message; told is when its sender had last told all that it knew, before it.
func (n *Node) apply(m *message, told time.Time) {
	v := n.judging(m)
	for i := range m.counts {
		if c := n.counter(m.counts[i].name); c != nil {
			c.merge(&m.counts[i], v.of(m.counts[i].whole))
		}
	}
	for i := range m.values {
		n.values.merge(n, &m.values[i], v)
	}
	now := n.config.Now().UnixNano()
	for i := range m.windows {
		w := &m.windows[i]
		w.told = told.UnixNano()
		if l := n.limiterOf(w, m.kept); l != nil {
			l.merge(w, now, v.of(w.whole || len(w.slots) > 1))
		}
	}
}

// limiterOf is nil if the limiter is not open.
func (n *Node) limiterOf(w *window, kept bool) *Limiter {
	n.mu.RLock()
	defer n.mu.RUnlock()
	l := n.limiters[w.limiter]
	if l == nil && kept {
		n.unopened.note(w.limiter)
	}
	return l
}

func (n *Node) conflict(a crdt.Actor) {
	n.tally.conflicts.Add(1)
	if n.config.OnConflict != nil {
		n.config.OnConflict(a)
	}
}

func checkName(what, name string) error {
	if name == "" || len(name) > MaxName {
		return invalid("the %s has %d bytes; it needs 1 to %d", what, len(name), MaxName)
	}
	return nil
}

// checkUse refuses a key that is too long, and a time of which nanoseconds since 1970 do not fit in 63 bits: it would be
// taken for another, and the key refused for centuries.
func checkUse(key string, now time.Time) error {
	if len(key) > MaxName {
		return invalid("the key has %d bytes; at most %d are allowed", len(key), MaxName)
	}
	return checkTime(now)
}

// yearTooFar is when 2262 begins, in seconds since 1970: a decision has no time for the calendar.
const yearTooFar = 9_214_646_400

func checkTime(now time.Time) error {
	if s := now.Unix(); s < 0 || s >= yearTooFar {
		return invalid("the time %s is not of the years 1970 to 2261: give that of now", now.UTC().Format(time.RFC3339))
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("edge: %s: %w", fmt.Sprintf(format, args...), fs.ErrInvalid)
}

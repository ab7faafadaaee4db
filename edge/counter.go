package edge

import (
	"context"
	"encoding/base64"
	"math"
	"sync"
	"sync/atomic"
	"unique"

	"github.com/holdfast-io/holdfast/crdt"
)

// Counter is a count that all nodes add to. It is kept as long as the node: what
// counts by key and time is a [Limiter]. It takes about 50 bytes for each name that ever
// counted, on every node and in every state: see [Config.Actor].
type Counter struct {
	node  *Node
	name  string
	own   atomic.Uint64 // what this node has counted
	rest  atomic.Uint64 // what the others have, as far as it is known
	dirty atomic.Bool   // in node.dirty

	mu       sync.Mutex
	known    crdt.GCounter // with an own part that is behind
	relief   relief
	parts    parts
	watchers watchers
	heard    watchers // of all that is learned, also if the value stays the same: for Await
}

// parts are those of a whole that comes in several messages, as far as they have come.
type parts struct {
	by   unique.Handle[crdt.Actor]
	of   uint64
	seen map[uint64]bool
	all  crdt.GCounter
}

// take adds a part. complete reports that all parts have come, in any order; since a sender
// tells no less later, they may be of different states.
func (p *parts) take(o *count, by unique.Handle[crdt.Actor]) (all crdt.GCounter, complete bool) {
	if o.of == 0 {
		return o.count, true
	}
	if p.by != by || p.of != o.of {
		*p = parts{by: by, of: o.of, seen: map[uint64]bool{}}
	}
	p.seen[o.part] = true
	p.all.Merge(o.count)
	if uint64(len(p.seen)) < p.of {
		return all, false
	}
	all = p.all
	*p = parts{}
	return all, true
}

// Counter is the counter of that name, the same on every node.
func (n *Node) Counter(name string) (*Counter, error) {
	if err := checkName("name of a counter", name); err != nil {
		return nil, err
	}
	if c := n.counter(name); c != nil {
		return c, nil
	}
	return nil, invalid("counter %q: the node has %d counters already, the most it may have; use a Limiter for many keys", name, MaxCounters)
}

// counter is nil if there is no room.
func (n *Node) counter(name string) *Counter {
	n.mu.RLock()
	c := n.counters[name]
	n.mu.RUnlock()
	if c != nil {
		return c
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.counters[name]; c != nil {
		return c
	}
	if len(n.counters) >= MaxCounters {
		n.tally.full.Add(1)
		return nil
	}
	c = &Counter{node: n, name: name}
	n.counters[name] = c
	n.counted = append(n.counted, c)
	return c
}

// Count is the value of the counter of that name, 0 if nobody has counted.
func (n *Node) Count(name string) uint64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if c := n.counters[name]; c != nil {
		return c.Value()
	}
	return 0
}

// AllCounts are the values of all counters by name, also of those that only other
// nodes count.
func (n *Node) AllCounts() map[string]uint64 {
	counted, _ := n.all()
	all := make(map[string]uint64, len(counted))
	for _, c := range counted {
		all[c.name] = c.Value()
	}
	return all
}

// Name is what the counter was opened by.
func (c *Counter) Name() string { return c.name }

// Add counts n. A count stays at 2⁶⁴-1 when it gets there.
func (c *Counter) Add(n uint64) {
	if n == 0 {
		return
	}
	for {
		old := c.own.Load()
		if c.own.CompareAndSwap(old, addCapped(old, n)) {
			break
		}
	}
	c.mark()
	c.tell()
}

// mark has the next flush send the own count. The flag is cleared before the count
// is read, so an addition is either read or marks anew.
func (c *Counter) mark() {
	if c.dirty.Load() || !c.dirty.CompareAndSwap(false, true) {
		return
	}
	c.node.dirtyMu.Lock()
	defer c.node.dirtyMu.Unlock()
	c.node.dirty = append(c.node.dirty, c)
}

// Value is what all nodes have counted, as far as it is known here; the node's own
// additions are always in it.
func (c *Counter) Value() uint64 { return addCapped(c.own.Load(), c.rest.Load()) }

// ByActor are the parts of the value. Incarnations of a node that were folded together, a
// day after they were last heard, have one part under incarnation 0.
func (c *Counter) ByActor() map[crdt.Actor]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	parts := map[crdt.Actor]uint64{}
	for node, n := range c.known.ByNode() {
		parts[crdt.Actor{Node: node}] = n
	}
	for _, a := range c.known.Actors() {
		parts[a] = c.known.Of(a)
	}
	if own := c.own.Load(); own > 0 {
		parts[c.node.me] = own
	}
	return parts
}

// Watch has changes receive after the value has changed, by this node or another:
// once for all changes since the last receive. stop ends it.
func (c *Counter) Watch() (changes <-chan struct{}, stop func()) { return c.watchers.add() }

func (c *Counter) tell() { c.watchers.tell() }

// Version is what this node knows of the counter, as a text to hand to another: a
// caller that has read here reads nothing older there after Await.
func (c *Counter) Version() string {
	s := c.state()
	return base64.RawURLEncoding.EncodeToString(s.Append(nil))
}

// Await waits until this node knows all that the version tells, or ctx ends.
func (c *Counter) Await(ctx context.Context, version string) error {
	text, err := base64.RawURLEncoding.DecodeString(version)
	var want crdt.GCounter
	if err != nil || want.Decode(text) != nil {
		return invalid("counter %q: the version is none", c.name)
	}
	return c.heard.await(ctx, func() bool {
		have := c.state()
		return !have.Merge(want)
	})
}

// merge joins what another node knows. If that is more of this node's own part than
// the node has counted, the incarnation was used before: the greater stands, as on
// all other nodes, and the conflict is told. v is for a whole that can relieve; nil: none.
func (c *Counter) merge(o *count, v *view) {
	c.mu.Lock()
	news := c.known.Merge(o.count)
	if v != nil {
		c.judge(o, v)
	}
	own := c.known.Of(c.node.me)
	rest := c.known.Value() - own
	changed := c.rest.Swap(rest) != rest
	reused := raise(&c.own, own)
	if c.known.Folded(c.node.me) { // by a later incarnation: all that counts is in its fold
		reused = c.own.Swap(0) > 0
	}
	c.mu.Unlock()
	if reused && c.node.peers.reused(c.node.me) {
		c.node.conflict(c.node.me)
	}
	if changed || reused {
		c.tell()
	}
	if news {
		c.heard.tell()
	}
}

// judge notes whether a whole of the sender, once all of it has come, tells all that is known
// here; until then it is not relied on.
func (c *Counter) judge(o *count, v *view) {
	whole, complete := c.parts.take(o, v.sender)
	v.judge(&c.relief, complete && !whole.Merge(c.known.Part(func(a crdt.Actor) bool { return v.missing(unique.Make(a)) })))
}

// fold folds the incarnations of this node that are over, from the first one on.
func (c *Counter) fold(over func(crdt.Actor) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var last []crdt.Actor
	for _, a := range c.known.Actors() {
		if a.Node != c.node.me.Node {
			continue
		}
		if !over(a) {
			break
		}
		last = []crdt.Actor{a}
	}
	if len(last) > 0 {
		c.known.Fold(last...)
		c.relief = relief{}
	}
}

// delta is this node's part.
func (c *Counter) delta() (d crdt.GCounter) {
	d.Add(c.node.me, c.own.Load())
	return d
}

// told is what a state tells: this node's part, or all that has to be told if nobody else
// does.
func (c *Counter) told(v *view) (told crdt.GCounter, flag byte) {
	c.mu.Lock()
	relieved := v.relieves(c.relief)
	c.mu.Unlock()
	if relieved {
		return c.delta(), 0
	}
	all := c.state()
	return all.Part(func(a crdt.Actor) bool { return v.tells(unique.Make(a)) }), sectionWhole
}

// state is all that is known.
func (c *Counter) state() crdt.GCounter {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.known.State()
	if own := c.own.Load(); own > s.Of(c.node.me) && !s.Folded(c.node.me) {
		s.Add(c.node.me, own-s.Of(c.node.me))
	}
	return s
}

// raise makes v at least n and reports that it was below.
func raise(v *atomic.Uint64, n uint64) bool {
	for {
		old := v.Load()
		if old >= n {
			return false
		}
		if v.CompareAndSwap(old, n) {
			return true
		}
	}
}

func addCapped(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxUint64
}

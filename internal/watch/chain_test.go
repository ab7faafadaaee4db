package watch_test

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// chain is all that is between what happens and the watchers: nodes with their
// hubs, a subscription that breaks and goes on at another node, and the fan that
// its readers share. What each reader sees is compared with what happened.
type chain struct {
	t     *testing.T
	rnd   *rand.Rand
	truth []core.Event
	ends  []int // where the entries of truth end
	nodes []*chainNode

	cursor watch.Cursor
	direct chainReader // reads what comes over the subscription, without the fan
	node   *chainNode  // that serves the subscription; nil: none does
	w      *watch.Watcher
	wire   []message // on its way

	fan     *watch.Fan[core.Event]
	rest    []core.Event // what the fan has had no room for
	readers []*chainReader

	resyncs, read int
}

// chainNode has applied some of the entries.
type chainNode struct {
	hub     *watch.Hub
	entries int
}

// message is what a node sends over a stream.
type message struct {
	events []core.Event
	resync watch.Position
}

type chainReader struct {
	watch.Reader
	from watch.Position // it was told, or has said, that what is before is not for it
	next int            // the first event of truth that it has not seen
	told bool           // and it was told so: denials before it may follow, all or the last ones
}

func at(e *core.Event) watch.Position {
	return watch.Position{Revision: e.Revision, Ordinal: e.Ordinal}
}

// now is the position behind what has happened.
func (c *chain) now() watch.Position {
	return c.after(len(c.ends))
}

// after is the position behind so many entries.
func (c *chain) after(entries int) watch.Position {
	if entries == 0 {
		return watch.Position{Revision: 1}
	}
	e := &c.truth[c.ends[entries-1]-1]
	return watch.Position{Revision: e.Revision, Ordinal: e.Ordinal + 1}
}

// revision is that after so many entries.
func (c *chain) revision(entries int) uint64 {
	if entries == 0 {
		return 0
	}
	return c.truth[c.ends[entries-1]-1].Revision
}

// entry lets something happen: mostly little, sometimes thousands of events, sometimes
// only denials, which take the revision of the last change, and sometimes the revision is raised before it.
func (c *chain) entry() {
	n := 1 + c.rnd.IntN(4)
	if c.rnd.IntN(150) == 0 {
		n = 1 + c.rnd.IntN(6000)
	}
	e := core.Event{Kind: core.EventKV, Verb: core.VerbPut, Name: "k"}
	if len(c.truth) > 0 {
		e.Revision, e.Ordinal = c.truth[len(c.truth)-1].Revision, c.truth[len(c.truth)-1].Ordinal
	}
	denials := e.Revision > 0 && c.rnd.IntN(4) == 0
	if !denials && c.rnd.IntN(40) == 0 {
		e.Revision += 1000
	}
	for i := range n {
		if e.Ordinal++; !denials && (i == 0 || c.rnd.IntN(3) > 0) {
			e.Revision, e.Ordinal = e.Revision+1, 0
		}
		e.Number = uint64(len(c.truth))
		c.truth = append(c.truth, e)
	}
	c.ends = append(c.ends, len(c.truth))
}

// apply lets a node apply an entry.
func (n *chainNode) apply(c *chain) {
	if n.entries == len(c.ends) {
		return
	}
	first := 0
	if n.entries > 0 {
		first = c.ends[n.entries-1]
	}
	n.entries++
	n.hub.Publish(c.truth[first:c.ends[n.entries-1]], c.revision(n.entries))
}

func (n *chainNode) catchUp(c *chain) {
	for n.entries < len(c.ends) {
		n.apply(c)
	}
}

// upset is what happens to nodes: one starts anew, or takes a snapshot over.
func (c *chain) upset() {
	n := c.nodes[c.rnd.IntN(len(c.nodes))]
	if c.rnd.IntN(2) == 0 {
		n.hub = watch.NewHub(c.history(), c.revision(n.entries))
		n.hub.Begun(c.after(n.entries).Ordinal)
		if c.node == n {
			c.cut()
		}
		return
	}
	n.entries += c.rnd.IntN(len(c.ends) - n.entries + 1)
	n.hub.Jump(c.revision(n.entries))
	n.hub.Begun(c.after(n.entries).Ordinal)
}

func (c *chain) history() int { return 50 + c.rnd.IntN(4000) }

// cut loses the stream and what is on its way.
func (c *chain) cut() { c.node, c.wire = nil, nil }

// connect begins a stream: anywhere, or from now on at a node that knows all. What
// the one before it has brought comes first.
func (c *chain) connect() {
	if c.rest = c.rest[c.fan.Add(c.rest, c.places):]; len(c.rest) > 0 {
		return
	}
	n := c.nodes[c.rnd.IntN(len(c.nodes))]
	if c.cursor.Ask() == 0 {
		n.catchUp(c)
	}
	w, _, err := n.hub.Add(watch.Filter{}, c.cursor.Ask())
	if gone := (*watch.CompactedError)(nil); errors.As(err, &gone) {
		c.cursor.Compacted()
		return
	}
	if err != nil {
		c.t.Fatal(err)
	}
	begins := c.cursor.Next() == watch.Position{}
	if resync := c.cursor.Ready(n.hub.Next()); resync != (watch.Position{}) {
		c.gap(resync)
	} else if begins {
		c.direct.from, c.direct.next = c.cursor.Next(), c.index(c.cursor.Next())
	}
	c.node, c.w = n, w
}

// send lets the node send something.
func (c *chain) send() {
	events, resync := c.node.hub.Read(c.w, nil, 1+c.rnd.IntN(100))
	m := message{events: events}
	if resync != 0 {
		m.resync = c.node.hub.Next()
	}
	if len(m.events) > 0 || resync != 0 {
		c.wire = append(c.wire, m)
	}
}

// receive takes what was sent first.
func (c *chain) receive() {
	c.rest = c.rest[c.fan.Add(c.rest, c.places):]
	if len(c.rest) > 0 || len(c.wire) == 0 {
		return
	}
	m := c.wire[0]
	c.wire = c.wire[1:]
	if m.resync != (watch.Position{}) {
		if resync := c.cursor.Resync(m.resync); resync != (watch.Position{}) {
			c.gap(resync)
		}
	}
	c.rest = slices.DeleteFunc(m.events, func(e core.Event) bool { return !c.cursor.Take(at(&e)) })
	c.sees(&c.direct, c.rest)
}

func (c *chain) gap(next watch.Position) {
	c.fan.Gap(next)
	c.misses(&c.direct, next.Whole())
}

func (c *chain) places(yield func(*watch.Reader) bool) {
	for _, r := range c.readers {
		if !yield(&r.Reader) {
			return
		}
	}
}

// join begins a watch from now on.
func (c *chain) join() {
	r := &chainReader{Reader: c.fan.Join(), from: c.now()}
	r.From(r.from)
	r.next = c.index(r.from)
	c.readers = append(c.readers, r)
}

// index is that of the first event at or after p.
func (c *chain) index(p watch.Position) int {
	return sort.Search(len(c.truth), func(i int) bool { return at(&c.truth[i]).Compare(p) >= 0 })
}

// look lets a reader read, and compares.
func (c *chain) look(r *chainReader) {
	events, resync := c.fan.Read(&r.Reader, nil, 1+c.rnd.IntN(200))
	if resync != 0 {
		c.misses(r, resync)
		if len(events) > 0 {
			c.t.Fatal("events came with a resync")
		}
	}
	c.sees(r, events)
}

// misses tells a reader that events are missing: only some that it has not seen.
func (c *chain) misses(r *chainReader, resync uint64) {
	c.resyncs++
	p := watch.Position{Revision: resync}
	if p.Compare(r.from) < 0 || resync > c.now().Whole() || c.index(p) < r.next {
		c.t.Fatalf("a resync to %d for a reader at %d from %v", resync, r.next, r.from)
	}
	r.from, r.next, r.told = p, c.index(p), true
}

// sees compares what a reader sees with what happened.
func (c *chain) sees(r *chainReader, events []core.Event) {
	for i := range events {
		c.read++
		if n := int(events[i].Number); r.told && n < r.next && c.truth[n].Revision == r.from.Revision-1 && c.truth[n].Ordinal > 0 {
			r.next = n
		}
		r.told = false
		if r.next >= len(c.truth) || events[i].Number != uint64(r.next) {
			c.t.Fatalf("event %d at %v follows, where %d comes next (from %v)", events[i].Number, at(&events[i]), r.next, r.from)
		}
		r.next++
	}
}

func (c *chain) step() {
	switch n := c.rnd.IntN(200); {
	case n < 30:
		c.entry()
	case n < 65:
		c.nodes[c.rnd.IntN(len(c.nodes))].apply(c)
	case n == 65:
		c.upset()
	case n == 66:
		c.cut()
	case n < 75:
		if c.node == nil {
			c.connect()
		}
	case n < 110:
		if c.node != nil {
			c.send()
		}
	case n < 150:
		c.receive()
	case n == 150:
		if c.cursor.Next() != (watch.Position{}) { // else it waits for the first stream
			c.join()
		}
	case n == 151 && len(c.readers) > 3:
		i := c.rnd.IntN(len(c.readers))
		c.readers = slices.Delete(c.readers, i, i+1)
	case n == 152:
		c.fan.Trim(c.places)
	case len(c.readers) > 0:
		i := c.rnd.IntN(len(c.readers))
		c.look(c.readers[min(i, c.rnd.IntN(len(c.readers)))]) // some are slow
	}
}

// settle ends all trouble: now everybody sees everything that was not told to be
// missing.
func (c *chain) settle() {
	for _, n := range c.nodes {
		n.catchUp(c)
	}
	for range 200_000 {
		switch {
		case c.node == nil:
			c.connect()
		default:
			c.send()
			c.receive()
		}
		behind := false
		for _, r := range c.readers {
			c.look(r)
			behind = behind || r.next < len(c.truth)
		}
		if !behind {
			return
		}
	}
	c.t.Fatal("what happened does not arrive")
}

var _ iter.Seq[*watch.Reader] = (*chain)(nil).places

// Every reader sees every event once, in order, or is told exactly where not:
// whatever breaks, however much happens at once, whichever watcher is slow.
func TestChain(t *testing.T) {
	var resyncs, read int
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := &chain{t: t, rnd: rand.New(rand.NewPCG(seed, 3))}
			c.fan = watch.NewFan(watch.FanConfig[core.Event]{
				MaxEvents: 64 + c.rnd.IntN(512), MaxBytes: 1000 + c.rnd.IntN(50_000), At: at,
				Size: func(e *core.Event) int { return 10 + int(e.Number*2654435761>>7)%400 },
			})
			for range 3 {
				c.nodes = append(c.nodes, &chainNode{hub: watch.NewHub(c.history(), 0)})
			}
			for range 4000 {
				c.step()
			}
			c.settle()
			resyncs, read = resyncs+c.resyncs, read+c.read
		})
	}
	if resyncs < 100 || read < 10_000 {
		t.Errorf("%d events were read and %d resyncs told: the test shows little", read, resyncs)
	}
	t.Logf("%d events, %d resyncs", read, resyncs)
}

package sim

import (
	"errors"
	"slices"
	"sort"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// simWatch is a subscription to everything that happens, at whichever node is up,
// and what shares it: every reader must see each event once, in order, and hear of
// every gap. Cursor and Fan are those of package remote.
type simWatch struct {
	c       *cluster
	node    *node // nil: there is no stream
	life    int
	w       *watch.Watcher
	sent    *told // on its way
	cursor  watch.Cursor
	direct  reader // sees what comes without the fan
	fan     *watch.Fan[core.Event]
	rest    []core.Event // the fan has no room for them yet
	readers []*reader
}

// told is what a node tells over a stream.
type told struct {
	events []core.Event
	resync watch.Position
}

// reader is one that shares the subscription.
type reader struct {
	watch.Reader
	from watch.Position
	next int  // the event of the true history that comes next
	told bool // and it was told so: denials before it may follow, all or the last ones
}

func newWatcher(c *cluster) *simWatch {
	return &simWatch{c: c, cursor: watch.NewCursor(1), fan: watch.NewFan(watch.FanConfig[core.Event]{
		MaxEvents: 400, MaxBytes: 1 << 20, At: at, Size: func(*core.Event) int { return 100 },
	})}
}

func at(e *core.Event) watch.Position {
	return watch.Position{Revision: e.Revision, Ordinal: e.Ordinal}
}

func (x *simWatch) watch() {
	x.c.after(x.c.between(20*millisecond, 300*millisecond), func() {
		x.follow()
		x.look()
		x.watch()
	})
}

// follow takes in what was sent, and has more sent. What is on its way is lost with
// the stream.
func (x *simWatch) follow() {
	if x.rest = x.rest[x.fan.Add(x.rest, x.places):]; len(x.rest) > 0 {
		return
	}
	switch {
	case x.node == nil || x.node.life != x.life || !x.node.up:
		x.node, x.sent = nil, nil
		x.attach()
	case x.node.paused:
	default:
		x.receive()
		x.send()
		if x.c.chance(0.02) {
			x.node.hub.Remove(x.w)
			x.node, x.sent = nil, nil
		}
	}
}

// attach goes on where the last stream has ended, or, if no node knows that any
// more, from now on: only a node that has applied everything can tell when that is.
func (x *simWatch) attach() {
	n := x.c.nodes[x.c.rng.IntN(len(x.c.nodes))]
	if !n.up || n.paused || x.cursor.Ask() == 0 && n.hub.Next() != x.now() {
		return
	}
	w, _, err := n.hub.Add(watch.Filter{Namespace: "default"}, x.cursor.Ask())
	if gone := (*watch.CompactedError)(nil); errors.As(err, &gone) {
		x.cursor.Compacted()
		return
	}
	if err != nil {
		x.c.violate("a watch from revision %d on node %d: %v", x.cursor.Ask(), n.id, err)
		return
	}
	x.node, x.life, x.w = n, n.life, w
	if resync := x.cursor.Ready(n.hub.Next()); resync != (watch.Position{}) {
		x.gap(resync)
	}
	if len(x.readers) == 0 {
		x.readers = append(x.readers, &reader{Reader: x.fan.Join()}) // of everything
	}
}

func (x *simWatch) send() {
	events, resync := x.node.hub.Read(x.w, nil, 50)
	if len(events) > 0 || resync != 0 {
		x.sent = &told{events: events}
	}
	if resync != 0 {
		x.sent.resync = x.node.hub.Next()
	}
}

func (x *simWatch) receive() {
	m := x.sent
	if x.sent = nil; m == nil {
		return
	}
	if m.resync != (watch.Position{}) {
		if resync := x.cursor.Resync(m.resync); resync != (watch.Position{}) {
			x.gap(resync)
		}
	}
	x.rest = slices.DeleteFunc(m.events, func(e core.Event) bool { return !x.cursor.Take(at(&e)) })
	x.sees(&x.direct, x.rest)
	x.rest = x.rest[x.fan.Add(x.rest, x.places):]
}

func (x *simWatch) gap(next watch.Position) {
	x.fan.Gap(next)
	x.misses(&x.direct, next.Whole())
}

func (x *simWatch) places(yield func(*watch.Reader) bool) {
	for _, r := range x.readers {
		if !yield(&r.Reader) {
			return
		}
	}
}

// look lets the readers read: the first one always, the others now and then. They
// come and go.
func (x *simWatch) look() {
	for i, r := range x.readers {
		if i == 0 || x.c.chance(0.2) {
			x.read(r)
		}
	}
	switch n := len(x.readers); {
	case n > 0 && n < 4 && x.c.chance(0.05):
		x.join()
	case n > 1 && x.c.chance(0.01):
		x.readers = x.readers[:n-1]
	}
	x.fan.Trim(x.places)
}

// now is the position behind what has happened.
func (x *simWatch) now() watch.Position {
	return watch.Position{Revision: x.c.check.rev, Ordinal: x.c.check.ord + 1}
}

// join adds a reader from now on.
func (x *simWatch) join() {
	r := &reader{Reader: x.fan.Join(), from: x.now()}
	r.From(r.from)
	x.skip(r)
	x.readers = append(x.readers, r)
}

func (x *simWatch) read(r *reader) {
	events, resync := x.fan.Read(&r.Reader, nil, 100)
	if resync != 0 {
		x.misses(r, resync)
	}
	x.sees(r, events)
}

// misses tells a reader that it goes on at a revision.
func (x *simWatch) misses(r *reader, revision uint64) {
	x.c.res.Resyncs++
	if p := (watch.Position{Revision: revision}); r.next > 0 && p.Compare(at(&x.c.check.log[r.next-1])) <= 0 {
		x.c.violate("a resync to %d for a watcher that has seen it", revision)
	} else {
		r.from, r.told = p, true
	}
	x.skip(r)
}

// skip moves a reader on to where it was told to go on.
func (x *simWatch) skip(r *reader) { r.next = x.find(r.next, r.from) }

// find is the first event, from one on, that is at or after p.
func (x *simWatch) find(from int, p watch.Position) int {
	log := x.c.check.log[from:]
	return from + sort.Search(len(log), func(i int) bool { return at(&log[i]).Compare(p) >= 0 })
}

func (x *simWatch) sees(r *reader, events []core.Event) {
	if x.skip(r); r.told && len(events) > 0 {
		if e := &events[0]; e.Revision == r.from.Revision-1 && e.Ordinal > 0 {
			r.from, r.next = at(e), x.find(0, at(e))
		}
		r.told = false
	}
	for i := range events {
		x.see(r, &events[i])
	}
}

func (x *simWatch) see(r *reader, e *core.Event) {
	log := x.c.check.log
	x.c.res.Watched++
	if r.next >= len(log) {
		x.c.violate("a watcher saw revision %d, which never happened", e.Revision)
		return
	}
	if want := &log[r.next]; want.Revision != e.Revision || want.Ordinal != e.Ordinal || want.Kind != e.Kind || want.Verb != e.Verb || want.Name != e.Name || want.Token != e.Token {
		x.c.violate("a watcher saw %d.%d %s:%s %s, where %d.%d %s:%s %s comes next",
			e.Revision, e.Ordinal, e.Kind, e.Verb, e.Name, want.Revision, want.Ordinal, want.Kind, want.Verb, want.Name)
	}
	r.next++
}

// finish is called when all is well: what was not told to be missing was seen, or
// is seen now.
func (x *simWatch) finish() {
	for range 10_000 {
		x.follow()
		for _, r := range x.readers {
			x.read(r)
		}
	}
	for _, r := range x.readers {
		if x.skip(r); r.next < len(x.c.check.log) {
			x.c.violate("a watcher has seen %d of %d events, and nothing more comes", r.next, len(x.c.check.log))
		}
	}
}

package watch

import (
	"fmt"
	"math"
	"strings"

	"github.com/holdfast-io/holdfast/internal/core"
)

// DefaultHistory is how many events a hub keeps unless told otherwise, with names and
// values of 64 MiB at most. Those of the newest entry are kept although they are more, up to
// four times as many.
const DefaultHistory = 16384

// backlog is how many events a watcher has noted for it. If there are more to read,
// it looks for them in the history.
const backlog = 1024

// CompactedError says that the history asked for is gone.
type CompactedError struct{ Floor uint64 }

func (e *CompactedError) Error() string {
	return fmt.Sprintf("events before revision %d are no longer kept: read the state, then watch from there", e.Floor)
}

// Hub is the meeting point of events and watchers.
type Hub struct {
	ring     *ring
	tree     tree
	revision uint64
	ordinal  uint32 // of the next event at that revision
	woken    []*Watcher
	skipped  gap
	tally    Tally
}

// gap are revisions that the machine was raised over: nothing has happened at those behind
// after and before next. A watch that asks for one of them has heard of it from another history,
// as of a machine that was lost before this one began in its place.
type gap struct{ after, next uint64 }

// holds reports whether a watch from revision on has seen another history.
func (g gap) holds(revision uint64) bool { return g.after+1 < revision && revision < g.next }

// NewHub returns a hub that keeps history events (0: [DefaultHistory]) of a
// machine that stands at revision.
func NewHub(history int, revision uint64) *Hub {
	if history <= 0 {
		history = DefaultHistory
	}
	return &Hub{ring: newRing(history, revision), revision: revision}
}

// Begun says how many events the machine has told at its revision. Without it only
// what is told from the next revision on has a place of its own in Next.
func (h *Hub) Begun(ordinal uint32) { h.ordinal = ordinal }

// Next is where the next event can be: what is before it was published, or will
// never be.
func (h *Hub) Next() Position {
	if h.ordinal == 0 {
		return Position{Revision: h.revision + 1}
	}
	return Position{h.revision, h.ordinal}
}

// Floor is the lowest revision that a watch can begin from.
func (h *Hub) Floor() uint64 { return h.ring.floor }

// Watcher is one watch. Read it with [Hub.Read].
type Watcher struct {
	filter Filter
	mask   mask
	from   uint64
	scan   uint64   // next position of the history to look at
	live   uint64   // up to here the history is looked at
	queue  []uint64 // positions of matching events from there on
	jumped bool     // what it has yet to read is gone
	woken  bool
	place  int // among the watchers of its prefix
}

// all is the live of a watcher that looks at all of the history.
const all = math.MaxUint64

// Add registers a watcher for events from revision from on; 0: from now on. The
// revision returned is the first one that it will see completely. One that is not kept any more,
// or that the machine was raised over, is a [*CompactedError].
func (h *Hub) Add(f Filter, from uint64) (*Watcher, uint64, error) {
	m, err := f.compile()
	if err != nil {
		return nil, 0, err
	}
	w := &Watcher{filter: f, mask: m, from: from, scan: h.ring.head, live: h.ring.head}
	if from == 0 {
		from = h.revision + 1
	} else if from < h.ring.floor {
		return nil, 0, &CompactedError{Floor: h.ring.floor}
	} else if h.skipped.holds(from) {
		return nil, 0, &CompactedError{Floor: h.skipped.next}
	} else {
		w.scan = h.ring.find(from)
	}
	h.tree.add(f.Prefix, w)
	return w, from, nil
}

// Jump tells that the machine went to revision without saying how: what came
// before is not kept any more, and every watcher gets a resync. It returns those
// to wake, as Publish does.
func (h *Hub) Jump(revision uint64) []*Watcher {
	h.revision, h.ordinal, h.skipped = revision, 0, gap{}
	h.ring = newRing(int(h.ring.size), revision)
	h.woken = h.woken[:0]
	h.tree.root.each(func(w *Watcher) {
		w.jumped, w.woken = true, true
		h.woken = append(h.woken, w)
	})
	return h.woken
}

// Remove forgets w.
func (h *Hub) Remove(w *Watcher) { h.tree.remove(w.filter.Prefix, w) }

// Publish stores the events of one apply, which left the machine at revision,
// and returns the watchers that have something to read and had nothing before
// they were last read. The slice is valid until the next call.
func (h *Hub) Publish(events []core.Event, revision uint64) []*Watcher {
	h.woken = h.woken[:0]
	h.ring.entry = h.ring.head
	for i := range events {
		e := &events[i]
		h.move(e.Revision)
		h.ordinal = e.Ordinal + 1
		h.tally[e.Kind][e.Verb]++
		pos := h.ring.add(*e)
		h.tree.visit(e.Name, func(w *Watcher) { h.offer(w, e, pos) })
	}
	h.move(revision)
	return h.woken
}

// move notes that the machine has come to a revision. Each change takes the next one, and is
// told: what is beyond that was raised.
func (h *Hub) move(revision uint64) {
	if revision == h.revision {
		return
	}
	if revision > h.revision+2 {
		h.skip(gap{after: h.revision, next: revision})
	}
	h.revision, h.ordinal = revision, 0
}

// skip notes what the machine was raised over. Watchers that waited for something there
// have to read the state anew. Of several gaps only the newest is kept: no watch begins before
// one that was, so that machines which are raised often keep nothing of it.
func (h *Hub) skip(g gap) {
	h.ring.floor, h.skipped = max(h.ring.floor, h.skipped.next), g
	h.tree.root.each(func(w *Watcher) {
		if g.holds(w.from) && !w.woken {
			w.jumped, w.woken = true, true
			h.woken = append(h.woken, w)
		}
	})
}

func (h *Hub) offer(w *Watcher, e *core.Event, pos uint64) {
	if !w.wants(e) {
		return
	}
	switch {
	case w.jumped || w.live == all:
	case len(w.queue) == backlog:
		w.scan, w.live, w.queue = w.oldest(), all, nil
	default:
		w.queue = append(w.queue, pos)
	}
	if !w.woken {
		w.woken = true
		h.woken = append(h.woken, w)
	}
}

// Read appends at most limit events to dst. resync is not 0 if events were
// dropped: the state must be read anew, and what follows begins there. An empty
// answer means that the next event will be told by Publish.
func (h *Hub) Read(w *Watcher, dst []core.Event, limit int) (events []core.Event, resync uint64) {
	if w.jumped || w.unread(h.ring) && w.oldest() < h.ring.tail {
		return dst, h.catchUp(w)
	}
	dst, limit = h.readHistory(w, dst, limit)
	n := min(limit, len(w.queue))
	for _, pos := range w.queue[:n] {
		dst = append(dst, *h.ring.at(pos))
	}
	w.queue = w.queue[n:]
	if !w.unread(h.ring) {
		w.scan, w.live, w.queue, w.woken = h.ring.head, h.ring.head, nil, false
	}
	return dst, 0
}

// unread reports whether w has something to look at.
func (w *Watcher) unread(r *ring) bool { return w.scan < min(w.live, r.head) || len(w.queue) > 0 }

// oldest is the position of what w looks at next, if it has something to look at.
func (w *Watcher) oldest() uint64 {
	if w.scan < w.live || len(w.queue) == 0 {
		return w.scan
	}
	return w.queue[0]
}

// catchUp drops everything unread: what follows is what is published from now on.
// That is no resync for a watcher of what is still to come.
func (h *Hub) catchUp(w *Watcher) (resync uint64) {
	w.queue, w.jumped, w.woken = nil, false, false
	w.scan, w.live = h.ring.head, h.ring.head
	if w.from > h.revision {
		return 0
	}
	w.from = 0
	return h.revision + 1
}

// readHistory appends what matches in the part of the history that w looks at.
func (h *Hub) readHistory(w *Watcher, dst []core.Event, limit int) ([]core.Event, int) {
	for ; w.scan < min(w.live, h.ring.head) && limit > 0; w.scan++ {
		e := h.ring.at(w.scan)
		if strings.HasPrefix(e.Name, w.filter.Prefix) && w.wants(e) {
			dst = append(dst, *e)
			limit--
		}
	}
	return dst, limit
}

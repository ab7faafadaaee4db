package watch

import "github.com/holdfast-io/holdfast/internal/core"

// chunk is how many events lie together.
const chunk = 256

// burst is how many times its size a ring may have for the sake of one entry.
const burst = 4

// mostBytes is how much the names and values of the events in a ring have together: a
// history is to cost no more for large values than for many small ones.
const mostBytes = 64 << 20

// ring keeps the newest events: size of them, of mostBytes, and the newest entry whole
// although it is larger, so that a watcher which reads at once sees all of it. What there is
// too much is forgotten little by little: two for one, in events and in bytes. An event's
// position counts from 0 for ever.
type ring struct {
	chunks []*[chunk]core.Event
	spare  *[chunk]core.Event // to be used next; nil: there is none
	first  uint64             // the number of chunks[0]
	size   uint64
	tail   uint64 // position of the oldest event
	head   uint64 // position of the next event
	entry  uint64 // position where the newest entry begins
	floor  uint64 // the lowest revision with all of its events here
	bytes  uint64 // of all events
}

// newRing returns a ring of size events after revision. It grows as it fills:
// a quiet machine does not pay for a history it never has.
func newRing(size int, revision uint64) *ring {
	return &ring{size: uint64(size), floor: revision + 1}
}

// add stores e and returns its position.
func (r *ring) add(e core.Event) uint64 {
	if r.head/chunk-r.first == uint64(len(r.chunks)) {
		r.grow()
	}
	pos := r.head
	r.head++
	*r.at(pos) = e
	w := weight(&e)
	r.bytes += w
	for range 2 {
		if r.exceeds(r.head-r.tail, r.size) {
			r.forget()
		}
	}
	for enough := r.bytes - min(r.bytes, 2*w); r.bytes > enough && r.exceeds(r.bytes, mostBytes); {
		r.forget()
	}
	return pos
}

// exceeds says whether n is so much more than most that the oldest event has to go.
func (r *ring) exceeds(n, most uint64) bool {
	return n > most && (r.tail < r.entry || n > burst*most)
}

// weight is how many bytes an event keeps beside itself.
func weight(e *core.Event) uint64 {
	n := len(e.Namespace) + len(e.Name) + len(e.Owner) + len(e.Value)
	if k := e.KeyChange; k != nil {
		n += len(k.Key.Value) + len(k.Prev.Value)
	}
	return uint64(n)
}

func (r *ring) grow() {
	c := r.spare
	if r.spare = nil; c == nil {
		c = new([chunk]core.Event)
	}
	r.chunks = append(r.chunks, c)
}

// forget drops the oldest event.
func (r *ring) forget() {
	e := r.at(r.tail)
	r.floor = e.Revision + 1
	r.bytes -= weight(e)
	*e = core.Event{}
	if r.tail++; r.tail%chunk == 0 {
		r.spare, r.chunks[0] = r.chunks[0], nil
		r.chunks, r.first = r.chunks[1:], r.first+1
	}
}

// at returns the event at pos, which must be between tail and head.
func (r *ring) at(pos uint64) *core.Event { return &r.chunks[pos/chunk-r.first][pos%chunk] }

// find is the position of the first event at or after revision.
func (r *ring) find(revision uint64) uint64 {
	lo, hi := r.tail, r.head
	for lo < hi {
		mid := lo + (hi-lo)/2
		if r.at(mid).Revision < revision {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

package watch

import "github.com/holdfast-io/holdfast/core"

// ring keeps the newest events; an event's position counts from 0 for ever.
type ring struct {
	events []core.Event
	size   uint64
	head   uint64 // position of the next event
	floor  uint64 // the lowest revision whose events are all here
}

// newRing returns a ring of size events after revision. It grows as it fills:
// a quiet machine does not pay for a history it never has.
func newRing(size int, revision uint64) *ring {
	return &ring{size: uint64(size), floor: revision + 1}
}

// add stores e and returns its position.
func (r *ring) add(e core.Event) uint64 {
	pos := r.head
	r.head++
	if uint64(len(r.events)) < r.size {
		r.events = append(r.events, e)
		return pos
	}
	slot := &r.events[pos%r.size]
	r.floor = slot.Revision + 1
	*slot = e
	return pos
}

// oldest is the position of the oldest event still here.
func (r *ring) oldest() uint64 { return r.head - uint64(len(r.events)) }

// at returns the event at pos, which must be between oldest and head.
func (r *ring) at(pos uint64) *core.Event { return &r.events[pos%r.size] }

// find is the position of the first event at or after revision.
func (r *ring) find(revision uint64) uint64 {
	lo, hi := r.oldest(), r.head
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

package watch

import "cmp"

// Position is a place in the order of all events: an event's own, or that of the
// next one there may be.
type Position struct {
	Revision uint64
	Ordinal  uint32
}

// Before is the position from which on events of the revision before that one are
// seen too, those with the ordinal or a higher one; 0: none is.
func Before(revision uint64, ordinal uint32) Position {
	if ordinal == 0 {
		return Position{Revision: revision}
	}
	return Position{revision - 1, ordinal}
}

// Compare is negative if p comes before q, 0 if they are the same, else positive.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Revision, q.Revision), cmp.Compare(p.Ordinal, q.Ordinal))
}

// Whole is the first revision with all of its events at or after p.
func (p Position) Whole() uint64 {
	if p.Ordinal > 0 {
		return p.Revision + 1
	}
	return p.Revision
}

// after is the position behind p.
func (p Position) after() Position { return Position{p.Revision, p.Ordinal + 1} }

// Cursor is where the reader of a watch stands. It makes one watch of streams that
// break and begin anew, on whichever node: each event is taken once, in order, and
// where events are missing a resync tells it. It is pure: its owner opens the
// streams.
type Cursor struct {
	next Position
	lost bool // the history after next is gone: the next stream begins now
}

// NewCursor returns a cursor that begins at revision from; 0: where its first
// stream does.
func NewCursor(from uint64) Cursor { return Cursor{next: Position{Revision: from}} }

// Next is where the watch goes on: everything before it was taken, or told to be
// missing.
func (c *Cursor) Next() Position { return c.next }

// Ask is the revision that the next stream has to begin from; 0: from now on.
func (c *Cursor) Ask() uint64 {
	if c.lost {
		return 0
	}
	return c.next.Revision
}

// Compacted says that the history asked for is gone: the watch goes on from now,
// and Ready will tell the gap.
func (c *Cursor) Compacted() { c.lost = true }

// Ready says that a stream has begun, at p if it was asked for from now on. resync
// is not zero if events before it are missing.
func (c *Cursor) Ready(p Position) (resync Position) {
	if c.lost {
		c.lost = false
		return c.Resync(p)
	}
	if c.next == (Position{}) {
		c.next = p
	}
	return Position{}
}

// Resync says that the stream has left out events and goes on at p. What it brings
// of earlier ones is not taken any more. resync is zero if those that were left out
// had been taken: the stream is that of a node behind the one before.
func (c *Cursor) Resync(p Position) (resync Position) {
	if p.Compare(c.next) <= 0 {
		return Position{}
	}
	c.next = p
	return p
}

// Take reports whether the event at p is new, and moves behind it.
func (c *Cursor) Take(p Position) bool {
	if p.Compare(c.next) < 0 {
		return false
	}
	c.next = p.after()
	return true
}

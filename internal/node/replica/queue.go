package replica

import (
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/admission"
)

// item is something that waits to be proposed: a frame or a renewal.
type item struct {
	at      *attachment // over which it came; nil: from a caller without a stream
	caller  Caller      // its caller
	frame   []byte      // nil: a renewal
	renewal core.Renewal
	short   bool // a renewal that cannot wait for a tick: of a short session, or without a stream

	class    admission.Class
	commands int // of the frame
}

// urgent items are proposed at once; others wait for the next tick.
func (i *item) urgent() bool { return i.frame != nil || i.short }

func (i *item) size() int { return len(i.frame) + 32 }

// creates is how many sessions it opens.
func (i *item) creates() int {
	if i.class == admission.Create {
		return 1
	}
	return 0
}

// queue is what arrived while the entries before it were being written. Renewals
// overtake frames: however many commands wait, no session ends because its
// keepalive stood behind them.
type queue struct {
	renewals []item
	frames   []item
	spares   [][]item // room that nobody uses
	bytes    int
	commands int // renewals count as one
	creates  int
	urgent   int
}

func (q *queue) len() int { return len(q.renewals) + len(q.frames) }

func (q *queue) add(i *item) {
	if i.frame == nil {
		q.renewals = append(q.renewals, *i)
	} else {
		q.frames = append(q.frames, *i)
	}
	q.count(i, 1)
}

// count adds what i weighs n times.
func (q *queue) count(i *item, n int) {
	q.bytes += n * i.size()
	q.commands += n * max(1, i.commands)
	q.creates += n * i.creates()
	if i.urgent() {
		q.urgent += n
	}
}

// take empties the queue.
func (q *queue) take() []item {
	items := q.frames
	if len(q.renewals) > 0 {
		items = append(q.renewals, q.frames...)
	}
	*q = queue{spares: q.spares}
	if n := len(q.spares); n > 0 {
		q.frames, q.spares = q.spares[n-1], q.spares[:n-1]
	}
	return items
}

// maxSpares is how often room is kept: for what waits, and for what flies.
const maxSpares = 3

// reuse takes the room of items that are settled, unless a backlog made it large.
func (q *queue) reuse(items []item) {
	if len(q.spares) < maxSpares && cap(items) <= maxSpare {
		clear(items)
		q.spares = append(q.spares, items[:0])
	}
}

// batch takes what fits into an entry of limit bytes, at least one item.
func (q *queue) batch(limit int) []item {
	if q.bytes <= limit {
		return q.take()
	}
	room := limit
	renewals := q.cut(&q.renewals, &room, limit)
	frames := q.cut(&q.frames, &room, limit)
	if len(renewals) == 0 {
		return frames
	}
	return slices.Concat(renewals, frames)
}

// cut takes what fits into room off the head of a list; into one that is whole
// fits everything.
func (q *queue) cut(list *[]item, room *int, whole int) []item {
	n := 0
	for ; n < len(*list); n++ {
		i := &(*list)[n]
		if *room != whole && i.size() > *room {
			break
		}
		*room -= i.size()
		q.count(i, -1)
	}
	head := (*list)[:n:n]
	if *list = (*list)[n:]; len(*list) == 0 {
		*list = nil
	}
	return head
}

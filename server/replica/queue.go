package replica

import "github.com/holdfast-io/holdfast/core"

// item is something that waits to be proposed: a frame or a renewal.
type item struct {
	caller  Caller
	stream  bool   // the caller is a stream
	frame   []byte // nil: a renewal
	renewal core.Renewal
	short   bool // a renewal that cannot wait for a tick: of a short session, or without a stream
}

// urgent items are proposed at once; others wait for the next tick.
func (i *item) urgent() bool { return i.frame != nil || i.short }

func (i *item) size() int { return len(i.frame) + 32 }

// queue is what arrived while the entries before it were being written.
type queue struct {
	items  []item
	bytes  int
	urgent int
}

func (q *queue) add(i item) {
	q.items = append(q.items, i)
	q.bytes += i.size()
	if i.urgent() {
		q.urgent++
	}
}

// take empties the queue.
func (q *queue) take() []item {
	items := q.items
	*q = queue{}
	return items
}

// batch takes what fits into an entry of limit bytes, at least one item.
func (q *queue) batch(limit int) []item {
	n, size := 0, 0
	for n < len(q.items) && (n == 0 || size+q.items[n].size() <= limit) {
		size += q.items[n].size()
		n++
	}
	batch := q.items[:n:n]
	rest := queue{items: q.items[n:], bytes: q.bytes - size}
	for i := range rest.items {
		if rest.items[i].urgent() {
			rest.urgent++
		}
	}
	*q = rest
	return batch
}

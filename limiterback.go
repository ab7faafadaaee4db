package holdfast

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// refunds has what callers that left took, by key. Of a key one is given back at a time: many
// at once would keep each other from being done where a backend swaps what was used.
type refunds struct {
	mu     sync.Mutex
	queues map[string]*refundHeap // a key that is here has a worker
}

// refundHeap has the refunds of a key, the one that is given back next first.
type refundHeap []refund

func (h refundHeap) Len() int           { return len(h) }
func (h refundHeap) Less(i, j int) bool { return h[i].before(&h[j]) }
func (h refundHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *refundHeap) Push(b any)        { *h = append(*h, b.(refund)) }
func (h *refundHeap) Pop() any {
	last := len(*h) - 1
	b := (*h)[last]
	(*h)[last] = refund{}
	*h = (*h)[:last]
	return b
}

type refund struct {
	ctx   context.Context // of the caller, without its end
	l     *Limiter
	key   string
	taken limit.Reservation
	ahead bool // it was taken to be used later
	at    time.Time
}

// refundWithin is how long what is to be given back may wait for its turn, and maxRefunds how
// many of a key may: what is beyond that passes unused.
const (
	refundWithin = time.Minute
	maxRefunds   = 10_000
)

// abandon gives back what a wait took, beside the caller.
func (l *Limiter) abandon(ctx context.Context, key string, r *driver.LimitReply) {
	name := l.turn(key)
	if l.s.r.refunds.add(name, refund{context.WithoutCancel(ctx), l, key, r.Reservation, r.Decision.RetryAfter > 0, driver.Now()}) {
		l.s.r.spawn(func() { l.s.r.giveBack(name) })
	}
}

// add puts a refund into its queue; true: nobody works on that.
func (q *refunds) add(name string, b refund) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queues == nil {
		q.queues = map[string]*refundHeap{}
	}
	waiting, working := q.queues[name]
	if !working {
		waiting = &refundHeap{}
		q.queues[name] = waiting
	}
	if len(*waiting) < maxRefunds {
		heap.Push(waiting, b)
	}
	return !working
}

// before is the order in which most is given back. A bucket takes nothing back of what another
// waits behind, and less of what was taken before something that has been given back.
func (b *refund) before(o *refund) bool {
	switch {
	case b.ahead != o.ahead:
		return b.ahead
	case b.ahead:
		return b.taken.Until > o.taken.Until
	}
	return b.taken.Until < o.taken.Until
}

// next takes the first refund out; false: there is none, or the Space is closed, and the worker ends.
func (q *refunds) next(name string, closed bool) (b refund, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.queues[name]
	if closed || len(*waiting) == 0 {
		delete(q.queues, name)
		return refund{}, false
	}
	return heap.Pop(waiting).(refund), true
}

// giveBack gives back all that is in a queue, until the Space is closed.
func (r *spaceState) giveBack(name string) {
	for {
		b, ok := r.refunds.next(name, r.life.Err() != nil)
		if !ok {
			return
		}
		if driver.Now().Sub(b.at) < refundWithin {
			ctx, cancel := context.WithCancel(b.ctx)
			stop := context.AfterFunc(r.life, cancel)
			b.l.giveBack(ctx, b.key, b.taken)
			stop()
			cancel()
		}
	}
}

// giveBack gives back what was taken; what cannot be given back passes unused.
func (l *Limiter) giveBack(ctx context.Context, key string, v limit.Reservation) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, _ = l.ask(ctx, "wait", &driver.LimitRequest{Key: key, Op: driver.LimitSettle, Reservation: v})
}

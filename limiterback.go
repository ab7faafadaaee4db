package holdfast

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// refunds has what callers that left took, by key. Of a key one is given back at a time: many
// at once would keep each other from being done where a backend swaps what was used.
type refunds struct {
	mu     sync.Mutex
	queues map[string][]refund // a key that is here has a worker
}

type refund struct {
	ctx   context.Context // of the caller, without its end
	l     *Limiter
	key   string
	taken limit.Reservation
	ahead bool // it was taken to be used later
	at    time.Time
}

// refundWithin is how long what is to be given back may wait for its turn: then it passes unused.
const refundWithin = time.Minute

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
		q.queues = map[string][]refund{}
	}
	waiting, working := q.queues[name]
	q.queues[name] = append(waiting, b)
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

// next takes the first refund out; false: there is none, and the worker ends.
func (q *refunds) next(name string) (b refund, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.queues[name]
	if len(waiting) == 0 {
		delete(q.queues, name)
		return refund{}, false
	}
	first := 0
	for i := range waiting {
		if waiting[i].before(&waiting[first]) {
			first = i
		}
	}
	b = waiting[first]
	q.queues[name] = slices.Delete(waiting, first, first+1)
	return b, true
}

// giveBack gives back all that is in a queue, until the Space is closed.
func (r *spaceState) giveBack(name string) {
	for b, ok := r.refunds.next(name); ok; b, ok = r.refunds.next(name) {
		if r.life.Err() == nil && driver.Now().Sub(b.at) < refundWithin {
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

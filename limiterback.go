package holdfast

import (
	"container/heap"
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
	queues map[string]*refundQueue
}

// refundQueue has the refunds of a key, and the waits that they may be held for: a bucket takes nothing back of what
// another waits behind, so that the refund of the one before it is for when that has left, too.
type refundQueue struct {
	refunds refundHeap
	waits   waitHeap
	working bool
	freed   time.Time // when a wait ended last
	served  int64     // until when what the last wait that was served took counts
	last    bucketEnd // what the refunds left
}

// wait is that of a caller for what a bucket has given it.
type wait struct {
	until int64 // as in its reservation
	pos   int
}

// waitHeap has waits, the last one first.
type waitHeap []*wait

func (h waitHeap) Len() int           { return len(h) }
func (h waitHeap) Less(i, j int) bool { return h[i].until > h[j].until }
func (h waitHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].pos, h[j].pos = i, j }
func (h *waitHeap) Push(w any)        { w.(*wait).pos = len(*h); *h = append(*h, w.(*wait)) }
func (h *waitHeap) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return w
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
	rate  limit.Rate
	taken limit.Reservation
	ahead bool // it was taken to be used later
	at    time.Time
}

// refundWithin is how long what is to be given back may wait for its turn, once nobody waits behind it, and maxRefunds how
// many of a key may: what is beyond that passes unused.
const (
	refundWithin = time.Minute
	maxRefunds   = 10_000
)

// longestTurn is how long those that ask wait for what is given back, and for a question that its caller has left.
const longestTurn = time.Second

// abandon gives back what a wait took, beside the caller.
func (l *Limiter) abandon(ctx context.Context, key string, r *driver.LimitReply) {
	name, rate := l.turn(key), *l.rate.Load()
	if rate.Count == 0 {
		rate = r.Rate
	}
	if l.s.r.refunds.add(name, refund{context.WithoutCancel(ctx), l, key, rate, r.Reservation, r.Decision.RetryAfter > 0, driver.Now()}) {
		l.s.r.beginRefunds(name, rate.Algorithm)
	}
}

// waits notes a wait until the function that it returns is called, with whether the caller was served.
func (l *Limiter) waits(key string, r *driver.LimitReply) (over func(served bool)) {
	name, w := l.turn(key), &wait{until: r.Reservation.Until}
	l.s.r.refunds.wait(name, w)
	return func(served bool) {
		if l.s.r.refunds.over(name, w, served) {
			l.s.r.beginRefunds(name, limit.GCRA) // only buckets give places
		}
	}
}

// beginRefunds gives back what is in a queue, beside the callers. Of a bucket that takes a turn, the next one, from now on:
// a question that is on its way meanwhile would get a place behind what is given back.
func (r *spaceState) beginRefunds(name string, a limit.Algorithm) {
	var p *place
	if a == limit.GCRA || a == limit.TokenBucket {
		p = r.turns.overtake(name)
	}
	if !r.spawn(func() { r.giveBack(name, p) }) {
		p.leave()
	}
}

// queue is that of a key, which is made if there is none.
func (q *refunds) queue(name string) *refundQueue {
	if q.queues == nil {
		q.queues = map[string]*refundQueue{}
	}
	if q.queues[name] == nil {
		q.queues[name] = &refundQueue{}
	}
	return q.queues[name]
}

func (q *refunds) wait(name string, w *wait) {
	q.mu.Lock()
	defer q.mu.Unlock()
	heap.Push(&q.queue(name).waits, w)
}

// over takes out a wait; true: there is something to give back, and nobody works on it.
func (q *refunds) over(name string, w *wait, served bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.queues[name]
	if k == nil { // the Space was closed
		return false
	}
	heap.Remove(&k.waits, w.pos)
	if k.freed = driver.Now(); served {
		k.served = max(k.served, w.until)
	}
	return q.begin(name, k)
}

// add puts a refund into its queue; true: there is something to give back, and nobody works on it.
func (q *refunds) add(name string, b refund) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.queue(name)
	if len(k.refunds) >= maxRefunds {
		k.refunds = slices.DeleteFunc(k.refunds, k.passed)
		heap.Init(&k.refunds)
	}
	if len(k.refunds) < maxRefunds {
		heap.Push(&k.refunds, b)
	}
	return q.begin(name, k)
}

// begin reports that a worker is to begin, and forgets a queue that nothing is in.
func (q *refunds) begin(name string, k *refundQueue) bool {
	if k.working {
		return false
	}
	if k.working = !k.held(); !k.working && len(k.refunds)+len(k.waits) == 0 {
		delete(q.queues, name)
	}
	return k.working
}

// held reports that there is nothing to give back now: no refund, or others wait behind the first.
func (k *refundQueue) held() bool {
	return len(k.refunds) == 0 || k.refunds[0].ahead && len(k.waits) > 0 && k.waits[0].until > k.refunds[0].taken.Until
}

// passed reports that a refund gives nothing back any more: a caller behind it was served.
func (k *refundQueue) passed(b refund) bool { return b.ahead && b.taken.Until < k.served }

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

// next takes the first refund out; false: there is none for now, or the Space is closed, and the worker ends.
func (q *refunds) next(name string, closed bool) (b refund, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.queues[name]
	if closed {
		delete(q.queues, name)
		return refund{}, false
	}
	for !k.held() {
		b := heap.Pop(&k.refunds).(refund)
		if since := later(b.at, k.freed); !k.passed(b) && driver.Now().Sub(since) < refundWithin {
			return k.follow(b), true
		}
	}
	k.working = false
	q.begin(name, k)
	return refund{}, false
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// follow lets a refund be the last of a bucket, if it can be.
func (k *refundQueue) follow(b refund) refund {
	if b.ahead {
		k.last.follow(&b.rate, &b.taken, b.taken.Cost)
	}
	return b
}

// bucketEnd is what is left of a bucket where something was given back.
type bucketEnd struct {
	before  int64 // until when what was taken before that counts
	reached int64 // the same as the bucket rounds it
}

// follow is for n of what was taken, which is given back next. It lets that be the last of the bucket, if it was taken
// right before what was given back last: the bucket has rounded up until when that counts, a nanosecond each time, and
// takes back only what counts until then.
func (e *bucketEnd) follow(rate *limit.Rate, taken *limit.Reservation, n int64) {
	ns, part := rate.Fill(n)
	gap := e.before - taken.Until
	e.before = taken.Until - ns
	if gap == 0 || gap == 1 { // parts of a nanosecond are not in it
		taken.Until = e.reached
	}
	if e.reached = taken.Until + 1 - ns; part > 0 {
		e.reached--
	}
}

// giveBack gives back all that is in a queue, until the Space is closed, in turn with those that ask.
func (r *spaceState) giveBack(name string, p *place) {
	for {
		p.await(r.life)
		more := r.giveBackInTurn(name, p)
		if p.leave(); !more {
			return
		}
		p = p.behind()
	}
}

// giveBackInTurn does so until nothing is left, or the turn has lasted long enough; more: there may be more.
func (r *spaceState) giveBackInTurn(name string, p *place) (more bool) {
	defer time.AfterFunc(longestTurn, p.leave).Stop()
	for !p.over() {
		b, ok := r.refunds.next(name, r.life.Err() != nil)
		if !ok {
			return false
		}
		ctx, cancel := context.WithCancel(b.ctx)
		stop := context.AfterFunc(r.life, cancel)
		b.l.giveBack(ctx, b.key, b.taken)
		stop()
		cancel()
	}
	return true
}

// giveBack gives back what was taken; what cannot be given back passes unused.
func (l *Limiter) giveBack(ctx context.Context, key string, v limit.Reservation) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = l.correct(ctx, "wait", &driver.LimitRequest{Key: key, Op: driver.LimitSettle, Reservation: v})
}

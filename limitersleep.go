package holdfast

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// lookAgain is after how long a wait looks whether what it was told still holds: another Space may have changed the
// limiter.
const lookAgain = 2 * time.Second

// sleepers has the callers that wait as long as they were told, by limiter and key, in order of arrival. A change of the
// limiter wakes them: what they were told holds no more.
type sleepers struct {
	mu   sync.Mutex
	keys map[string]*list.List
}

// sleeper is a caller that sleeps.
type sleeper struct {
	own   *list.Element
	until int64         // as in its reservation
	cost  int64         // of the caller
	ends  time.Time     // when its context does; zero: never
	place *place        // where it is to ask again; nil: the backend has its place, until it is woken
	wake  chan struct{} // closed when it is woken
}

func (q *sleepers) add(name string, z *sleeper) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.keys == nil {
		q.keys = map[string]*list.List{}
	}
	if q.keys[name] == nil {
		q.keys[name] = list.New()
	}
	z.wake = make(chan struct{})
	z.own = q.keys[name].PushBack(z)
}

// remove takes out a sleeper and tells where it is to ask again.
func (q *sleepers) remove(name string, z *sleeper) *place {
	q.mu.Lock()
	defer q.mu.Unlock()
	if of := q.keys[name]; of != nil {
		if of.Remove(z.own); of.Len() == 0 {
			delete(q.keys, name)
		}
	}
	return z.place
}

// first: of the callers that sleep for a key, one looks for all.
func (q *sleepers) first(name string, z *sleeper) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.keys[name] != nil && q.keys[name].Front() == z.own
}

// changed wakes the sleepers of a key. Those with a place at the backend, which is gone, get one before all
// that come now, in their order.
func (q *sleepers) changed(name string, t *turns) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []*sleeper
	for of := q.keys[name]; of != nil && of.Len() > 0; {
		all = append(all, of.Remove(of.Front()).(*sleeper))
	}
	delete(q.keys, name)
	slices.SortStableFunc(all, func(a, b *sleeper) int { return cmp.Compare(a.until, b.until) })
	for _, z := range all {
		if z.place == nil {
			z.place = t.join(name, z.cost, z.ends)
		}
		close(z.wake)
	}
}

// under are the keys of a limiter for which callers sleep.
func (q *sleepers) under(limiter string) (names []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for name := range q.keys {
		if strings.HasPrefix(name, limiter) {
			names = append(names, name)
		}
	}
	return names
}

// changed tells the waits of the Space for a key that it was reset.
func (l *Limiter) changed(key string) { l.s.r.sleepers.changed(l.turn(key), &l.s.r.turns) }

// changedAll tells those for all keys.
func (l *Limiter) changedAll() {
	for _, name := range l.s.r.sleepers.under(l.turn("")) {
		l.s.r.sleepers.changed(name, &l.s.r.turns)
	}
}

// sleep lasts as long as the caller was told, or until that holds no more: woken, and where it is to ask again. p is its
// place; nil: the backend has it.
func (l *Limiter) sleep(ctx context.Context, key string, n int64, told *driver.LimitReply, p *place) (next *place, woken bool, err error) {
	name, ends := l.turn(key), driver.Now().Add(told.Decision.RetryAfter)
	z := &sleeper{until: told.Reservation.Until, cost: n, place: p}
	z.ends, _ = ctx.Deadline()
	l.s.r.sleepers.add(name, z)
	defer func() {
		if next = l.s.r.sleepers.remove(name, z); !woken && next != p {
			next.leave()
		}
	}()
	t, look := time.NewTimer(told.Decision.RetryAfter), time.NewTicker(lookAgain)
	defer t.Stop()
	defer look.Stop()
	for {
		select {
		case <-t.C:
			return nil, false, nil
		case <-z.wake:
			return nil, true, nil
		case <-look.C:
			if l.s.r.sleepers.first(name, z) && l.outdated(ctx, key, n, told, ends) {
				l.changed(key)
			}
		case <-l.s.r.life.Done():
			return nil, false, wrap("wait", l.name, &Error{Kind: ErrClosed, Outcome: taken(told.Decision.Allowed)})
		case <-ctx.Done():
			return nil, false, l.ended(ctx, taken(told.Decision.Allowed))
		}
	}
}

// outdated looks whether a caller that was told to wait until ends would be told otherwise now: at another rate, or
// sooner, although its own place at a bucket would make that later. A sixteenth is for clocks.
func (l *Limiter) outdated(ctx context.Context, key string, n int64, told *driver.LimitReply, ends time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, ends.Sub(driver.Now()))
	defer cancel()
	reply, err := l.ask(ctx, "wait", &driver.LimitRequest{Key: key, Op: driver.LimitPeek, Cost: n})
	if err != nil {
		return errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) // which the caller is told when it asks again
	}
	left := ends.Sub(driver.Now())
	return !reply.Rate.Equal(told.Rate) || reply.Decision.RetryAfter < left-left/16
}

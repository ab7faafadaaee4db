package drivertest_test

import (
	"context"
	"io/fs"
	"math"
	"math/bits"
	"slices"

	"github.com/holdfast-io/holdfast/driver"
)

func (t *toy) Resize(ctx context.Context, name string, limit int64) error {
	var err error
	t.e.do(func() { err = t.e.resize(name, limit) })
	return err
}

func (e *engine) resize(name string, limit int64) error {
	v := e.objects[object{driver.Semaphore, name}]
	switch {
	case v == nil && e.has("resize makes"):
		v = &value{}
		e.objects[object{driver.Semaphore, name}] = v
	case v == nil:
		return refusal(fs.ErrNotExist, "there is no such semaphore")
	case e.has("resize forgets"):
		return nil
	}
	v.n = uint64(limit)
	holders, waiters := e.split(name)
	if e.has("a lower limit frees") {
		e.drop(holders[0])
	}
	for _, c := range waiters {
		if c.want(name).Weight > limit && !e.has("impossible waits") {
			e.free(c, false, refusal(fs.ErrInvalid, "the limit became %d", limit))
		}
	}
	return nil
}

func (t *toy) Delete(ctx context.Context, kind driver.ResourceKind, name string) error {
	var err error
	t.e.do(func() {
		holders, waiters := t.e.split(name)
		switch {
		case len(holders)+len(waiters) > 0 && !t.e.has("deletes what is used"):
			err = refusal(driver.ErrHeld, "it is in use")
		case t.e.has("delete forgets"):
		case kind == driver.Limiter:
			err = t.e.deleteLimiter(name)
		default:
			delete(t.e.objects, object{kind, name})
		}
	})
	return err
}

func (t *toy) CountDown(ctx context.Context, r *driver.CountDownRequest) (reply driver.CountDownReply, err error) {
	if err := t.reach(ctx); err != nil {
		return reply, err
	}
	t.e.do(func() {
		if err = t.e.admitLimit(driver.Want{Name: r.Name, Kind: driver.Latch, Limit: r.Count}); err != nil {
			return
		}
		v := t.e.objects[object{driver.Latch, r.Name}]
		reply.Left = max(int64(v.n)-r.By, 0)
		switch {
		case t.e.has("counts get lost") && v.n%3 == 0:
		case t.e.has("latch closes again") && v.n == 0 && r.By > 0:
			v.n, reply.Left = 1, 1
		default:
			v.n = uint64(reply.Left)
		}
	})
	return reply, err
}

func (t *toy) Count(ctx context.Context, r *driver.CountRequest) (reply driver.CountReply, err error) {
	gone := t.e.has("cut too late")
	if !gone {
		err = t.reach(ctx)
	}
	if err == nil {
		t.e.do(func() { reply, err = t.e.count(r) })
	}
	if gone {
		err = t.reach(ctx)
	}
	return reply, err
}

func (e *engine) count(r *driver.CountRequest) (driver.CountReply, error) {
	v := e.objects[object{driver.Counter, r.Name}]
	if v != nil && v.unsigned != r.Unsigned && !e.has("signs mix") {
		return driver.CountReply{}, refusal(driver.ErrConflict, "it has the other sign; Delete it first")
	}
	if r.Op == driver.CountLoad {
		if v == nil {
			return driver.CountReply{}, nil
		}
		return driver.CountReply{Value: v.n}, nil
	}
	used := v != nil
	if !used {
		v = &value{unsigned: r.Unsigned}
		e.objects[object{driver.Counter, r.Name}] = v
	}
	return e.change(v, used, r), nil
}

func (e *engine) change(v *value, used bool, r *driver.CountRequest) driver.CountReply {
	reply := driver.CountReply{Value: v.n}
	switch r.Op {
	case driver.CountAdd, driver.CountSub:
		reply.Value = e.sum(v, r)
		if e.has("add forgets") || e.has("adds get lost") && reply.Value%10 == 0 {
			return reply
		}
	case driver.CountStore:
		reply.Value = r.A
		if e.has("store adds") {
			reply.Value += v.n
		}
	case driver.CountSwap:
		reply.Swapped = v.n == r.A && !(e.has("zero is absent") && used && v.n == 0) || e.has("always swaps")
		if reply.Swapped {
			reply.Value = r.B
		}
	}
	v.n = reply.Value
	return reply
}

// sum adds or subtracts and stops at the ends.
func (e *engine) sum(v *value, r *driver.CountRequest) uint64 {
	switch {
	case r.Op == driver.CountSub && e.has("wraps"):
		return v.n - r.A
	case r.Op == driver.CountSub && r.A == 0 && e.has("subtracts no zero"):
		return 0
	case r.Op == driver.CountSub:
		return v.n - min(r.A, v.n)
	case e.has("wraps"):
		return v.n + r.A
	case v.unsigned:
		sum, carry := bits.Add64(v.n, r.A, 0)
		return sum | -carry
	}
	a, b := int64(v.n), int64(r.A)
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return 1 << 63
	}
	return uint64(a + b)
}

func (t *toy) Reserve(ctx context.Context, r *driver.ReserveRequest) (reply driver.ReserveReply, err error) {
	if err := t.reach(ctx); err != nil {
		return reply, err
	}
	t.e.do(func() { reply.First, err = t.e.reserve(r) })
	return reply, err
}

func (e *engine) reserve(r *driver.ReserveRequest) (uint64, error) {
	v := e.objects[object{driver.Sequence, r.Name}]
	if v == nil {
		v = &value{n: r.Start}
		if e.has("start ignored") {
			v.n = 1
		}
		if e.has("skips a number") {
			v.n++
		}
		e.objects[object{driver.Sequence, r.Name}] = v
	}
	first, n := v.n, r.N
	switch {
	case n > 0 && (v.over || n-1 > math.MaxUint64-first) && !e.has("wraps"):
		return 0, refusal(driver.ErrExhausted, "there are no %d numbers left", n)
	case e.has("numbers repeat"):
		n = (n + 1) / 2
	case e.has("current takes"):
		n = max(n, 1)
	}
	v.n = first + n
	v.over = v.over || n > 0 && v.n == 0
	return first, nil
}

// emit tells an event of a claim's first name.
func (e *engine) emit(c *toyClaim, verb string) {
	if e.has("locks untold") {
		return
	}
	kinds := map[driver.ResourceKind]string{
		driver.Mutex: "lock", driver.RWMutex: "rwlock", driver.Semaphore: "semaphore",
		driver.Election: "election", driver.Latch: "latch", driver.Barrier: "barrier",
	}
	w := c.Wants[0]
	if verb == "released" {
		e.rev++
	}
	at := e.rev
	if w.Kind == driver.Mutex && e.has("locks told late") {
		at--
	}
	e.publish(driver.Event{
		Revision: at, Kind: kinds[w.Kind], Verb: verb, Name: w.Name, Token: c.token,
		Owner: c.Spec.Owner, Mode: w.Mode, Weight: e.weight(w.Weight), Session: c.session.id, Value: slices.Clone(c.Value),
	})
}

// kept is how many events the engine remembers, and backlog how many of them a
// watch may be behind.
const (
	kept    = 5000
	backlog = 500
)

func (e *engine) publish(ev driver.Event) {
	if e.has("drops events") && ev.Revision%7 == 0 {
		return
	}
	e.events = append(e.events, ev)
	if len(e.events) > 2*kept {
		e.dropped += len(e.events) - kept
		e.events = slices.Clone(e.events[len(e.events)-kept:])
	}
	close(e.news)
	e.news = make(chan struct{})
}

package drivertest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast"
)

var mutexCases = []Case{
	{Name: "Mutex/AcquireRelease", Run: run(mutexAcquireRelease),
		Promise: "A free mutex is acquired at once, and after its Release it is free again."},
	{Name: "Mutex/OneAtATime", Run: run(mutexOneAtATime),
		Promise: "While a mutex is held, TryAcquire is ErrHeld and certainly not done."},
	{Name: "Mutex/OverClients", Run: run(mutexOverClients),
		Promise: "A mutex that one client holds is held for every other client."},
	{Name: "Mutex/Crowd", Run: run(mutexCrowd),
		Promise: "Of a hundred goroutines over several clients one at a time is inside, and all get their turn."},
	{Name: "Mutex/SpaceIsNoHolder", Run: run(mutexSpaceIsNoHolder),
		Promise: "Two goroutines of one Space exclude each other, although they share a session."},
	{Name: "Mutex/NotReentrant", Run: run(mutexNotReentrant),
		Promise: "Without Reentrant a holder that asks again is refused like anybody else."},
	{Name: "Mutex/Reentrant", Run: run(mutexReentrant),
		Promise: "With Reentrant a context bound to the hold joins it under the same token, and the last Release frees."},
	{Name: "Mutex/OwnerDecidesNothing", Run: run(mutexOwnerDecidesNothing),
		Promise: "A client with the same Owner as the holder is not let in."},
	{Name: "Mutex/TryTellsHolder", Run: run(mutexTryTellsHolder),
		Promise: "ErrHeld tells who holds: owner, metadata, token and since when."},
	{Name: "Mutex/TryTellsDeadline", Run: run(mutexTryTellsDeadline), Uses: HasTTL,
		Promise: "ErrHeld tells until when the holder's session lasts unless it is renewed."},
	{Name: "Mutex/TryTellsQueue", Needs: fifo, Run: run(mutexTryTellsQueue),
		Promise: "ErrHeld tells how many wait."},
	{Name: "Mutex/TryLeavesNothing", Run: run(mutexTryLeavesNothing),
		Promise: "A TryAcquire that was refused leaves nothing in the queue."},
	{Name: "Mutex/WaitIsServed", Run: run(mutexWaitIsServed),
		Promise: "A waiting Acquire is granted when the holder releases, and not before."},
	{Name: "Token/GrowsWithEveryGrant", Run: run(tokenGrows),
		Promise: "Every grant of a name has a greater token than the one before, whichever client gets it."},
	{Name: "Token/GrowsInTheQueue", Run: run(tokenGrowsInTheQueue),
		Promise: "A waiter's token is greater than that of the holder it waited for."},
	{Name: "Token/OutlivesClients", Run: run(tokenOutlivesClients),
		Promise: "Tokens go on growing after everybody who used the name has gone."},
	{Name: "Token/FitsEverywhere", Run: run(tokenFitsEverywhere),
		Promise: "A token is above 0 and below 2⁵³, so that JSON and SQL take it as it is."},
}

func mutexAcquireRelease(ctx context.Context, e *Env) {
	m := e.Client().Mutex("m")
	h := must(m.Acquire(ctx))
	want(h.Name() == e.Prefix()+"m", "the hold is called %q", h.Name())
	done(h.Release())
	free(ctx, m, "after Release")
}

func mutexOneAtATime(ctx context.Context, e *Env) {
	m := e.Client().Mutex("m")
	h := must(m.Acquire(ctx))
	for range 2 {
		err := second(m.TryAcquire(ctx))
		refused(err, holdfast.ErrHeld, "TryAcquire of a held mutex")
		want(holdfast.NotDone(err), "NotDone is false for %v", err)
	}
	done(h.Release())
}

func mutexOverClients(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Mutex("m").Acquire(ctx))
	refused(second(b.Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire by another client")
	done(h.Release())
	free(ctx, b.Mutex("m"), "after another client's Release")
}

func mutexCrowd(ctx context.Context, e *Env) {
	clients := []*holdfast.Space{e.Client(), e.Client(), e.Client()}
	var inside atomic.Int64
	crowd(ctx, 100, clients, func(_ int, s *holdfast.Space, entered func()) {
		done(s.Mutex("m").Do(ctx, func(context.Context, *holdfast.Hold) error {
			n := inside.Add(1)
			entered()
			want(n == 1, "%d are inside at once", n)
			inside.Add(-1)
			return nil
		}))
	})
}

func mutexSpaceIsNoHolder(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.Mutex("m").Acquire(ctx))
	other := later(func() (*holdfast.Hold, error) { return s.Mutex("m").TryAcquire(ctx) })
	refused(second(other.wait(ctx, "TryAcquire of another goroutine")), holdfast.ErrHeld, "TryAcquire of another goroutine")
	next := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return s.Mutex("m", o).Acquire(ctx) })
	want(!next.over(), "a second goroutine was granted beside the first")
	done(h.Release())
	done(next.granted(ctx).Release())
}

func mutexNotReentrant(ctx context.Context, e *Env) {
	m := e.Client().Mutex("m")
	done(m.Do(ctx, func(ctx context.Context, _ *holdfast.Hold) error {
		refused(second(m.TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire by the holder")
		return nil
	}))
}

func mutexReentrant(ctx context.Context, e *Env) {
	s := e.Client()
	m := s.Mutex("m", holdfast.Reentrant())
	outer := must(m.Acquire(ctx))
	inner := must(m.Acquire(outer.Bind(ctx)))
	want(inner.Token() == outer.Token(), "the joined hold has the token %d, the first %d", inner.Token(), outer.Token())
	done(outer.Release())
	refused(outer.Err(), holdfast.ErrReleased, "Err of the first hold after its Release")
	done(inner.Err())
	refused(second(s.Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire before the last Release")
	done(inner.Release())
	free(ctx, s.Mutex("m"), "after the last Release")
}

func mutexOwnerDecidesNothing(ctx context.Context, e *Env) {
	a, b := e.Client(holdfast.Owner("twin")), e.Client(holdfast.Owner("twin"))
	h := must(a.Mutex("m").Acquire(ctx))
	refused(second(b.Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire under the holder's Owner")
	next := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return b.Mutex("m", o).Acquire(ctx) })
	done(h.Release())
	got := next.granted(ctx)
	want(got.Token() > h.Token(), "it got the token %d after %d", got.Token(), h.Token())
}

// heldBy is the one holder that err tells of.
func heldBy(err error) holdfast.Claim {
	refused(err, holdfast.ErrHeld, "TryAcquire of a held name")
	he, ok := errors.AsType[*holdfast.Error](err)
	want(ok, "the error is a %T, not an *Error", err)
	want(len(he.Holders) == 1, "ErrHeld lists %d holders; want the one", len(he.Holders))
	return he.Holders[0]
}

func mutexTryTellsHolder(ctx context.Context, e *Env) {
	a, b := e.Client(holdfast.Owner("the first"), holdfast.Meta("job=7")), e.Client(holdfast.Owner("the second"))
	h := e.take(a.Mutex("m").Acquire(ctx))
	c := heldBy(second(b.Mutex("m").TryAcquire(ctx)))
	want(c.Owner == "the first", "the holder's owner is told as %q", c.Owner)
	want(c.Meta == "job=7", "the holder's metadata is told as %q", c.Meta)
	want(holdfast.Token(c.Token) == h.Token(), "the holder's token is told as %d; it has %d", c.Token, h.Token())
	eventually(ctx, "the time for which the holder is told to hold does not grow", func() bool {
		return heldBy(second(b.Mutex("m").TryAcquire(ctx))).Held > 3*clockError
	})
	start := time.Now()
	e.take(a.Mutex("fresh").Acquire(ctx))
	c = heldBy(second(b.Mutex("fresh").TryAcquire(ctx)))
	want(c.Held >= 0 && c.Held <= time.Since(start)+clockError, "the holder is told to hold for %s, %s after it began", c.Held, time.Since(start))
}

// clockError is how far an engine's clock may be coarser than ours.
const clockError = 100 * time.Millisecond

func mutexTryTellsDeadline(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	e.take(a.Mutex("m", holdfast.TTL(time.Minute)).Acquire(ctx))
	c := heldBy(second(b.Mutex("m").TryAcquire(ctx)))
	want(c.ExpiresIn > time.Minute/2 && c.ExpiresIn <= time.Minute+clockError, "a holder with a TTL of a minute is told to last another %s", c.ExpiresIn)
}

func mutexTryTellsQueue(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.Mutex("m").Acquire(ctx))
	for n := range 3 {
		err := second(s.Mutex("m").TryAcquire(ctx))
		refused(err, holdfast.ErrHeld, "TryAcquire of a held mutex")
		he, _ := errors.AsType[*holdfast.Error](err)
		want(he.Waiting == n, "%d are told to wait; %d do", he.Waiting, n)
		waiter := e.Client()
		queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return waiter.Mutex("m", o).Acquire(ctx) })
	}
	done(h.Release())
}

func mutexTryLeavesNothing(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Mutex("m").Acquire(ctx))
	for range 3 {
		refused(second(b.Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire of a held mutex")
	}
	want(len(must(a.Inspect(ctx, "m")).Waiters) == 0, "a refused TryAcquire waits")
	done(h.Release())
	free(ctx, a.Mutex("m"), "after refused TryAcquires and a Release")
}

func mutexWaitIsServed(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Mutex("m").Acquire(ctx))
	next := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return b.Mutex("m", o).Acquire(ctx) })
	must(a.Inspect(ctx, "m"))
	want(!next.over(), "the waiter was granted while the mutex was held")
	done(h.Release())
	done(next.granted(ctx).Release())
}

func tokenGrows(ctx context.Context, e *Env) {
	clients := []*holdfast.Space{e.Client(), e.Client()}
	var last holdfast.Token
	for i := range 10 {
		m, other := clients[i%2].Mutex("m"), clients[1-i%2].Mutex("m")
		h := must(m.Acquire(ctx))
		want(h.Token() > last, "the token %d came after %d", h.Token(), last)
		last = h.Token()
		refused(second(other.TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire of a held mutex")
		done(h.Release())
	}
}

func tokenGrowsInTheQueue(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Mutex("m").Acquire(ctx))
	next := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return b.Mutex("m", o).Acquire(ctx) })
	done(h.Release())
	got := next.granted(ctx)
	want(got.Token() > h.Token(), "the waiter got the token %d, the holder before had %d", got.Token(), h.Token())
}

func tokenOutlivesClients(ctx context.Context, e *Env) {
	keep := e.Root() // a store in memory lives as long as somebody has it open
	done(keep.Ping(ctx))
	var last holdfast.Token
	for range 3 {
		s := must(e.Open(ctx))
		h := must(s.Sub(e.Prefix()).Mutex("m").Acquire(ctx))
		want(h.Token() > last, "the token %d came after %d", h.Token(), last)
		last = h.Token()
		done(h.Release())
		done(s.Close())
	}
}

func tokenFitsEverywhere(ctx context.Context, e *Env) {
	h := must(e.Client().Mutex("m").Acquire(ctx))
	want(h.Token() > 0 && h.Token() < 1<<53, "the token is %d", h.Token())
	done(h.Release())
}

package drivertest

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast"
)

var holdCases = []Case{
	{Name: "Hold/ErrTellsExactly", Run: run(holdErrTellsExactly),
		Promise: "Err is nil exactly while the hold lasts: after Release it is ErrReleased before the next holder is granted."},
	{Name: "Hold/DoneClosesAtTheEnd", Run: run(holdDoneClosesAtTheEnd),
		Promise: "Done is open while the hold lasts and closed after Release."},
	{Name: "Hold/BindEndsWithTheHold", Run: run(holdBindEndsWithTheHold),
		Promise: "A context made by Bind ends with the hold and has the hold's end as its cause."},
	{Name: "Hold/BindEndsWithTheParent", Run: run(holdBindEndsWithTheParent),
		Promise: "A context made by Bind ends with its parent, with the parent's cause and values, and the hold goes on."},
	{Name: "Hold/DeadlineWithinTTL", Uses: HasTTL, Run: timed(holdDeadlineWithinTTL),
		Promise: "A hold's deadline is never later than its TTL after its last renewal was sent."},
	{Name: "Hold/IsRenewed", Uses: HasTTL, Run: timed(holdIsRenewed),
		Promise: "A hold whose program is alive outlives its TTL."},
	{Name: "Hold/ReleaseTwice", Run: run(holdReleaseTwice),
		Promise: "A second Release returns what the first did and frees nobody else's hold; of a nil Hold it does nothing."},
	{Name: "Hold/ReleaseAtOnceByMany", Run: run(holdReleaseAtOnceByMany),
		Promise: "Goroutines that release one hold together get the same answer, and the name is freed once."},
	{Name: "Hold/ReleaseAfterCancel", Run: run(holdReleaseAfterCancel),
		Promise: "Release frees the name also when the context of its Acquire has ended."},
	{Name: "Hold/Abandoned", Run: run(holdAbandoned),
		Promise: "A Hold that becomes unreachable is released, and Hooks.Fault is told."},
	{Name: "Hold/ReleaseIsBounded", Uses: CanCut, Run: timed(holdReleaseIsBounded),
		Promise: "With the backend gone, Releases return within five seconds each and say ErrUnavailable."},
}

func holdErrTellsExactly(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.Mutex("m").Acquire(ctx))
	seen := make(chan error, 1)
	next := later(func() (*holdfast.Hold, error) {
		got, err := e.Client().Mutex("m").Acquire(ctx)
		seen <- h.Err()
		return got, err
	})
	must(s.Inspect(ctx, "m"))
	done(h.Err())
	done(h.Release())
	done(must(next.wait(ctx, "the next Acquire")).Err())
	refused(<-seen, holdfast.ErrReleased, "Err when the next holder is granted")
	want(!errors.Is(h.Err(), holdfast.ErrLost), "Err after Release is %v", h.Err())
}

func holdDoneClosesAtTheEnd(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.Mutex("m").Acquire(ctx))
	must(s.Inspect(ctx, "m"))
	select {
	case <-h.Done():
		fail("Done is closed while the hold lasts")
	default:
	}
	done(h.Release())
	ends(ctx, h.Done(), "the hold after Release")
}

func holdBindEndsWithTheHold(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.Mutex("m").Acquire(ctx))
	bound := h.Bind(ctx)
	must(s.Inspect(ctx, "m"))
	done(bound.Err())
	done(h.Release())
	ends(ctx, bound.Done(), "the bound context after Release")
	refused(context.Cause(bound), holdfast.ErrReleased, "the cause of a context bound to a released hold")
	late := h.Bind(ctx)
	refused(late.Err(), context.Canceled, "Err of a context bound after Release")
	refused(context.Cause(late), holdfast.ErrReleased, "the cause of a context bound after Release")
}

func holdBindEndsWithTheParent(ctx context.Context, e *Env) {
	type key struct{}
	why := errors.New("the request is over")
	h := must(e.Client().Mutex("m").Acquire(ctx))
	parent, cancel := context.WithCancelCause(context.WithValue(ctx, key{}, "value"))
	bound := h.Bind(parent)
	want(bound.Value(key{}) == "value", "the parent's value is %v", bound.Value(key{}))
	done(bound.Err())
	cancel(why)
	ends(ctx, bound.Done(), "the bound context after its parent")
	refused(context.Cause(bound), why, "the cause of a context whose parent ended")
	done(h.Err())
	done(h.Release())
}

func holdDeadlineWithinTTL(ctx context.Context, e *Env) {
	for _, ttl := range []time.Duration{e.TTL, 10 * e.TTL} {
		h := must(e.Client().Mutex("m-"+ttl.String(), holdfast.TTL(ttl)).Acquire(ctx))
		at, ok := h.Deadline()
		granted := time.Now()
		want(ok, "a hold with a TTL has no deadline")
		want(at.After(granted), "the deadline had passed when the hold was granted")
		want(!at.After(granted.Add(ttl)), "the deadline is %s away, beyond the TTL of %s", time.Until(at), ttl)
		done(h.Release())
	}
}

func holdIsRenewed(ctx context.Context, e *Env) {
	h := must(e.Client().Mutex("m", e.short()).Acquire(ctx))
	first, _ := h.Deadline()
	eventually(ctx, "the hold was not renewed", func() bool {
		done(h.Err())
		return time.Now().After(first)
	})
	err := second(e.Client().Mutex("m").TryAcquire(ctx))
	inTime(h)
	refused(err, holdfast.ErrHeld, "TryAcquire after the first deadline")
	done(h.Release())
}

func holdReleaseTwice(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Mutex("m").Acquire(ctx))
	done(h.Release())
	next := must(b.Mutex("m").Acquire(ctx))
	done(h.Release())
	done((*holdfast.Hold)(nil).Release())
	refused(second(a.Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire after a second Release of the hold before")
	done(next.Err())
	done(next.Release())
}

func holdReleaseAtOnceByMany(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Mutex("m").Acquire(ctx))
	next := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return b.Mutex("m", o).Acquire(ctx) })
	together(20, func(int) { done(h.Release()) })
	got := next.granted(ctx)
	refused(second(a.Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire of the next holder's mutex")
	done(got.Release())
}

func holdReleaseAfterCancel(ctx context.Context, e *Env) {
	m := e.Client().Mutex("m")
	waiting, cancel := context.WithCancel(ctx)
	h := must(m.Acquire(waiting))
	cancel()
	done(h.Release())
	free(ctx, m, "after a Release past the context's end")
}

func holdAbandoned(ctx context.Context, e *Env) {
	var told atomic.Int32
	s := e.Client(holdfast.Hooks{Fault: func(op, name string, err error) {
		if name == e.Prefix()+"m" && errors.Is(err, holdfast.ErrReleased) {
			told.Add(1)
		}
	}})
	must(s.Mutex("m").Acquire(ctx))
	other := e.Client().Mutex("m")
	looks := 0
	eventually(ctx, "an unreachable hold was not released", func() bool {
		if looks++; looks%10 == 1 {
			runtime.GC()
		}
		return isFree(ctx, other)
	})
	eventually(ctx, "Hooks.Fault was not told of an unreachable hold", func() bool { return told.Load() == 1 })
}

func holdReleaseIsBounded(ctx context.Context, e *Env) {
	root := e.Root()
	s := root.Sub(e.Prefix())
	var holds []*holdfast.Hold
	for _, name := range []string{"a", "b", "c", "d"} {
		holds = append(holds, must(s.Mutex(name, holdfast.TTL(e.long())).Acquire(ctx)))
	}
	mend := e.Cut(root)
	defer mend()
	start := time.Now()
	together(len(holds), func(i int) {
		err := holds[i].Release()
		refused(err, holdfast.ErrUnavailable, "Release with the backend gone")
		refused(holds[i].Err(), holdfast.ErrReleased, "Err after a Release with the backend gone")
	})
	want(time.Since(start) < 6*time.Second, "Releases with the backend gone took %s", time.Since(start))
}

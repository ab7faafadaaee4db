package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var (
	swept       = []driver.Feature{driver.FeatureSweep}
	sweptLimits = []driver.Feature{driver.FeatureSweep, driver.FeatureWeighted}
)

var sweepCases = []Case{
	{Name: "Sweep/HeldStays", Needs: swept, Uses: HasDriver, Run: run(sweepHeldStays),
		Promise: "A sweep leaves alone what is held, and a waiter for it is served."},
	{Name: "Sweep/TokensGrow", Needs: swept, Uses: HasDriver, Run: run(sweepTokensGrow),
		Promise: "The next token of a name that was swept is greater than its last."},
	{Name: "Sweep/DataStays", Needs: swept, Uses: HasDriver, Run: run(sweepDataStays),
		Promise: "Counters, sequences, keys and latches are after a sweep what they were."},
	{Name: "Sweep/BesideOthers", Needs: swept, Uses: HasDriver, Run: run(sweepBesideOthers),
		Promise: "Sweeps beside many who take and give back the same names let in no two at a time, and tokens grow."},
	{Name: "Sweep/Limits", Needs: sweptLimits, Uses: HasDriver, Run: run(sweepLimits),
		Promise: "An idle semaphore keeps its limit in a sweep unless limits are asked for; one in use keeps it always."},
	{Name: "Sweep/ContextEnds", Needs: swept, Uses: HasDriver, Run: run(sweepContextEnds),
		Promise: "A sweep whose context has ended says so and removes nothing."},
}

// sweep sweeps the names of the case.
func (e *Env) sweep(ctx context.Context, limits bool) (driver.SweepReply, error) {
	d := must(e.Driver(ctx))
	defer d.Close(context.WithoutCancel(ctx))
	return d.Sweep(ctx, &driver.SweepRequest{Prefix: e.Prefix(), Limits: limits})
}

func sweepHeldStays(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Mutex("m").Acquire(ctx))
	must(e.sweep(ctx, true))
	done(h.Err())
	refused(second(b.Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "what is held, after a sweep")
	next := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return b.Mutex("m", o).Acquire(ctx) })
	must(e.sweep(ctx, true))
	done(h.Release())
	got := next.granted(ctx)
	want(got.Token() > h.Token(), "after the token %d came %d", h.Token(), got.Token())
	done(got.Release())
}

func sweepTokensGrow(ctx context.Context, e *Env) {
	s := e.Client()
	const names = 50
	var last [names]holdfast.Token
	for range 3 {
		for i := range names {
			h := must(s.Mutex(fmt.Sprintf("m/%d", i)).Acquire(ctx))
			want(h.Token() > last[i], "after the token %d came %d", last[i], h.Token())
			last[i] = h.Token()
			done(h.Release())
		}
		must(e.sweep(ctx, true))
	}
}

func sweepDataStays(ctx context.Context, e *Env) {
	s := e.Client()
	if e.Has(driver.FeatureCounter) {
		must(s.Counter("c").Add(ctx, 7))
		defer func() { n := must(s.Counter("c").Load(ctx)); want(n == 7, "a counter at 7 is at %d", n) }()
	}
	if e.Has(driver.FeatureSequence) {
		must(s.Sequence("q").Reserve(ctx, 3))
		defer func() { n := must(s.Sequence("q").Reserve(ctx, 1)); want(n == 4, "a sequence at 4 is at %d", n) }()
	}
	if e.Has(driver.FeatureKV) {
		must(s.KV().Put(ctx, "k", []byte("v")))
		defer func() { v := must(s.KV().Get(ctx, "k")); want(string(v.Value) == "v", "the value v is %q", v.Value) }()
	}
	if e.Has(driver.FeatureLatch) {
		must(s.Latch("l", 1).CountDown(ctx, 1))
		defer func() { done(s.Latch("l", 1).Wait(ctx)) }()
	}
	must(e.sweep(ctx, true))
}

func sweepBesideOthers(ctx context.Context, e *Env) {
	const names, clients, rounds = 3, 4, 30
	var (
		inside [names]atomic.Int32
		last   [names]atomic.Uint64
		spaces [clients]*holdfast.Space
	)
	for i := range spaces {
		spaces[i] = e.Client()
	}
	whole, end := e.sweepOn(ctx)
	defer end()
	together(clients, func(c int) {
		for i := range rounds {
			n := (i + c) % names
			h := must(spaces[c].Mutex(fmt.Sprint("m", n)).Acquire(ctx))
			want(inside[n].Add(1) == 1, "two hold a name at a time")
			before := last[n].Swap(uint64(h.Token()))
			want(before < uint64(h.Token()), "after the token %d came %d", before, h.Token())
			if i == 0 {
				done(whole(ctx))
			}
			inside[n].Add(-1)
			done(h.Release())
		}
	})
	done(end())
}

// sweepOn sweeps again and again until end is called, which tells what failed. One
// sweep at least begins and ends while a call of whole lasts.
func (e *Env) sweepOn(ctx context.Context) (whole func(context.Context) error, end func() error) {
	d := must(e.Driver(ctx))
	sweeping, stop := context.WithCancel(ctx)
	swept := make(chan struct{})
	b := later(func() (struct{}, error) {
		for {
			_, err := d.Sweep(sweeping, &driver.SweepRequest{Prefix: e.Prefix()})
			if sweeping.Err() != nil || err != nil {
				return struct{}{}, err
			}
			select {
			case swept <- struct{}{}:
			default:
			}
		}
	})
	whole = func(ctx context.Context) error {
		for range 2 { // the first may have begun before
			select {
			case <-swept:
			case <-b.ended:
				return b.err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	return whole, sync.OnceValue(func() error {
		stop()
		<-b.ended
		if errors.Is(b.err, context.Canceled) {
			b.err = nil
		}
		return errors.Join(b.err, d.Close(context.WithoutCancel(ctx)))
	})
}

func sweepLimits(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.Semaphore("used", 2).Acquire(ctx, 1))
	done(must(s.Semaphore("idle", 2).Acquire(ctx, 1)).Release())
	must(e.sweep(ctx, false))
	refused(second(s.Semaphore("idle", 3).TryAcquire(ctx, 1)), holdfast.ErrConflict, "another limit after a sweep")
	must(e.sweep(ctx, true))
	refused(second(s.Semaphore("used", 3).TryAcquire(ctx, 1)), holdfast.ErrConflict, "another limit of a semaphore in use")
	done(must(s.Semaphore("idle", 3).TryAcquire(ctx, 1)).Release())
	done(h.Release())
}

func sweepContextEnds(ctx context.Context, e *Env) {
	d := must(e.Driver(ctx))
	defer d.Close(ctx)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	reply, err := d.Sweep(ended, &driver.SweepRequest{Prefix: e.Prefix(), Limits: true})
	want(errors.Is(err, context.Canceled) && reply.Removed == 0, "it answers %d, %v", reply.Removed, err)
}

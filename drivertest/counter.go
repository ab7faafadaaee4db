package drivertest

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var counter = []driver.Feature{driver.FeatureCounter}

var counterCases = []Case{
	{Name: "Counter/AddAndLoad", Needs: counter, Run: run(counterAddAndLoad),
		Promise: "A counter begins at 0, Add returns the sum, and every client loads it."},
	{Name: "Counter/Store", Needs: counter, Run: run(counterStore),
		Promise: "Store sets the value for everybody, also to 0 and below."},
	{Name: "Counter/CountsExactly", Needs: counter, Run: run(counterCountsExactly),
		Promise: "Adds of many goroutines and clients at once are all counted, and each is told another sum."},
	{Name: "Counter/CompareAndSwap", Needs: counter, Run: run(counterCompareAndSwap),
		Promise: "CompareAndSwap sets the value if it is the old one, and else changes nothing and says so."},
	{Name: "Counter/SwapOfZero", Needs: counter, Run: run(counterSwapOfZero),
		Promise: "CompareAndSwap of 0 swaps a counter that was never used and one that was set to 0."},
	{Name: "Counter/OneSwapWins", Needs: counter, Run: run(counterOneSwapWins),
		Promise: "Of several CompareAndSwaps from the same value one wins."},
	{Name: "Counter/SignedSaturates", Needs: counter, Run: run(counterSignedSaturates),
		Promise: "A signed counter stops at the ends of int64 and never wraps."},
	{Name: "Counter/UnsignedSaturates", Needs: counter, Run: run(counterUnsignedSaturates),
		Promise: "An unsigned counter stops at 0 and at the end of uint64 and never wraps."},
	{Name: "Counter/SubOfAll", Needs: counter, Run: run(counterSubOfAll),
		Promise: "Sub takes any uint64 off an unsigned counter, also 0, which leaves the value, and tells what is left."},
	{Name: "Counter/OneSign", Needs: counter, Run: run(counterOneSign),
		Promise: "Using a signed counter as an unsigned one, or the other way round, is ErrConflict and changes nothing."},
	{Name: "Counter/Delete", Needs: counter, Run: run(counterDelete),
		Promise: "A deleted counter is 0 again and may take the other sign."},
}

var bufferedCases = []Case{
	{Name: "Buffered/FlushesAtThreshold", Needs: counter, Run: run(bufferedFlushesAtThreshold),
		Promise: "A buffered counter keeps what is below its threshold and flushes when it is reached."},
	{Name: "Buffered/FlushesAfterInterval", Needs: counter, Run: run(bufferedFlushesAfterInterval),
		Promise: "A buffered counter flushes what was added an interval ago."},
	{Name: "Buffered/CloseFlushes", Needs: counter, Run: run(bufferedCloseFlushes),
		Promise: "Closing a buffered counter flushes the rest and takes no more."},
	{Name: "Buffered/CountsExactly", Needs: counter, Run: run(bufferedCountsExactly),
		Promise: "What many goroutines add to buffered counters of several clients is counted once."},
	{Name: "Buffered/PutsBack", Needs: counter, Uses: CanCut, Run: run(bufferedPutsBack),
		Promise: "A flush that fails puts its amount back: it is counted once when the backend is there again."},
}

func counterAddAndLoad(ctx context.Context, e *Env) {
	a, b := e.Client().Counter("c"), e.Client().Counter("c")
	want(must(b.Load(ctx)) == 0, "an unused counter is %d", must(b.Load(ctx)))
	var sum int64
	for _, delta := range []int64{5, -7, 0, 1 << 40, -(1 << 41)} {
		sum += delta
		got := must(a.Add(ctx, delta))
		want(got == sum, "Add(%d) returned %d; the sum is %d", delta, got, sum)
		want(must(b.Load(ctx)) == sum, "another client loads %d; the sum is %d", must(b.Load(ctx)), sum)
	}
}

func counterStore(ctx context.Context, e *Env) {
	a, b := e.Client().Counter("c"), e.Client().Counter("c")
	for _, v := range []int64{42, -1, 0, math.MaxInt64, math.MinInt64} {
		done(a.Store(ctx, v))
		want(must(b.Load(ctx)) == v, "%d was stored, and %d loaded", v, must(b.Load(ctx)))
	}
	done(b.Reset(ctx))
	want(must(a.Load(ctx)) == 0, "after Reset it is %d", must(a.Load(ctx)))
}

func counterCountsExactly(ctx context.Context, e *Env) {
	const n = 100
	clients := []*holdfast.Space{e.Client(), e.Client(), e.Client()}
	sums := make([]int64, n)
	together(n, func(i int) { sums[i] = must(clients[i%len(clients)].Counter("c").Add(ctx, 1)) })
	slices.Sort(sums)
	for i, sum := range sums {
		want(sum == int64(i+1), "the sums told are %v", sums)
	}
	want(must(clients[0].Counter("c").Load(ctx)) == n, "%d adds of 1 gave %d", n, must(clients[0].Counter("c").Load(ctx)))
}

func counterCompareAndSwap(ctx context.Context, e *Env) {
	a, b := e.Client().Counter("c"), e.Client().Counter("c")
	done(a.Store(ctx, 3))
	want(!must(b.CompareAndSwap(ctx, 4, 9)), "4 was swapped; the value is 3")
	want(must(a.Load(ctx)) == 3, "a failed swap left %d", must(a.Load(ctx)))
	want(must(b.CompareAndSwap(ctx, 3, -9)), "3 was not swapped; the value is 3")
	want(must(a.Load(ctx)) == -9, "the swap left %d", must(a.Load(ctx)))
}

func counterSwapOfZero(ctx context.Context, e *Env) {
	s := e.Client()
	want(must(s.Counter("new").CompareAndSwap(ctx, 0, 5)), "0 was not swapped on a counter that was never used")
	want(!must(s.Counter("new").CompareAndSwap(ctx, 0, 6)), "0 was swapped; the value is 5")
	done(s.Counter("zero").Store(ctx, 7))
	done(s.Counter("zero").Store(ctx, 0))
	want(must(s.Counter("zero").CompareAndSwap(ctx, 0, 5)), "0 was not swapped on a counter that was set to 0")
	want(must(s.Counter("zero").Load(ctx)) == 5, "the swap left %d", must(s.Counter("zero").Load(ctx)))
}

func counterOneSwapWins(ctx context.Context, e *Env) {
	clients := []*holdfast.Space{e.Client(), e.Client()}
	won := make([]bool, 20)
	together(len(won), func(i int) { won[i] = must(clients[i%2].Counter("c").CompareAndSwap(ctx, 0, int64(i+1))) })
	first := slices.Index(won, true)
	want(first >= 0, "nobody's swap won")
	want(!slices.Contains(won[first+1:], true), "the swaps that won are %v", won)
	want(must(clients[0].Counter("c").Load(ctx)) == int64(first+1), "swap %d won, and the value is %d", first+1, must(clients[0].Counter("c").Load(ctx)))
}

func counterSignedSaturates(ctx context.Context, e *Env) {
	c := e.Client().Counter("c")
	done(c.Store(ctx, math.MaxInt64-1))
	for range 2 {
		want(must(c.Add(ctx, 5)) == math.MaxInt64, "the top is passed: %d", must(c.Load(ctx)))
	}
	want(must(c.Add(ctx, -1)) == math.MaxInt64-1, "below the top it is %d", must(c.Load(ctx)))
	done(c.Store(ctx, math.MinInt64+1))
	for range 2 {
		want(must(c.Add(ctx, math.MinInt64)) == math.MinInt64, "the bottom is passed: %d", must(c.Load(ctx)))
	}
	want(must(c.Add(ctx, 1)) == math.MinInt64+1, "above the bottom it is %d", must(c.Load(ctx)))
}

func counterUnsignedSaturates(ctx context.Context, e *Env) {
	c := e.Client().Counter("c").Unsigned()
	want(must(c.Sub(ctx, 3)) == 0, "0 less 3 is %d", must(c.Load(ctx)))
	want(must(c.Add(ctx, math.MaxUint64)) == math.MaxUint64, "the greatest number became %d", must(c.Load(ctx)))
	want(must(c.Add(ctx, 1)) == math.MaxUint64, "the top is passed: %d", must(c.Load(ctx)))
	want(must(c.Sub(ctx, 2)) == math.MaxUint64-2, "below the top it is %d", must(c.Load(ctx)))
	want(must(c.CompareAndSwap(ctx, math.MaxUint64-2, 1)), "a great number was not swapped")
	want(must(c.Sub(ctx, math.MaxUint64)) == 0, "the bottom is passed: %d", must(c.Load(ctx)))
}

func counterSubOfAll(ctx context.Context, e *Env) {
	s := e.Client()
	want(must(s.Counter("new").Unsigned().Sub(ctx, 0)) == 0, "0 less 0 is not 0")
	c := s.Counter("c").Unsigned()
	for _, value := range []uint64{7, 1 << 63, math.MaxUint64} {
		for _, delta := range []uint64{0, 1, 7, 1<<63 - 1, 1 << 63, 1<<63 + 1, math.MaxUint64 - 1, math.MaxUint64} {
			done(c.Store(ctx, value))
			left := value - min(value, delta)
			got := must(c.Sub(ctx, delta))
			want(got == left, "%d less %d is told as %d", value, delta, got)
			want(must(c.Add(ctx, 0)) == left, "%d less %d left %d", value, delta, must(c.Load(ctx)))
		}
	}
}

func counterOneSign(ctx context.Context, e *Env) {
	s := e.Client()
	must(s.Counter("signed").Add(ctx, -2))
	refused(second(s.Counter("signed").Unsigned().Add(ctx, 1)), holdfast.ErrConflict, "an unsigned Add to a signed counter")
	refused(second(s.Counter("signed").Unsigned().Load(ctx)), holdfast.ErrConflict, "an unsigned Load of a signed counter")
	want(must(s.Counter("signed").Load(ctx)) == -2, "a refused Add changed the value to %d", must(s.Counter("signed").Load(ctx)))
	must(s.Counter("unsigned").Unsigned().Add(ctx, 2))
	refused(s.Counter("unsigned").Store(ctx, 1), holdfast.ErrConflict, "a signed Store to an unsigned counter")
}

func counterDelete(ctx context.Context, e *Env) {
	s := e.Client()
	must(s.Counter("c").Add(ctx, -2))
	done(s.Counter("c").Delete(ctx))
	want(must(s.Counter("c").Load(ctx)) == 0, "a deleted counter is %d", must(s.Counter("c").Load(ctx)))
	want(must(s.Counter("c").Unsigned().Add(ctx, 1)) == 1, "a deleted counter kept its sign")
}

func bufferedFlushesAtThreshold(ctx context.Context, e *Env) {
	s, other := e.Client(), e.Client().Counter("c")
	b := s.Counter("c").Buffered(10, time.Hour)
	for range 9 {
		done(b.Add(1))
	}
	want(must(other.Load(ctx)) == 0, "%d was flushed below the threshold", must(other.Load(ctx)))
	want(must(b.LoadApprox(ctx)) == 9, "LoadApprox is %d after 9", must(b.LoadApprox(ctx)))
	done(b.Add(1))
	eventually(ctx, "the threshold was reached and nothing flushed", func() bool { return must(other.Load(ctx)) == 10 })
	done(b.Close())
	want(must(other.Load(ctx)) == 10, "after Close the value is %d", must(other.Load(ctx)))
}

func bufferedFlushesAfterInterval(ctx context.Context, e *Env) {
	b := e.Client().Counter("c").Unsigned().Buffered(1<<40, 10*time.Millisecond)
	other := e.Client().Counter("c").Unsigned()
	for sum := uint64(3); sum <= 6; sum += 3 {
		done(b.Add(3))
		eventually(ctx, "the interval has passed and nothing was flushed", func() bool { return must(other.Load(ctx)) == sum })
	}
	done(b.Close())
}

func bufferedCloseFlushes(ctx context.Context, e *Env) {
	b, other := e.Client().Counter("c").Buffered(1<<40, time.Hour), e.Client().Counter("c")
	done(b.Add(-4))
	want(must(b.LoadExact(ctx)) == -4, "LoadExact is %d after -4", must(b.LoadExact(ctx)))
	want(must(other.Load(ctx)) == -4, "LoadExact left %d", must(other.Load(ctx)))
	done(b.Add(-1))
	done(b.Close())
	want(must(other.Load(ctx)) == -5, "Close left %d", must(other.Load(ctx)))
	refused(b.Add(1), holdfast.ErrClosed, "Add after Close")
}

func bufferedCountsExactly(ctx context.Context, e *Env) {
	clients := []*holdfast.Space{e.Client(), e.Client()}
	together(8, func(i int) {
		b := clients[i%2].Counter("c").Buffered(7, time.Millisecond)
		for range 100 {
			done(b.Add(1))
		}
		done(b.Close())
	})
	want(must(clients[0].Counter("c").Load(ctx)) == 800, "800 adds of 1 gave %d", must(clients[0].Counter("c").Load(ctx)))
}

func bufferedPutsBack(ctx context.Context, e *Env) {
	root, other := e.Root(), e.Client().Counter("c")
	b := root.Sub(e.Prefix()).Counter("c").Buffered(1<<40, time.Hour)
	done(b.Add(5))
	mend := e.Cut(root)
	defer mend()
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	want(second(b.Flush(short)) != nil, "Flush with the backend gone succeeded")
	done(b.Add(2))
	mend()
	want(must(b.Flush(ctx)) == 7, "the flush after the failed one did not give 7")
	want(must(other.Load(ctx)) == 7, "5 and 2 gave %d", must(other.Load(ctx)))
	done(b.Close())
}

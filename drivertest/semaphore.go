package drivertest

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"sync/atomic"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var (
	weighted     = []driver.Feature{driver.FeatureWeighted}
	weightedFIFO = []driver.Feature{driver.FeatureWeighted, driver.FeatureFIFO}
	resizable    = []driver.Feature{driver.FeatureWeighted, driver.FeatureResize}
)

var semaphoreCases = []Case{
	{Name: "Semaphore/Weights", Needs: weighted, Run: run(semWeights),
		Promise: "The weights that are held never exceed the limit: more is ErrHeld, the rest is granted."},
	{Name: "Semaphore/Drain", Needs: weighted, Run: run(semDrain),
		Promise: "A semaphore can be drained unit by unit, and released units can be taken again."},
	{Name: "Semaphore/Crowd", Needs: weighted, Run: run(semCrowd),
		Promise: "Of many goroutines over several clients never more than the limit are inside, and all get their turn."},
	{Name: "Semaphore/LimitDiffers", Needs: weighted, Run: run(semLimitDiffers),
		Promise: "Using a semaphore with another limit than it has is ErrConflict and takes nothing."},
	{Name: "Semaphore/LimitOfItsOwn", Needs: weighted, Run: run(semLimitOfItsOwn),
		Promise: "The limit 0 means the one that the semaphore has; of an unknown semaphore it is fs.ErrNotExist."},
	{Name: "Semaphore/TooHeavy", Needs: weighted, Run: run(semTooHeavy),
		Promise: "A weight above the limit is fs.ErrInvalid at once instead of a wait for ever."},
	{Name: "Semaphore/BadWeights", Needs: weighted, Run: run(semBadWeights),
		Promise: "A weight below 1 or a negative limit is fs.ErrInvalid and takes nothing."},
	{Name: "Semaphore/HeadBlocks", Needs: weightedFIFO, Run: run(semHeadBlocks),
		Promise: "A heavy claim at the head of the queue is not overtaken by lighter ones that would fit."},
	{Name: "Semaphore/WakesAllThatFit", Needs: weighted, Run: run(semWakesAllThatFit),
		Promise: "A release wakes every waiter that fits now."},
	{Name: "Semaphore/LargeCounts", Needs: weighted, Run: run(semLargeCounts),
		Promise: "Limits and weights are exact up to 2³¹−1."},
	{Name: "Semaphore/TokensTellApart", Needs: weighted, Run: run(semTokensTellApart),
		Promise: "Every holder of a semaphore has a token of its own, and ErrHeld lists them with their weights."},
	{Name: "Semaphore/LimitOutlivesHolders", Needs: weighted, Run: run(semLimitOutlivesHolders),
		Promise: "A semaphore keeps its limit when nobody holds it."},
	{Name: "Semaphore/DeleteIdleOnly", Needs: weighted, Run: run(semDeleteIdleOnly),
		Promise: "Delete forgets an idle semaphore with its limit; one in use is ErrHeld and stays."},
}

var resizeCases = []Case{
	{Name: "Semaphore/Grow", Needs: resizable, Run: run(semGrow),
		Promise: "Raising the limit grants at once the waiters that fit now, and is the limit for everybody."},
	{Name: "Semaphore/Shrink", Needs: resizable, Run: run(semShrink),
		Promise: "Lowering the limit takes no hold away; nothing is granted until what is held fits."},
	{Name: "Semaphore/ShrinkRefusesTheImpossible", Needs: resizable, Run: run(semShrinkRefuses),
		Promise: "Waiters that a lower limit makes impossible are refused at once, and a waiter behind them is served."},
	{Name: "Semaphore/ResizeUnknown", Needs: resizable, Run: run(semResizeUnknown),
		Promise: "SetLimit of an unknown semaphore is fs.ErrNotExist, and of a limit below 1 fs.ErrInvalid."},
}

func semWeights(ctx context.Context, e *Env) {
	a, b := e.Client().Semaphore("s", 10), e.Client().Semaphore("s", 10)
	seven := must(a.Acquire(ctx, 7))
	refused(second(b.TryAcquire(ctx, 4)), holdfast.ErrHeld, "4 more of 10 beside 7")
	three := must(b.TryAcquire(ctx, 3))
	refused(second(a.TryAcquire(ctx, 1)), holdfast.ErrHeld, "1 more of 10 beside 7 and 3")
	done(seven.Release())
	refused(second(a.TryAcquire(ctx, 8)), holdfast.ErrHeld, "8 of 10 beside 3")
	done(must(a.TryAcquire(ctx, 7)).Release())
	done(three.Release())
	done(must(b.TryAcquire(ctx, 10)).Release())
}

func semDrain(ctx context.Context, e *Env) {
	s := e.Client().Semaphore("s", 5)
	for range 2 {
		var holds []*holdfast.Hold
		for range 5 {
			holds = append(holds, must(s.TryAcquire(ctx, 1)))
		}
		refused(second(s.TryAcquire(ctx, 1)), holdfast.ErrHeld, "the sixth of 5")
		for _, h := range holds {
			done(h.Release())
		}
	}
}

func semCrowd(ctx context.Context, e *Env) {
	clients := []*holdfast.Space{e.Client(), e.Client(), e.Client()}
	var inside atomic.Int64
	crowd(ctx, 60, clients, func(i int, s *holdfast.Space, entered func()) {
		n := int64(i%3 + 1)
		done(s.Semaphore("s", 5).Do(ctx, n, func(context.Context, *holdfast.Hold) error {
			now := inside.Add(n)
			entered()
			want(now <= 5, "%d of 5 are inside at once", now)
			inside.Add(-n)
			return nil
		}))
	})
}

func semLimitDiffers(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Semaphore("s", 3).Acquire(ctx, 1))
	for _, limit := range []int64{2, 4} {
		err := second(b.Semaphore("s", limit).TryAcquire(ctx, 1))
		refused(err, holdfast.ErrConflict, "TryAcquire with another limit")
		want(holdfast.NotDone(err), "NotDone is false for %v", err)
	}
	done(must(b.Semaphore("s", 3).TryAcquire(ctx, 2)).Release())
	done(h.Release())
}

func semLimitOfItsOwn(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	refused(second(b.Semaphore("s", 0).TryAcquire(ctx, 1)), fs.ErrNotExist, "the limit 0 of an unknown semaphore")
	h := must(a.Semaphore("s", 3).Acquire(ctx, 1))
	refused(second(b.Semaphore("s", 0).TryAcquire(ctx, 3)), holdfast.ErrHeld, "3 of 3 beside 1")
	done(must(b.Semaphore("s", 0).TryAcquire(ctx, 2)).Release())
	done(h.Release())
}

func semTooHeavy(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.Semaphore("s", 3).Acquire(ctx, 1))
	refused(second(s.Semaphore("s", 3).Acquire(ctx, 4)), fs.ErrInvalid, "Acquire of 4 of 3")
	refused(second(s.Semaphore("s", 0).Acquire(ctx, 4)), fs.ErrInvalid, "Acquire of 4 of the 3 it has")
	done(h.Release())
	done(must(s.Semaphore("s", 3).TryAcquire(ctx, 3)).Release())
}

func semBadWeights(ctx context.Context, e *Env) {
	s := e.Client()
	for _, n := range []int64{0, -1, math.MinInt64} {
		refused(second(s.Semaphore("s", 3).Acquire(ctx, n)), fs.ErrInvalid, "Acquire of a weight below 1")
	}
	refused(second(s.Semaphore("s", -1).Acquire(ctx, 1)), fs.ErrInvalid, "Acquire with a negative limit")
	done(must(s.Semaphore("s", 4).TryAcquire(ctx, 4)).Release())
}

// weigh waits in the queue for n units of s, which has its limit already.
func weigh(ctx context.Context, s *holdfast.Space, n int64) queued {
	return queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return s.Semaphore("s", 0, o).Acquire(ctx, n) })
}

func semHeadBlocks(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	half := must(a.Semaphore("s", 4).Acquire(ctx, 2))
	heavy := weigh(ctx, b, 3)
	refused(second(a.Semaphore("s", 4).TryAcquire(ctx, 1)), holdfast.ErrHeld, "TryAcquire of 1 past a heavy waiter")
	light := weigh(ctx, a, 2)
	want(!heavy.over() && !light.over(), "a waiter was granted before there was room for the head of the queue")
	done(half.Release())
	h := heavy.granted(ctx)
	want(!light.over(), "5 of 4 are held")
	done(h.Release())
	done(light.granted(ctx).Release())
}

func semWakesAllThatFit(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	all := must(a.Semaphore("s", 3).Acquire(ctx, 3))
	waiting := []queued{weigh(ctx, a, 1), weigh(ctx, b, 1), weigh(ctx, b, 1)}
	done(all.Release())
	for _, w := range waiting {
		e.take(w.granted(ctx), nil)
	}
	refused(second(a.Semaphore("s", 3).TryAcquire(ctx, 1)), holdfast.ErrHeld, "the fourth of 3")
}

func semLargeCounts(ctx context.Context, e *Env) {
	const limit = math.MaxInt32
	s := e.Client().Semaphore("s", limit)
	h := must(s.Acquire(ctx, limit-1))
	refused(second(s.TryAcquire(ctx, 2)), holdfast.ErrHeld, "2 more beside all but one")
	done(must(s.TryAcquire(ctx, 1)).Release())
	done(h.Release())
	done(must(s.TryAcquire(ctx, limit)).Release())
}

func semTokensTellApart(ctx context.Context, e *Env) {
	s := e.Client().Semaphore("s", 6)
	weights := map[driver.Token]int64{}
	for n := range int64(3) {
		weights[e.take(s.Acquire(ctx, n+1)).Token()] = n + 1
	}
	want(len(weights) == 3, "three holders have the tokens %v", weights)
	err := second(s.TryAcquire(ctx, 1))
	refused(err, holdfast.ErrHeld, "TryAcquire of a drained semaphore")
	he, _ := errors.AsType[*holdfast.Error](err)
	want(len(he.Holders) == 3, "ErrHeld lists %d holders; there are three", len(he.Holders))
	for _, c := range he.Holders {
		want(weights[c.Token] == c.Weight, "the holder with the token %d is told with the weight %d, it has %d", c.Token, c.Weight, weights[c.Token])
	}
}

func semLimitOutlivesHolders(ctx context.Context, e *Env) {
	s := e.Client()
	done(must(s.Semaphore("s", 3).Acquire(ctx, 1)).Release())
	refused(second(e.Client().Semaphore("s", 4).TryAcquire(ctx, 1)), holdfast.ErrConflict, "another limit of an idle semaphore")
	done(must(e.Client().Semaphore("s", 0).TryAcquire(ctx, 3)).Release())
}

func semDeleteIdleOnly(ctx context.Context, e *Env) {
	s := e.Client()
	h := must(s.Semaphore("s", 3).Acquire(ctx, 1))
	refused(s.Semaphore("s", 0).Delete(ctx), holdfast.ErrHeld, "Delete of a semaphore in use")
	done(h.Err())
	refused(second(s.Semaphore("s", 3).TryAcquire(ctx, 3)), holdfast.ErrHeld, "3 of 3 beside 1")
	done(h.Release())
	done(s.Semaphore("s", 0).Delete(ctx))
	done(must(s.Semaphore("s", 7).TryAcquire(ctx, 7)).Release())
}

func semGrow(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	e.take(a.Semaphore("s", 2).Acquire(ctx, 2))
	waiting := weigh(ctx, b, 1)
	done(b.Semaphore("s", 0).SetLimit(ctx, 3))
	e.take(waiting.granted(ctx), nil)
	refused(second(a.Semaphore("s", 2).TryAcquire(ctx, 1)), holdfast.ErrConflict, "TryAcquire with the old limit")
	refused(second(a.Semaphore("s", 3).TryAcquire(ctx, 1)), holdfast.ErrHeld, "the fourth of 3")
	want(must(a.Inspect(ctx, "s")).Limit == 3, "the limit is told as %d", must(a.Inspect(ctx, "s")).Limit)
}

func semShrink(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	one, three := must(a.Semaphore("s", 4).Acquire(ctx, 1)), must(b.Semaphore("s", 4).Acquire(ctx, 3))
	done(a.Semaphore("s", 0).SetLimit(ctx, 2))
	done(one.Err())
	done(three.Err())
	waiting := weigh(ctx, a, 1)
	done(one.Release())
	refused(second(b.Semaphore("s", 2).TryAcquire(ctx, 1)), holdfast.ErrHeld, "TryAcquire while 3 of 2 are held")
	want(!waiting.over(), "a waiter was granted while 3 of 2 are held")
	done(three.Release())
	done(waiting.granted(ctx).Release())
	done(must(b.Semaphore("s", 2).TryAcquire(ctx, 2)).Release())
}

func semShrinkRefuses(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Semaphore("s", 4).Acquire(ctx, 2))
	heavy, light := weigh(ctx, b, 4), weigh(ctx, a, 1)
	done(a.Semaphore("s", 0).SetLimit(ctx, 3))
	refused(second(heavy.wait(ctx, "a waiter for 4 of 3")), fs.ErrInvalid, "a waiter for 4 of 3")
	done(light.granted(ctx).Err())
	done(h.Err())
}

func semResizeUnknown(ctx context.Context, e *Env) {
	s := e.Client()
	refused(s.Semaphore("s", 0).SetLimit(ctx, 3), fs.ErrNotExist, "SetLimit of an unknown semaphore")
	e.take(s.Semaphore("s", 3).Acquire(ctx, 1))
	for _, limit := range []int64{0, -1} {
		refused(s.Semaphore("s", 0).SetLimit(ctx, limit), fs.ErrInvalid, "SetLimit below 1")
	}
	done(must(s.Semaphore("s", 3).TryAcquire(ctx, 2)).Release())
}

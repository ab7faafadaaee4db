package holdfast_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// delayedLimits is a backend that each request needs a time of its own to reach, and each answer to come back.
type delayedLimits struct {
	*limitDriver
	mu    *sync.Mutex
	delay func(cost int64) (there, back time.Duration)
}

func (d delayedLimits) Limit(ctx context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	d.mu.Lock()
	there, back := d.delay(r.Cost)
	d.mu.Unlock()
	time.Sleep(there)
	reply, err := d.limitDriver.Limit(ctx, r)
	time.Sleep(back)
	return reply, err
}

// servedAt has callers of one Space come one after the other, and tells when each is served.
func servedAt(t *testing.T, rate limit.Rate, costs []int64, apart time.Duration, delay func(cost int64) (there, back time.Duration)) []time.Duration {
	_, d := limiting(t)
	l := openOn(t, delayedLimits{d, &sync.Mutex{}, delay}).Limiter("l", rate)
	served, waiting, start := make([]time.Duration, len(costs)), sync.WaitGroup{}, time.Now()
	for i, cost := range costs {
		waiting.Go(func() {
			noError(t, l.WaitN(t.Context(), "k", cost))
			served[i] = time.Since(start)
		})
		time.Sleep(apart)
	}
	waiting.Wait()
	return served
}

// Of two that asked together the answer that was decided later comes first. With the other, those behind them are let go
// on by what is left after both: the fifth does not ask beside the fourth, and does not take what that one needs.
func TestLimiterWait_AnswersOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		delays := map[int64][2]time.Duration{1: {5 * ms, 15 * ms}, 20: {10 * ms, 50 * ms}, 21: {11 * ms, 20 * ms}, 30: {60 * ms, 10 * ms}}
		delay := func(cost int64) (there, back time.Duration) { return delays[cost][0], delays[cost][1] }
		rate := limit.Rate{Count: 100, Per: time.Hour, Algorithm: limit.FixedWindow}
		served := servedAt(t, rate, []int64{1, 20, 21, 30, 40}, 8*ms, delay)
		if served[3] > time.Minute || served[4] < time.Minute {
			t.Errorf("the fourth is served after %s, the fifth after %s", served[3], served[4])
		}
	})
}

// A caller that was refused, because another program had taken some, and asks again in the next window, lets all that find
// room there go on with its answer: what was left before says nothing of that.
func TestLimiterWait_UsesEachWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 10 * time.Millisecond
		_, d := limiting(t)
		rate := limit.Rate{Count: 20, Per: time.Hour, Algorithm: limit.FixedWindow}
		l, other, waiting := openOn(t, slowLimits{d, trip}).Limiter("l", rate), openOn(t, d).Limiter("l", rate), sync.WaitGroup{}
		start := time.Now()
		for range 20 {
			waiting.Go(func() { noError(t, l.Wait(t.Context(), "k")) })
		}
		synctest.Wait()
		time.Sleep(trip + trip/2) // all but the first are on their way
		if got, err := other.AllowN(t.Context(), "k", 10); err != nil || !got.Allowed {
			t.Fatal(got, err)
		}
		if waiting.Wait(); time.Since(start) > time.Hour+2*trip {
			t.Errorf("the last is served after %s", time.Since(start))
		}
	})
}

// However long questions and answers take, none is served a window after one that came later.
func TestLimiterWait_NoWindowLater(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingLog} {
		for seed := range uint64(100) {
			t.Run(fmt.Sprintf("%v,%d", a, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { noWindowLater(t, a, rand.New(rand.NewPCG(seed, 3))) })
			})
		}
	}
}

func noWindowLater(t *testing.T, a limit.Algorithm, rnd *rand.Rand) {
	apart, trip := time.Duration(1+rnd.IntN(8))*time.Millisecond, 1+rnd.Int64N(int64(40*time.Millisecond))
	delay := func(int64) (there, back time.Duration) {
		return time.Duration(rnd.Int64N(trip)), time.Duration(rnd.Int64N(trip))
	}
	costs := make([]int64, 24)
	for i := range costs {
		costs[i] = 1 + 3*rnd.Int64N(2)
	}
	served := servedAt(t, limit.Rate{Count: 10, Per: time.Second, Algorithm: a}, costs, apart, delay)
	for i, at := range served {
		for j, later := range served[i+1:] {
			if at > later+500*time.Millisecond {
				t.Errorf("of the costs %v number %d is served at %s, number %d at %s", costs, i, at, i+1+j, later)
			}
		}
	}
}

// However many answers each leave more than those before, few are kept, and the least of them counts.
func TestLimiterWait_ManyAnswers(t *testing.T) {
	if kept, left := holdfast.TurnsRooms(1000); kept > 64 || left != 1 {
		t.Errorf("of 1,000 answers, of which the first left 1, %d are kept, and %d is left", kept, left)
	}
}

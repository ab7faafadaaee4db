package holdfast_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// unevenLimits is a backend that is far away, by connections of which some are slower: questions overtake each other, and
// so do answers.
type unevenLimits struct {
	*limitDriver
	trips *atomic.Int64
}

func (d unevenLimits) Limit(ctx context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	n := d.trips.Add(1)
	time.Sleep(time.Duration(5+n*7%31) * time.Millisecond)
	reply, err := d.limitDriver.Limit(ctx, r)
	time.Sleep(time.Duration(5+n*11%31) * time.Millisecond)
	return reply, err
}

// Callers that leave while their questions are on their way, together or one after the other, give back what they took:
// the next waits as if none of them had been there.
func TestWait_LeaversOnTheWayGiveBack(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Millisecond, 25 * time.Millisecond} {
		for _, stays := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 45 * time.Millisecond, 400 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s apart, %s each", apart, stays), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { leaveOnTheWay(t, apart, stays) })
			})
		}
	}
}

func leaveOnTheWay(t *testing.T, apart, stays time.Duration) {
	_, d := limiting(t)
	s := openOn(t, unevenLimits{d, &atomic.Int64{}})
	l := s.Limiter("l", limit.Rate{Count: 1, Per: 10 * time.Second, Burst: 1})
	noError(t, l.Wait(t.Context(), "k"))
	start, waiting := time.Now(), sync.WaitGroup{}
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(stays, cancel)
		waiting.Go(func() { _ = l.Wait(ctx, "k") })
		time.Sleep(apart)
	}
	waiting.Wait()
	time.Sleep(5 * time.Second)
	noError(t, l.Wait(t.Context(), "k"))
	if took := time.Since(start); took > 10*time.Second+100*time.Millisecond {
		t.Errorf("after all have left the next is served after %s", took)
	}
	noError(t, s.Close())
}

// A caller that leaves before it is answered makes room for those that wait for their turn behind it.
func TestWait_LeaverMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := limiting(t)
		l := openOn(t, slowLimits{d, 10 * time.Millisecond}).Limiter("l", limit.Rate{Count: 1, Per: 10 * time.Second, Burst: 1})
		noError(t, l.Wait(t.Context(), "k"))
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() { _ = l.Wait(ctx, "k") })
		synctest.Wait()
		start := time.Now()
		waiting.Go(func() { noError(t, l.Wait(t.Context(), "k")) })
		synctest.Wait()
		cancel()
		if waiting.Wait(); time.Since(start) > 11*time.Second {
			t.Errorf("the one behind it is served after %s", time.Since(start))
		}
	})
}

// Callers of a Space are served in the order of their calls, also where questions overtake each other.
func TestLimiterWaitsInOrder_Far(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.GCRA, limit.TokenBucket} {
		synctest.Test(t, func(t *testing.T) { waitInOrderFar(t, limit.Rate{Count: 10, Per: time.Second, Burst: 1, Algorithm: a}) })
	}
}

func waitInOrderFar(t *testing.T, rate limit.Rate) {
	_, d := limiting(t)
	l := openOn(t, unevenLimits{d, &atomic.Int64{}}).Limiter("l", rate)
	var waiting sync.WaitGroup
	served := make(chan int, 24)
	for i := range cap(served) {
		waiting.Go(func() {
			noError(t, l.Wait(t.Context(), "k"))
			served <- i
		})
		time.Sleep(15 * time.Millisecond)
	}
	waiting.Wait()
	for i := range cap(served) {
		if got := <-served; got != i {
			t.Fatalf("%s: caller %d is served as number %d", rate.Algorithm, got, i)
		}
	}
}

// A program that is far from its backend uses what the rate allows all the same: where places come sooner than answers,
// callers do not ask one by one.
func TestLimiterWait_FarUsesTheRate(t *testing.T) {
	for _, burst := range []int64{1, 10} {
		synctest.Test(t, func(t *testing.T) {
			_, d := limiting(t)
			l := openOn(t, slowLimits{d, 20 * time.Millisecond}).Limiter("l", limit.Rate{Count: 1000, Per: time.Second, Burst: burst})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			var served atomic.Int64
			var waiting sync.WaitGroup
			for range 100 {
				waiting.Go(func() {
					for l.Wait(ctx, "k") == nil {
						served.Add(1)
					}
				})
			}
			if waiting.Wait(); served.Load() < 4500 || served.Load() > 5000+burst {
				t.Errorf("burst %d: %d of 5000 were served", burst, served.Load())
			}
		})
	}
}

// halfDeafLimits is a backend that does not answer some requests.
type halfDeafLimits struct {
	*limitDriver
	deaf func(r *driver.LimitRequest) bool
}

func (d halfDeafLimits) Limit(ctx context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	if d.deaf(r) {
		<-ctx.Done()
		return driver.LimitReply{}, &driver.Error{Kind: ctx.Err(), Outcome: driver.Unknown}
	}
	return d.limitDriver.Limit(ctx, r)
}

// Where the backend does not answer a caller that has left, or what it gives back, others do not wait for that for long.
func TestWait_LeaversDoNotKeepOthers(t *testing.T) {
	var deaf atomic.Bool
	for what, is := range map[string]func(r *driver.LimitRequest) bool{
		"its question": func(r *driver.LimitRequest) bool { return deaf.CompareAndSwap(true, false) },
		"its refund":   func(r *driver.LimitRequest) bool { return r.Op == driver.LimitSettle },
	} {
		synctest.Test(t, func(t *testing.T) {
			deaf.Store(false)
			_, d := limiting(t)
			l := openOn(t, halfDeafLimits{d, is}).Limiter("l", limit.Rate{Count: 1, Per: 10 * time.Second, Burst: 1})
			noError(t, l.Wait(t.Context(), "k"))
			deaf.Store(true)
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan error)
			go func() { gone <- l.Wait(ctx, "k") }()
			synctest.Wait()
			cancel()
			<-gone
			synctest.Wait()
			asked := d.count()
			next := make(chan error)
			go func() { next <- l.Wait(t.Context(), "k") }()
			time.Sleep(1100 * time.Millisecond)
			if synctest.Wait(); d.count() == asked {
				t.Errorf("a backend that is deaf to %s: the next has not asked after 1.1 s", what)
			}
			noError(t, <-next)
		})
	}
}

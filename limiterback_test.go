package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// farLimits is a backend that is far away, and swaps what was used: of what is given back at the
// same time only one is done.
type farLimits struct {
	*limitDriver
	settling, clashes *atomic.Int32
}

func (d farLimits) Limit(ctx context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	reply, err := driver.LimitReply{}, error(nil)
	if r.Op != driver.LimitSettle {
		reply, err = d.limitDriver.Limit(ctx, r)
		time.Sleep(40 * time.Millisecond)
		return reply, err
	}
	defer d.settling.Add(-1)
	if d.settling.Add(1) > 1 {
		d.clashes.Add(1)
		<-ctx.Done()
		return reply, &driver.Error{Kind: ctx.Err()}
	}
	time.Sleep(80 * time.Millisecond)
	return d.limitDriver.Limit(ctx, r)
}

// Callers that leave one after the other, each before the one before it has given back what it
// took, give all of it back, beside others that are served.
func TestWait_LeaversGiveBack(t *testing.T) {
	for _, rate := range []limit.Rate{
		{Count: 1000, Per: 24 * time.Hour, Algorithm: limit.FixedWindow},
		{Count: 10, Per: time.Hour, Burst: 1000},
	} {
		t.Run(rate.Algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { leaversGiveBack(t, rate) })
		})
	}
}

func leaversGiveBack(t *testing.T, rate limit.Rate) {
	_, d := limiting(t)
	far := farLimits{d, &atomic.Int32{}, &atomic.Int32{}}
	s := openOn(t, far)
	l := s.Limiter("l", rate)
	var waiting sync.WaitGroup
	waiting.Go(func() { noError(t, l.Wait(t.Context(), "k")) }) // with its answer all behind it ask
	for i := range 100 {
		synctest.Wait()
		waiting.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(60_000+100*i)*time.Microsecond)
			defer cancel()
			if err := l.Wait(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || holdfast.NotDone(err) {
				t.Errorf("a caller that leaves: %v", err)
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	for range 50 { // that stay, and are served before all of that is given back
		waiting.Go(func() { noError(t, l.Wait(t.Context(), "k")) })
	}
	waiting.Wait()
	time.Sleep(20 * time.Second)
	left, err := l.Available(t.Context(), "k")
	if left < 948 || err != nil || far.clashes.Load() > 0 { // 51 were served; one: a bucket keeps the moments between take and return
		t.Errorf("%d of 1000 are left (%v), and %d were given back beside others", left, err, far.clashes.Load())
	}
}

// Callers that leave together, or in any order, the last of them with the others, give back what they took, whatever a unit
// takes to refill. So do those that leave while others wait behind them, when these leave, too.
func TestWait_LeaversOfAQueueGiveBack(t *testing.T) {
	for _, rate := range []limit.Rate{
		{Count: 1, Per: time.Second, Burst: 1},
		{Count: 3, Per: time.Second, Burst: 2},
		{Count: 7, Per: 10 * time.Second, Burst: 3, Algorithm: limit.TokenBucket},
	} {
		for seed := range uint64(20) {
			synctest.Test(t, func(t *testing.T) { leaveQueue(t, rate, rand.New(rand.NewPCG(seed, 1))) })
		}
	}
}

func leaveQueue(t *testing.T, rate limit.Rate, rnd *rand.Rand) {
	_, d := limiting(t)
	s := openOn(t, d)
	l := s.Limiter("l", rate)
	noError(t, l.WaitN(t.Context(), "k", rate.Limit()))
	var leave []context.CancelFunc
	var waiting sync.WaitGroup
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		leave = append(leave, cancel)
		cost := 1 + rnd.Int64N(1+rate.Limit()/2)
		waiting.Go(func() { _ = l.WaitN(ctx, "k", min(cost, rate.Limit())) })
		synctest.Wait()
	}
	rnd.Shuffle(len(leave), func(i, j int) { leave[i], leave[j] = leave[j], leave[i] })
	for _, cancel := range leave {
		if cancel(); rnd.IntN(2) == 0 {
			synctest.Wait()
		}
	}
	waiting.Wait()
	synctest.Wait()
	start := time.Now()
	noError(t, l.Wait(t.Context(), "k"))
	if unit := rate.Per / time.Duration(rate.Count); time.Since(start) > unit+time.Microsecond { // each gives back a nanosecond less
		t.Errorf("%s: after all have left one waits for %s", rate, time.Since(start))
	}
	noError(t, s.Close())
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// A caller that is served behind others that left keeps what it took, and what they took passes.
func TestWait_ServedBehindLeavers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := limiting(t)
		l := openOn(t, d).Limiter("l", limit.Rate{Count: 1, Per: time.Second, Burst: 1})
		noError(t, l.Wait(t.Context(), "k"))
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() { _ = l.Wait(ctx, "k") })
		synctest.Wait()
		waiting.Go(func() { noError(t, l.Wait(t.Context(), "k")) })
		synctest.Wait()
		cancel()
		start := time.Now()
		waiting.Wait()
		asked := d.asked
		synctest.Wait()
		noError(t, l.Wait(t.Context(), "k"))
		if took := time.Since(start); took != 3*time.Second || d.asked != asked+1 {
			t.Errorf("the next is served after %s, %d calls later", took, d.asked-asked)
		}
	})
}

// What is left to give back does not keep Close.
func TestWait_LeaversDoNotKeepClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := limiting(t)
		s := openOn(t, farLimits{d, &atomic.Int32{}, &atomic.Int32{}})
		l := s.Limiter("l", limit.Rate{Count: 1000, Per: time.Hour})
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			_ = l.Wait(ctx, "k")
			cancel()
		}
		start := time.Now()
		if err := s.Close(); err != nil || time.Since(start) > time.Second {
			t.Errorf("Close after %s: %v", time.Since(start), err)
		}
	})
}

// However much is left to give back, Close looks at none of it.
func TestWait_ManyLeaversDoNotKeepClose(t *testing.T) {
	if looks := holdfast.LeftAtClose(10_000); looks != 0 {
		t.Errorf("after Close %d of 10,000 were looked at, one after the other", looks)
	}
}

// A wait that its caller leaves gives its place to those that come later.
func TestLimiterWait_GivesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := limiting(t)
		defer s.Close()
		l := s.Limiter("l", limit.Rate{Count: 1, Per: time.Hour})
		if err := l.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		next := func() time.Duration {
			synctest.Wait()
			d, err := l.Peek(t.Context(), "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			return d.RetryAfter
		}
		ctx, leave := context.WithCancel(t.Context())
		go func() { _ = l.Wait(ctx, "k") }()
		if after := next(); after < 90*time.Minute {
			t.Fatalf("a waiter has no place: the next comes after %s", after)
		}
		if leave(); next() > 90*time.Minute {
			t.Error("a waiter that has left still has its place")
		}
	})
}

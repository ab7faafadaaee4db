package holdfast_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/limit"
)

// A program that is alone is not refused what its own block holds: a cost takes of that what there is, and from the
// backend what it lacks.
func TestLeased_OwnBlockCounts(t *testing.T) {
	day := limit.Rate{Count: 1000, Per: 24 * time.Hour}
	window := limit.Rate{Count: 1000, Per: 2400 * time.Hour, Algorithm: limit.FixedWindow}
	year := limit.Rate{Count: 1000, Every: limit.Year, Algorithm: limit.CalendarWindow}
	for _, c := range []struct {
		rate   limit.Rate
		before []int64
		n      int64
	}{
		{day, []int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 100, 100, 100}, 400},
		{day, []int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 100, 100, 100}, 500},
		{day, []int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 100, 100, 100}, 600},
		{day, []int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 100, 100, 100}, 690},
		{window, []int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 20}, 971},
		{year, []int64{20, 20, 20, 20, 20, 20, 850}, 29},
		{year, []int64{20, 20, 20, 20, 20, 20, 850}, 30},
	} {
		t.Run(fmt.Sprintf("%v,%d", c.rate, c.n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { leasedOwnBlock(t, c.rate, c.before, c.n) })
		})
	}
}

func leasedOwnBlock(t *testing.T, rate limit.Rate, before []int64, n int64) {
	s, _ := limiting(t)
	blocks := s.Limiter("l", rate).Leased()
	defer blocks.Close()
	for _, n := range append(before, n) {
		if got, err := blocks.AllowN(t.Context(), "k", n); err != nil || !got.Allowed {
			t.Fatalf("%d is answered %+v, %v", n, got, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// rushed is a limiter by blocks, with one, of which 310 of 1000 a day are used.
func rushed(t *testing.T, l *holdfast.Limiter) *holdfast.LeasedLimiter {
	blocks := l.Leased()
	t.Cleanup(func() { _ = blocks.Close() })
	for i := range 13 {
		n := int64(1 + i/10*99)
		if got, err := blocks.AllowN(t.Context(), "k", n); err != nil || !got.Allowed {
			t.Fatal(got, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if left, _ := l.Available(t.Context(), "k"); left > 500 {
		t.Fatalf("the backend has %d: there is no block", left)
	}
	return blocks
}

// "RetryAfter is how long to wait until the cost could be taken if nothing else is": beside the block, of a whole burst,
// and of more than the backend was asked for.
func TestLeased_RetryAfterBesideABlock(t *testing.T) {
	unit := 24 * time.Hour / 1000
	for _, costs := range [][]int64{{800}, {999}, {1000}, {800, 999}} {
		t.Run(fmt.Sprint(costs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := limiting(t)
				blocks := rushed(t, s.Limiter("l", limit.Rate{Count: 1000, Per: 24 * time.Hour}))
				for _, n := range costs {
					got, err := blocks.AllowN(t.Context(), "k", n)
					if want := time.Duration(n-690) * unit; err != nil || got.Allowed || got.RetryAfter > want || got.RetryAfter < want-2*unit {
						t.Errorf("of 690 that are left, %d are answered %+v, %v; want a wait of %s", n, got, err, want)
					}
				}
			})
		})
	}
}

// A cost near the burst is there after the time that it was told, a few times at most, also from a backend that is far away: blocks of
// which one has passed before another begins are not waited for. Remaining is never above the burst, nor so much as is refused.
func TestLeased_CostNearTheBurst(t *testing.T) {
	rate := limit.Rate{Count: 100, Per: time.Second, Burst: 50, Algorithm: limit.TokenBucket}
	for _, trip := range []time.Duration{0, 10 * time.Millisecond, 40 * time.Millisecond} {
		for seed := range uint64(10) {
			t.Run(fmt.Sprint(trip, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, d := limiting(t)
					by := &atomic.Int64{}
					by.Store(int64(trip))
					blocks := openOn(t, lateLimits{d, by}).Limiter("l", rate).Leased()
					defer blocks.Close()
					rnd := rand.New(rand.NewPCG(seed, 1))
					for range 5 {
						for range 30 {
							leasedUntil(t, blocks, 1+rnd.Int64N(2), 100)
						}
						leasedUntil(t, blocks, 40+rnd.Int64N(10), 5)
					}
				})
			})
		}
	}
}

// leasedUntil asks for n until it is allowed, a little after the times that it is told.
func leasedUntil(t *testing.T, blocks *holdfast.LeasedLimiter, n int64, tries int) {
	t.Helper()
	for range tries {
		d, err := blocks.AllowN(t.Context(), "k", n)
		if err != nil || d.Remaining > d.Limit || !d.Allowed && d.Remaining >= n {
			t.Fatalf("%d is answered %+v, %v", n, d, err)
		}
		if d.Allowed {
			return
		}
		time.Sleep(d.RetryAfter + 20*time.Millisecond)
	}
	t.Fatalf("%d is refused %d times", n, tries)
}

// A cost that is refused, and asked for again and again, keeps no block from others, nor from a smaller cost.
func TestLeased_RefusedKeepsNoBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := limiting(t)
		l := s.Limiter("l", limit.Rate{Count: 1000, Per: 24 * time.Hour})
		blocks := rushed(t, l)
		for range 30 {
			if got, err := blocks.AllowN(t.Context(), "k", 800); err != nil || got.Allowed {
				t.Fatal(got, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if left, _ := l.Available(t.Context(), "k"); left != 690 {
			t.Errorf("310 of 1000 were used, and others can have %d", left)
		}
		if got, err := blocks.AllowN(t.Context(), "k", 690); err != nil || !got.Allowed {
			t.Errorf("the rest is answered %+v, %v", got, err)
		}
	})
}

// Far from the backend, of a block passes what the next one adds until that is here: a large cost is asked for as a whole
// then.
func TestLeased_BlocksPassMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := limiting(t)
		by := &atomic.Int64{}
		blocks := openOn(t, lateLimits{d, by}).Limiter("l", limit.Rate{Count: 1000, Per: 10 * time.Second}).Leased()
		defer blocks.Close()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if got, err := blocks.AllowN(t.Context(), "k", 3); err != nil || !got.Allowed {
					t.Error(got, err)
				}
			})
		}
		all.Wait()
		time.Sleep(1900 * time.Millisecond) // 890 are left, a third of them here
		by.Store(int64(1500 * time.Millisecond))
		start := time.Now()
		if got, err := blocks.AllowN(t.Context(), "k", 880); err != nil || !got.Allowed || time.Since(start) > 15*time.Second {
			t.Errorf("after %s it is answered %+v, %v", time.Since(start), got, err)
		}
	})
}

// Programs that ask for costs of any size, far from the backend or near, never have more than the rate; what the key
// could take when nobody else asks is taken soon.
func TestLeased_RandomCosts(t *testing.T) {
	for _, rate := range []limit.Rate{
		{Count: 1000, Per: 24 * time.Hour},
		{Count: 1000, Per: 10 * time.Second},
		{Count: 100, Per: time.Second},
		{Count: 30, Per: time.Second, Burst: 8, Algorithm: limit.TokenBucket},
		{Count: 2, Per: time.Second, Burst: 40},
		{Count: 1000, Per: 2400 * time.Hour, Algorithm: limit.FixedWindow},
		{Count: 200, Per: 5 * time.Second, Algorithm: limit.FixedWindow},
		{Count: 1000, Every: limit.Year, Algorithm: limit.CalendarWindow},
	} {
		for seed := range uint64(leasedSeeds) {
			t.Run(fmt.Sprintf("%v,%d", rate, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { leasedRandom(t, rate, rand.New(rand.NewPCG(seed, 7))) })
			})
		}
	}
}

const leasedSeeds = 40

// leasedJudge has what was admitted, as the plain functions have it by the moment in which it was.
type leasedJudge struct {
	mu    sync.Mutex
	rate  limit.Rate
	state limit.State
}

// admit reports that so much may be admitted now.
func (j *leasedJudge) admit(n int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	s, d := limit.Take(j.rate, j.state, time.Now().UnixNano(), n)
	j.state = s
	return d.Allowed
}

func (j *leasedJudge) left() int64 {
	return limit.Peek(j.rate, j.state, time.Now().UnixNano(), 0).Remaining
}

func leasedRandom(t *testing.T, rate limit.Rate, rnd *rand.Rand) {
	_, d := limiting(t)
	by, trip := &atomic.Int64{}, []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 300 * time.Millisecond, time.Second}[rnd.IntN(5)]
	by.Store(int64(trip))
	judge := &leasedJudge{rate: rate}
	ask := func(blocks *holdfast.LeasedLimiter, n int64) limit.Decision {
		got, err := blocks.AllowN(t.Context(), "k", n)
		if err != nil {
			t.Fatal(err)
		}
		if got.Allowed && !judge.admit(n) {
			t.Fatalf("%d more is above the rate", n)
		}
		return got
	}
	var programs []*holdfast.LeasedLimiter
	most := 3
	if rate.Per == 24*time.Hour { // what is given back of a bucket behind which another program has taken something passes unused
		most = 1
	}
	for range 1 + rnd.IntN(most) {
		blocks := openOn(t, lateLimits{d, by}).Limiter("l", rate).Leased()
		defer blocks.Close()
		programs = append(programs, blocks)
	}
	for range 4 {
		var all sync.WaitGroup
		for _, blocks := range programs {
			calls, pause := rnd.IntN(60), 1+rnd.Int64N(int64(50*time.Millisecond))
			seed := rnd.Uint64()
			all.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, 1))
				for range calls {
					n := 1 + rnd.Int64N(3)
					if rnd.IntN(8) == 0 {
						n = 1 + rnd.Int64N(rate.Limit()/4)
					}
					ask(blocks, n)
					time.Sleep(time.Duration(rnd.Int64N(pause)))
				}
			})
		}
		all.Wait()
		leasedAlone(t, rate, programs, judge, rnd, ask, trip)
	}
}

// leasedAlone has one program ask for something that is left until it has it.
func leasedAlone(t *testing.T, rate limit.Rate, programs []*holdfast.LeasedLimiter, judge *leasedJudge, rnd *rand.Rand,
	ask func(*holdfast.LeasedLimiter, int64) limit.Decision, trip time.Duration) {
	left := judge.left()
	if left == 0 {
		return
	}
	n, start := 1+rnd.Int64N(left), time.Now()
	if rnd.IntN(3) == 0 {
		n = left
	}
	blocks := programs[rnd.IntN(len(programs))]
	for tries := 1; ; tries++ {
		got := ask(blocks, n)
		if got.Allowed {
			return
		}
		t.Logf("%d of %d refused: %+v", n, left, got)
		if took := time.Since(start); took > 4*time.Second+20*trip {
			t.Errorf("of %d that are left, %d are refused for %s, trip %s, %d programs: %+v", left, n, took, trip, len(programs), got)
			return
		}
		time.Sleep(min(got.RetryAfter, time.Second))
	}
}

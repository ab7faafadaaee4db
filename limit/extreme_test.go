package limit_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

// extreme is a number of any size, from 1 to most.
func extreme(rnd *rand.Rand, most int64) int64 {
	return min(most, max(1, rnd.Int64()>>rnd.IntN(63)))
}

// extremeRate is one that Check accepts.
func extremeRate(rnd *rand.Rand, a limit.Algorithm) limit.Rate {
	for {
		r := limit.Rate{Count: extreme(rnd, limit.MaxCount), Per: time.Duration(extreme(rnd, int64(limit.MaxPer))), Algorithm: a}
		switch a {
		case limit.GCRA, limit.TokenBucket:
			r.Burst = extreme(rnd, limit.MaxCount)
		case limit.CalendarWindow:
			r.Per, r.Every = 0, limit.Period(1+rnd.IntN(4))
		case limit.SlidingLog:
			r.Count = extreme(rnd, limit.MaxLog)
		}
		if r.Check() == nil {
			return r
		}
	}
}

// bigBucket is a bucket without bounds on its numbers: when it is full, in parts of a nanosecond.
type bigBucket struct {
	rate limit.Rate
	full *big.Int
}

func (b *bigBucket) parts(ns int64) *big.Int {
	return new(big.Int).Mul(big.NewInt(ns), big.NewInt(b.rate.Count))
}

func (b *bigBucket) fill(n int64) *big.Int {
	return new(big.Int).Mul(big.NewInt(n), big.NewInt(int64(b.rate.Per)))
}

func later(a, b *big.Int) *big.Int {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

// take is Decide by definition: whether the cost is allowed, and after which wait. What is full only after the last time that
// there is, is refused.
func (b *bigBucket) take(now int64, a limit.Ask) (allowed bool, wait *big.Int) {
	b.full = later(b.full, b.parts(now))
	empty := new(big.Int).Add(b.parts(now), b.fill(b.rate.Burst))
	after := b.full
	if a.Ahead > 0 {
		least := new(big.Int).Add(b.parts(now), b.parts(int64(min(a.Ahead, 100*366*24*time.Hour))))
		if most := new(big.Int).Sub(empty, b.fill(a.Cost)); most.Cmp(least) < 0 {
			least = most
		}
		after = later(after, least)
	}
	after = new(big.Int).Add(after, b.fill(a.Cost))
	wait = new(big.Int).Sub(after, empty)
	wait.Add(wait, big.NewInt(b.rate.Count-1)).Div(wait, big.NewInt(b.rate.Count))
	wait = later(wait, new(big.Int))
	allowed = wait.Cmp(big.NewInt(max(0, int64(a.Wait)))) <= 0 && after.Cmp(b.parts(math.MaxInt64)) < 0
	if allowed {
		b.full = after
	}
	return allowed, wait
}

// TestExtremeBuckets: rates, times, waits and blocks of any size: a bucket decides as one without bounds on its
// numbers does.
func TestExtremeBuckets(t *testing.T) {
	refused := 0
	for seed := range uint64(20_000) {
		rnd := rand.New(rand.NewPCG(seed, 21))
		b := &bigBucket{rate: extremeRate(rnd, limit.GCRA), full: new(big.Int)}
		var s limit.State
		now := extreme(rnd, math.MaxInt64)
		for step := range 8 {
			a := limit.Ask{Cost: extreme(rnd, b.rate.Burst), Wait: time.Duration(rnd.Int64() >> rnd.IntN(64))}
			if rnd.IntN(4) == 0 {
				a.Ahead = time.Duration(rnd.Int64() >> rnd.IntN(64))
			}
			var d limit.Decision
			s, _, d = limit.Decide(b.rate, s, now, a)
			allowed, wait := b.take(now, a)
			if d.Allowed != allowed || allowed && wait.Cmp(big.NewInt(int64(d.RetryAfter))) != 0 || d.Remaining < 0 || d.Remaining > b.rate.Burst || d.ResetAfter < 0 {
				t.Fatalf("seed %d, step %d: %s at %d, %+v: %+v; by definition %v after %s", seed, step, b.rate, now, a, d, allowed, wait)
			}
			if d.RetryAfter == limit.Never {
				refused++
			}
			now += min(math.MaxInt64-now, rnd.Int64()>>rnd.IntN(64))
		}
	}
	if refused < 100 {
		t.Errorf("%d were beyond the last time: too few to tell", refused)
	}
}

// TestExtremeOthers: at one time no more than the limit passes, and no wait is negative, whatever the rate and the time.
func TestExtremeOthers(t *testing.T) {
	for seed := range uint64(20_000) {
		rnd := rand.New(rand.NewPCG(seed, 22))
		r := extremeRate(rnd, limit.FixedWindow+limit.Algorithm(rnd.IntN(4)))
		var s limit.State
		now, sum := extreme(rnd, math.MaxInt64), int64(0)
		for range 6 {
			var d limit.Decision
			if s, d = limit.Take(r, s, now, extreme(rnd, r.Count)); d.Allowed {
				sum += d.Asked
			}
			if until, ends := limit.Until(r, s, now); sum > r.Count || d.RetryAfter < 0 || d.ResetAfter < 0 || d.Remaining != r.Count-sum || !ends || until < now {
				t.Fatalf("seed %d: %s at %d: %d passed, %+v, until %d", seed, r, now, sum, d, until)
			}
		}
	}
}

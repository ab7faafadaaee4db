package limit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

var setBackRates = []limit.Rate{
	{Count: 7, Per: time.Microsecond, Burst: 9},
	{Count: 5, Per: time.Microsecond, Algorithm: limit.FixedWindow},
	{Count: 5, Per: time.Microsecond, Algorithm: limit.SlidingWindow},
	{Count: 5, Per: time.Microsecond, Algorithm: limit.SlidingLog},
}

// TestWaitsWhileTheClockIsSetBack: after RetryAfter the cost could be taken, and not a nanosecond before; after ResetAfter, and not
// before, the key is as new; Until says the same. Also while the clock is behind what the key has seen.
func TestWaitsWhileTheClockIsSetBack(t *testing.T) {
	for _, r := range setBackRates {
		behind := 0
		for seed := range uint64(2_000) {
			rnd := rand.New(rand.NewPCG(seed, 31))
			var s limit.State
			now, latest := int64(10_000), int64(0)
			for range 12 {
				now += rnd.Int64N(int64(r.Per)*2) - int64(r.Per)*3/4
				cost := 1 + rnd.Int64N(r.Count)
				var d limit.Decision
				s, d = limit.Take(r, s, now, cost)
				if d.Allowed {
					latest = max(latest, now)
				} else if now < latest {
					behind++
				}
				checkWaits(t, r, s, d, now, cost)
			}
		}
		if behind < 500 {
			t.Errorf("%s: %d refusals by a clock that was set back", r, behind)
		}
	}
}

func checkWaits(t *testing.T, r limit.Rate, s limit.State, d limit.Decision, now, cost int64) {
	t.Helper()
	if !d.Allowed {
		at := now + int64(d.RetryAfter)
		if !limit.Peek(r, s, at, cost).Allowed || limit.Peek(r, s, at-1, cost).Allowed {
			t.Fatalf("%s at %d: %+v, %+v: the cost can be taken at another time", r, now, s, d)
		}
	}
	at := now + int64(d.ResetAfter)
	isNew := func(at int64) bool { return limit.Peek(r, s, at, 1).Remaining == r.Limit() }
	if !isNew(at) || d.ResetAfter > 0 && isNew(at-1) {
		t.Fatalf("%s at %d: %+v, %+v: the key is as new at another time", r, now, s, d)
	}
	if until, _ := limit.Until(r, s, now); until != max(now, at) {
		t.Fatalf("%s at %d: %+v: as new at %d, not %d", r, now, s, until, at)
	}
}

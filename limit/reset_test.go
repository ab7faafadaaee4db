package limit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/limit"
)

var resetRates = []limit.Rate{
	{Count: 7, Per: time.Second, Burst: 20},
	{Count: 7, Per: time.Second, Burst: 20, Initial: 3},
	{Count: 20, Per: time.Second, Algorithm: limit.FixedWindow},
	{Count: 20, Every: limit.Hour, Algorithm: limit.CalendarWindow},
	{Count: 20, Per: time.Second, Algorithm: limit.SlidingWindow},
	{Count: 20, Per: time.Second, Algorithm: limit.SlidingLog},
}

// After a reset the key has what it began with, and what was taken before gives nothing
// back, whether its state is kept or forgotten as soon as that is allowed.
func TestReset(t *testing.T) {
	for _, rate := range resetRates {
		rnd := rand.New(rand.NewPCG(1, 7))
		for range 2000 {
			resetOnce(t, rnd, rate)
		}
	}
}

func resetOnce(t *testing.T, rnd *rand.Rand, rate limit.Rate) {
	now := int64(time.Hour) + rnd.Int64N(int64(time.Hour))
	step := func() { now += rnd.Int64N(int64(300 * time.Millisecond)) }
	var s limit.State
	var taken []limit.Reservation
	use := func() {
		next, v, d := limit.Reserve(rate, s, now, 1+rnd.Int64N(4))
		if s = next; d.Allowed {
			taken = append(taken, v)
		}
		step()
	}
	for range rnd.IntN(6) {
		use()
	}
	first := limit.Peek(rate, limit.State{}, now, 0).Remaining
	s = limit.Reset(rate, s, now)
	if got := limit.Peek(rate, s, now, 0).Remaining; got != first {
		t.Fatalf("%s %s: %d are there after a reset, not %d", rate.Algorithm, rate, got, first)
	}
	before := taken
	for step(); rnd.IntN(3) > 0; {
		use()
	}
	if limit.Idle(rate, s, now) {
		s = limit.State{}
	}
	for step(); rnd.IntN(3) > 0; {
		use()
	}
	for _, v := range before {
		left := limit.Peek(rate, s, now, 0).Remaining
		if s = limit.Cancel(rate, s, now, v); limit.Peek(rate, s, now, 0).Remaining != left {
			t.Fatalf("%s %s: a cancel of what was taken before the reset gave back %d", rate.Algorithm, rate, limit.Peek(rate, s, now, 0).Remaining-left)
		}
	}
}

// A key that was reset is to be remembered until what was taken before could not be given back any more, and no
// longer: as long as without the reset.
func TestResetIsRemembered(t *testing.T) {
	now := int64(time.Hour)
	for _, rate := range append(resetRates[:1:1], resetRates[2:]...) {
		s, v, _ := limit.Reserve(rate, limit.State{}, now, 4)
		want, _ := limit.Until(rate, s, now)
		s = limit.Reset(rate, s, now)
		if got, ends := limit.Until(rate, s, now); !ends || got != want || got < v.Until {
			t.Errorf("%s: a key that was reset is remembered for %s, without the reset for %s", rate.Algorithm, time.Duration(got-now), time.Duration(want-now))
		}
	}
}

// A bucket that takes a hundred years to fill, and is emptied and reset, or given back, over and over, is
// not forgotten while it is empty, and no time in it overflows.
func TestResetOfLongFills(t *testing.T) {
	rate := limit.Rate{Count: 1, Per: limit.MaxPer, Burst: 10}
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 8))
		now := time.Date(2060, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
		var s limit.State
		for range 20 {
			next, v, d := limit.Reserve(rate, s, now, 1+rnd.Int64N(10))
			if s = next; d.Remaining < 10 && limit.Idle(rate, s, now) || s.At+s.Given < s.At {
				t.Fatalf("seed %d: with %d of 10 left it is forgotten: %+v", seed, d.Remaining, s)
			}
			switch rnd.IntN(3) {
			case 0:
				s = limit.Reset(rate, s, now)
			case 1:
				if d.Allowed {
					s = limit.Cancel(rate, s, now, v)
				}
			}
			now += rnd.Int64N(int64(time.Hour))
		}
	}
}

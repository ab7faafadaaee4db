package onstore_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/driver/onstore"
	"github.com/holdfast-io/holdfast/limit"
)

// TestLimitClocksDiffer: on an engine without a clock, machines whose clocks differ by
// d allow at most what refills in d more than the rate in any true time, and no more
// than a burst; and that is really paid, so that the bound is not idle talk.
func TestLimitClocksDiffer(t *testing.T) {
	const skew = 2 * time.Second
	for burst, most := range map[int64]int{5: 5, 30: 20} {
		rate := limit.Rate{Count: 10, Per: time.Second, Burst: burst}
		worst := 0
		for seed := range uint64(20) {
			synctest.Test(t, func(t *testing.T) {
				worst = max(worst, excess(skewed(t, rand.New(rand.NewPCG(seed, 3)), rate, skew), rate))
			})
		}
		if worst < most/2 || worst > most {
			t.Errorf("burst %d: clocks that are 2 s apart cost %d more than the rate; expected are %d to %d", burst, worst, most/2, most)
		}
	}
}

// excess is by how much the worst time is above the rate.
func excess(admitted []time.Time, rate limit.Rate) (worst int) {
	for i := range admitted {
		for j := i; j < len(admitted); j++ {
			span := admitted[j].Sub(admitted[i])
			worst = max(worst, j-i+1-int(rate.Burst+rate.Count*int64(span)/int64(rate.Per)))
		}
	}
	return worst
}

// skewed has two machines ask as often as they can, in turns at random.
func skewed(t *testing.T, rnd *rand.Rand, rate limit.Rate, skew time.Duration) (admitted []time.Time) {
	s := newStore(false)
	var limiters []*holdfast.Limiter
	for i := range 2 {
		d := onstore.New(s, onstore.Options{Info: driver.Info{Scheme: "cas"}})
		onstore.SetWall(d, func() time.Time { return time.Now().Add(time.Duration(i) * skew) })
		sp, err := holdfast.New(d)
		if err != nil {
			t.Fatal(err)
		}
		defer sp.Close()
		limiters = append(limiters, sp.Limiter("l", rate))
	}
	for turn := 0; len(admitted) < 150; {
		if rnd.IntN(50) == 0 {
			turn = 1 - turn
		}
		d, err := limiters[turn].Allow(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			admitted = append(admitted, time.Now())
		}
		time.Sleep(time.Duration(rnd.Int64N(int64(60 * time.Millisecond))))
	}
	slices.SortFunc(admitted, func(a, b time.Time) int { return cmp.Compare(a.UnixNano(), b.UnixNano()) })
	return admitted
}

// TestLimitClockIn2099: a machine with its clock in 2099 closes no key for the others, which keep
// the limit among themselves.
func TestLimitClockIn2099(t *testing.T) {
	for _, algorithm := range []limit.Algorithm{limit.GCRA, limit.TokenBucket, limit.FixedWindow, limit.SlidingWindow, limit.SlidingLog} {
		bubble(t, func(t *testing.T, s *memoryStore) {
			rate := limit.Rate{Algorithm: algorithm, Count: 10, Per: 10 * time.Second}
			var limiters []*holdfast.Limiter
			for _, ahead := range []time.Duration{0, 0, 73 * 365 * 24 * time.Hour} {
				d := onstore.New(s, onstore.Options{Info: driver.Info{Scheme: "cas"}})
				onstore.SetWall(d, func() time.Time { return time.Now().Add(ahead) })
				sp, err := holdfast.New(d)
				if err != nil {
					t.Fatal(err)
				}
				defer sp.Close()
				limiters = append(limiters, sp.Limiter("l", rate))
			}
			ask := func(i int, cost int64) limit.Decision {
				d, err := limiters[i].AllowN(t.Context(), "k", cost)
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			if d := ask(2, 10); !d.Allowed {
				t.Fatalf("%s: %+v", algorithm, d)
			}
			if d := ask(0, 10); d.Allowed || d.RetryAfter > 20*time.Second {
				t.Errorf("%s: beside what 2099 has taken: %+v", algorithm, d)
			}
			for range 3 {
				time.Sleep(20 * time.Second)
				if d := ask(0, 6); !d.Allowed {
					t.Errorf("%s: a while later: %+v", algorithm, d)
				}
				if d := ask(1, 6); d.Allowed || d.RetryAfter > 20*time.Second {
					t.Errorf("%s: above the rate: %+v", algorithm, d)
				}
			}
		})
	}
}

// TestLimitAnswerLost: a write whose answer is lost is counted once.
func TestLimitAnswerLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		lost := 0
		c := &client{memoryStore: s, fault: func(op, key string) fault {
			if op == "swap" && strings.HasPrefix(key, "u/") && lost < 3 {
				lost++
				return fault{after: errLink}
			}
			return fault{}
		}}
		l := open(t, c).Limiter("l", limit.Rate{Count: 5, Per: time.Hour})
		for range 3 {
			if d, err := l.Allow(t.Context(), "k"); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		if left, err := l.Available(t.Context(), "k"); left != 2 || err != nil || lost != 3 {
			t.Errorf("after 3 of 5 with lost answers %d are left (%v, %d lost)", left, err, lost)
		}
	})
}

// TestLimitRateChangesMeanwhile: a request that has read the rate before it was set anew
// does not undo what was used at the new one.
func TestLimitRateChangesMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		fast := open(t, s).Limiter("l", limit.Rate{Count: 5, Per: time.Hour})
		if _, err := fast.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		meanwhile := sync.OnceFunc(func() {
			if err := fast.SetRate(t.Context(), limit.Rate{Count: 3, Per: time.Hour}); err != nil {
				t.Error(err)
			}
			if d, err := fast.AllowN(t.Context(), "k", 3); err != nil || !d.Allowed {
				t.Error(d, err)
			}
		})
		c := &client{memoryStore: s, fault: func(op, key string) fault {
			if op == "get" && strings.HasPrefix(key, "u/") {
				meanwhile()
			}
			return fault{}
		}}
		if d, err := open(t, c).Limiter("l", limit.Rate{}).Allow(t.Context(), "k"); err != nil || d.Allowed || d.Limit != 3 {
			t.Errorf("a fourth of 3 is answered %+v (%v)", d, err)
		}
		if left, err := fast.Available(t.Context(), "k"); left != 0 || err != nil {
			t.Errorf("%d of 3 are there after 3 were used (%v)", left, err)
		}
	})
}

// TestLimitKeysAreSwept: thousands of keys that were used and left go, one that is in
// use stays.
func TestLimitKeysAreSwept(t *testing.T) {
	for _, clock := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore(clock)
			sp := open(t, s)
			l := sp.Limiter("l", limit.Rate{Count: 5, Per: time.Minute})
			for i := range 3000 {
				if _, err := l.Allow(t.Context(), fmt.Sprint(i)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(3 * time.Minute)
			if _, err := l.AllowN(t.Context(), "busy", 5); err != nil {
				t.Fatal(err)
			}
			reply, err := driverOf(t, s).Sweep(t.Context(), &driver.SweepRequest{Prefix: "l"})
			if err != nil || reply.Removed != 3000 {
				t.Fatalf("clock %v: %d keys are swept (%v)", clock, reply.Removed, err)
			}
			if left, _ := l.Available(t.Context(), "busy"); left != 0 {
				t.Errorf("a key in use has %d again", left)
			}
			_ = sp.Close()
		})
	}
}

// TestLimitKeysOfTheGoneAreSwept: what was used of a limiter that was deleted, or has another rate since, is swept also
// if by its own rate it would be remembered for good; that of others stays.
func TestLimitKeysOfTheGoneAreSwept(t *testing.T) {
	for _, clock := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newStore(clock)
			sp := open(t, s)
			for _, name := range []string{"deleted", "changed", "kept"} {
				l := sp.Limiter(name, limit.Rate{Count: 5, Per: time.Minute, Initial: 2}) // a key that begins with less is remembered
				for i := range 10 {
					if d, err := l.AllowN(t.Context(), fmt.Sprint(i), 2); err != nil || !d.Allowed {
						t.Fatal(d, err)
					}
				}
			}
			if err := sp.Limiter("deleted", limit.Rate{}).Delete(t.Context()); err != nil {
				t.Fatal(err)
			}
			changed := sp.Limiter("changed", limit.Rate{})
			if err := changed.SetRate(t.Context(), limit.Rate{Count: 7, Per: time.Hour, Initial: 1}); err != nil {
				t.Fatal(err)
			}
			if d, err := changed.Allow(t.Context(), "0"); err != nil || !d.Allowed { // at the new rate
				t.Fatal(d, err)
			}
			reply, err := driverOf(t, s).Sweep(t.Context(), &driver.SweepRequest{})
			if err != nil || reply.Removed != 10+9 {
				t.Errorf("clock %v: %d keys are swept, want 19 (%v)", clock, reply.Removed, err)
			}
			for _, name := range []string{"kept", "changed"} {
				if left, err := sp.Limiter(name, limit.Rate{}).Available(t.Context(), "0"); left != 0 || err != nil {
					t.Errorf("clock %v: a key of %q in use has %d again (%v)", clock, name, left, err)
				}
			}
			_ = sp.Close()
		})
	}
}

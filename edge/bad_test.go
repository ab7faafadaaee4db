package edge

import (
	"errors"
	"io/fs"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/edge/edgetest"
	"github.com/holdfast-io/holdfast/limit"
)

// algorithms are those that nodes can share.
var algorithms = []limit.Algorithm{limit.GCRA, limit.TokenBucket, limit.FixedWindow, limit.SlidingWindow}

// TestBadCosts: of every algorithm, of a limiter and of a group, what can never be taken is told so, and what is no key is an
// error; neither leaves anything.
func TestBadCosts(t *testing.T) {
	for _, a := range algorithms {
		rate := ten
		rate.Algorithm = a
		n := open(t, Config{Actor: "a"})
		l := limiter(t, n, LimiterConfig{Rate: rate})
		g, err := n.Group(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, cost := range []int64{-1, math.MinInt64, 11, math.MaxInt64} {
			for _, allow := range []func() (limit.Decision, error){
				func() (limit.Decision, error) { return l.AllowN(t.Context(), "k", cost) },
				func() (limit.Decision, error) { return g.AllowN(t.Context(), "k", cost) },
			} {
				if d, err := allow(); err != nil || d.Allowed || d.RetryAfter != limit.Never {
					t.Errorf("%s: a cost of %d: %+v, %v", a, cost, d, err)
				}
			}
		}
		for _, key := range []string{strings.Repeat("k", MaxName+1), strings.Repeat("k", 10<<20)} {
			_, one := l.Allow(t.Context(), key)
			_, all := g.Allow(t.Context(), key)
			if !errors.Is(one, fs.ErrInvalid) || !errors.Is(all, fs.ErrInvalid) || len(all.Error()) > 300 {
				t.Errorf("%s: a key of %d bytes: %v, %v", a, len(key), one, all)
			}
		}
		for _, now := range []time.Time{{}, time.Unix(-1, 0), time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<61, 0)} {
			_, one := l.Take("k", now, 1)
			_, all := g.Take("k", now, 1)
			if owed := l.Charge("k", now, 1); !errors.Is(one, fs.ErrInvalid) || !errors.Is(all, fs.ErrInvalid) || !errors.Is(owed, fs.ErrInvalid) {
				t.Errorf("%s: at %s: %v, %v, %v", a, now, one, all, owed)
			}
		}
		if l.Keys() != 0 {
			t.Errorf("%s: %d keys are left", a, l.Keys())
		}
	}
}

// TestClockIn2099: of every algorithm, a node with a clock in 2099 limits nobody else, and nobody for long once its clock is
// right, also if it was told the time of 2099 by a caller.
func TestClockIn2099(t *testing.T) {
	for _, a := range algorithms {
		synctest.Test(t, func(t *testing.T) {
			rate := ten
			rate.Algorithm = a
			hub := edgetest.NewHub(edgetest.Faults{})
			var skew atomic.Int64
			skew.Store(int64(99 * 365 * 24 * time.Hour))
			clock := func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
			wrong := limiter(t, open(t, Config{Actor: "a", Link: hub.Link("a"), Now: clock}), LimiterConfig{Rate: rate})
			right := limiter(t, open(t, Config{Actor: "b", Link: hub.Link("b")}), LimiterConfig{Rate: rate})
			if d, err := wrong.AllowN(t.Context(), "k", 10); err != nil || !d.Allowed {
				t.Fatal(a, d, err)
			}
			if _, err := right.Take("told", clock(), 10); err != nil {
				t.Fatal(a, err)
			}
			pass(time.Second)
			for _, key := range []string{"k", "told"} {
				if d := take(t, right, key, 10); !d.Allowed {
					t.Errorf("%s: beside a clock in 2099 %q is refused: %+v", a, key, d)
				}
			}
			skew.Store(0)
			pass(45 * time.Second)
			for _, l := range []*Limiter{wrong, right} {
				if d := take(t, l, "k", 1); !d.Allowed {
					t.Errorf("%s: the clock is right again: %+v", a, d)
				}
			}
		})
	}
}

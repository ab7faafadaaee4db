package holdfast_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/limit"
)

// By blocks too, bad input is refused before the backend is asked, and what can never be taken is told so, of every algorithm.
func TestLeased_RefusesBadInput(t *testing.T) {
	s, d := limiting(t)
	fine := limit.Rate{Count: 5, Per: time.Second}
	for what, call := range map[string]func() error{
		"rate 0":          func() error { return allowLeased(s, limit.Rate{Per: time.Second}, "k", 1) },
		"a negative rate": func() error { return allowLeased(s, limit.Rate{Count: -1, Per: time.Second}, "k", 1) },
		"an overflow":     func() error { return allowLeased(s, limit.Rate{Count: 1 << 62, Per: time.Second}, "k", 1) },
		"a burst never filled": func() error {
			return allowLeased(s, limit.Rate{Count: 1, Per: limit.MaxPer, Burst: 1 << 40}, "k", 1)
		},
		"a key of 10 MB":  func() error { return allowLeased(s, fine, strings.Repeat("k", 10<<20), 1) },
		"a control byte":  func() error { return allowLeased(s, fine, "a\x00b", 1) },
		"a negative cost": func() error { return allowLeased(s, fine, "k", -1) },
		"the least cost":  func() error { return allowLeased(s, fine, "k", math.MinInt64) },
	} {
		if err := call(); !errors.Is(err, holdfast.ErrInvalid) || len(err.Error()) > 500 {
			t.Errorf("%s is answered with %v", what, err)
		}
	}
	if d.asked != 0 {
		t.Errorf("the backend was asked %d times", d.asked)
	}
	for a := limit.GCRA; a <= limit.SlidingLog; a++ {
		rate := limit.Rate{Count: 5, Per: time.Hour, Algorithm: a}
		if a == limit.CalendarWindow {
			rate.Per, rate.Every = 0, limit.Hour
		}
		blocks := s.Limiter(a.String(), rate).Leased()
		for _, cost := range []int64{6, math.MaxInt64} {
			if got, err := blocks.AllowN(t.Context(), a.String(), cost); err != nil || got.Allowed || got.RetryAfter != limit.Never {
				t.Errorf("%s: a cost of %d of at most 5: %+v, %v", a, cost, got, err)
			}
		}
		if err := blocks.Close(); err != nil {
			t.Error(err)
		}
	}
}

func allowLeased(s *holdfast.Space, rate limit.Rate, key string, n int64) error {
	blocks := s.Limiter("l", rate).Leased()
	defer blocks.Close()
	_, err := blocks.AllowN(context.Background(), key, n)
	return err
}

package drivertest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/memhold"
)

// silent is a backend that answers no Ping for a while.
type silent struct {
	driver.Driver
	until time.Time
}

func (s *silent) Ping(ctx context.Context) error {
	select {
	case <-time.After(time.Until(s.until)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestRun_Anew: a check is made anew if a call was unavailable while the backend was silent, and for nothing else.
func TestRun_Anew(t *testing.T) {
	for _, c := range []struct {
		silent time.Duration
		fails  error
		want   int // checks
	}{
		{3 * time.Second, holdfast.ErrUnavailable, 2},
		{3 * time.Second, errors.New("a promise is broken"), 1},
		{0, holdfast.ErrUnavailable, 1},
		{3 * time.Second, nil, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			probe, err := holdfast.New(&silent{memhold.New(), time.Now().Add(c.silent)})
			if err != nil {
				t.Fatal(err)
			}
			defer probe.Close()
			n := 0
			err = run(func(context.Context, *Env) {
				n++
				time.Sleep(2 * time.Second)
				if n == 1 && c.fails != nil {
					fail("call: %w", c.fails)
				}
			})(t.Context(), &Env{suite: &suite{probe: probe}})
			if n != c.want || (err == nil) != (n == 2 || c.fails == nil) {
				t.Errorf("silent for %s, %v: %d checks, and then %v", c.silent, c.fails, n, err)
			}
		})
	}
}

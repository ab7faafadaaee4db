package holdfast_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/limit"
)

// After Close every call is ErrClosed, also of what no block can be had of, and takes nothing.
func TestLeased_AfterClose(t *testing.T) {
	for a := limit.GCRA; a <= limit.SlidingLog; a++ {
		rate := limit.Rate{Count: 5, Per: time.Hour, Algorithm: a}
		if a == limit.CalendarWindow {
			rate.Per, rate.Every = 0, limit.Day
		}
		s, d := limiting(t)
		for name, l := range map[string]*holdfast.Limiter{"with its rate": s.Limiter("l", rate), "without": s.Limiter("l", limit.Rate{})} {
			blocks := l.Leased()
			if err := blocks.Close(); err != nil {
				t.Fatal(err)
			}
			for _, cost := range []int64{0, 1, 5, 6} { // some of a block, the whole burst, what can never be
				if got, err := blocks.AllowN(t.Context(), "k", cost); !errors.Is(err, holdfast.ErrClosed) || !holdfast.NotDone(err) {
					t.Errorf("%s %s: a cost of %d after Close: %+v, %v", a, name, cost, got, err)
				}
			}
		}
		if d.count() != 0 {
			t.Errorf("%s: the backend was asked %d times", a, d.count())
		}
	}
}

// A caller that waits for a block when Close begins is told ErrClosed at once, and the block goes back
// when it comes.
func TestLeased_CloseEndsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := limiting(t)
		by := &atomic.Int64{}
		by.Store(int64(2 * time.Second))
		l := openOn(t, lateLimits{d, by}).Limiter("l", limit.Rate{Count: 1000, Per: 24 * time.Hour, Algorithm: limit.FixedWindow})
		blocks := l.Leased()
		waiting := make(chan error)
		go func() {
			_, err := blocks.AllowN(t.Context(), "k", 10)
			waiting <- err
		}()
		synctest.Wait()
		closed := make(chan error)
		start := time.Now()
		go func() { closed <- blocks.Close() }()
		if err := <-waiting; !errors.Is(err, holdfast.ErrClosed) || time.Since(start) > 0 {
			t.Errorf("it is told after %s: %v", time.Since(start), err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		by.Store(0)
		if left, err := l.Available(t.Context(), "k"); left != 1000 || err != nil {
			t.Errorf("%d of 1000 are left: %v", left, err)
		}
	})
}

// A caller that waits to hear the rate when Close begins takes nothing, also of what no block can be had of.
func TestLeased_CloseBeforeTheRate(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow, limit.SlidingLog} {
		synctest.Test(t, func(t *testing.T) {
			_, d := limiting(t)
			by := &atomic.Int64{}
			s := openOn(t, lateLimits{d, by})
			made := s.Limiter("l", limit.Rate{Count: 5, Per: time.Hour, Algorithm: a})
			if _, err := made.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			by.Store(int64(2 * time.Second))
			blocks := s.Limiter("l", limit.Rate{}).Leased()
			waiting := make(chan error)
			go func() {
				_, err := blocks.Allow(t.Context(), "k")
				waiting <- err
			}()
			synctest.Wait()
			closed := blocks.Close()
			if err := <-waiting; !errors.Is(err, holdfast.ErrClosed) || !holdfast.NotDone(err) || closed != nil {
				t.Errorf("%s: it is told %v, and Close %v", a, err, closed)
			}
			by.Store(0)
			if left, err := made.Available(t.Context(), "k"); left != 4 || err != nil {
				t.Errorf("%s: %d of 4 are left: %v", a, left, err)
			}
		})
	}
}

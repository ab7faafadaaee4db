package holdfast_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

func TestCounter(t *testing.T) {
	s, toy := open(t)
	ctx, c := t.Context(), s.Sub("n/").Counter("orders")
	check := func(what string, got int64, err error, want int64) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", what, got, err, want)
		}
	}
	v, err := c.Load(ctx)
	check("Load of a new one", v, err, 0)
	v, err = c.Add(ctx, 5)
	check("Add(5)", v, err, 5)
	v, err = c.Add(ctx, -8)
	check("Add(-8)", v, err, -3)
	if swapped, err := c.CompareAndSwap(ctx, 0, 9); swapped || err != nil {
		t.Errorf("swapped a wrong value: %v", err)
	}
	if swapped, err := c.CompareAndSwap(ctx, -3, 9); !swapped || err != nil {
		t.Errorf("did not swap: %v", err)
	}
	if err := errors.Join(c.Store(ctx, math.MinInt64)); err != nil {
		t.Error(err)
	}
	v, err = c.Load(ctx)
	check("Load", v, err, math.MinInt64)
	if err := c.Reset(ctx); err != nil || toy.value("n/orders") != 0 {
		t.Errorf("Reset: %v, %d", err, toy.value("n/orders"))
	}
	if err := c.Delete(ctx); err != nil {
		t.Error(err)
	}
}

func TestCounter_Unsigned(t *testing.T) {
	s, toy := open(t)
	ctx, c := t.Context(), s.Counter("orders").Unsigned()
	if v, err := c.Add(ctx, 5); v != 5 || err != nil {
		t.Errorf("Add: %d, %v", v, err)
	}
	if v, err := c.Sub(ctx, 7); v != 0 || err != nil {
		t.Errorf("Sub stops at 0: %d, %v", v, err)
	}
	if err := c.Store(ctx, math.MaxUint64); err != nil {
		t.Error(err)
	}
	if v, err := c.Load(ctx); v != math.MaxUint64 || err != nil {
		t.Errorf("Load: %d, %v", v, err)
	}
	if swapped, err := c.CompareAndSwap(ctx, math.MaxUint64, 1); !swapped || err != nil {
		t.Errorf("swap: %v", err)
	}
	if err := errors.Join(c.Reset(ctx), c.Delete(ctx)); err != nil {
		t.Error(err)
	}
	var unsigned bool
	toy.onCount = func(r *driver.CountRequest) error { unsigned = r.Unsigned; return nil }
	if _, _ = c.Load(ctx); !unsigned {
		t.Error("the backend was not told that it is unsigned")
	}
}

func TestBuffered_Threshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		b := s.Counter("hits").Buffered(10, time.Hour)
		for range 9 {
			if err := b.Add(1); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if toy.called("count") != 0 {
			t.Fatal("flushed below the threshold")
		}
		if v, err := b.LoadApprox(t.Context()); v != 9 || err != nil || toy.value("hits") != 0 {
			t.Errorf("approximately %d, %v", v, err)
		}
		_ = b.Add(1)
		synctest.Wait()
		if toy.value("hits") != 10 {
			t.Errorf("the backend has %d after the threshold", toy.value("hits"))
		}
		_ = b.Add(-10)
		synctest.Wait()
		if toy.value("hits") != 0 {
			t.Errorf("the backend has %d after the threshold downwards", int64(toy.value("hits")))
		}
	})
}

// The first Add that is not flushed waits no longer than the interval.
func TestBuffered_Interval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		b := s.Counter("hits").Unsigned().Buffered(1000, time.Minute)
		for range 6 {
			_ = b.Add(1)
			time.Sleep(10*time.Second - 1)
		}
		synctest.Wait()
		if toy.value("hits") != 0 {
			t.Fatal("flushed before the interval")
		}
		time.Sleep(6 * time.Nanosecond)
		synctest.Wait()
		if toy.value("hits") != 6 || toy.called("count") != 1 {
			t.Errorf("the backend has %d after %d calls", toy.value("hits"), toy.called("count"))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if toy.called("count") != 1 {
			t.Error("an idle counter asks the backend")
		}
	})
}

// Seed 000 loses a failed flush; here it is put back.
func TestBuffered_FailedFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f faults
		s, toy := open(t, f.hook())
		down := &driver.Error{Kind: driver.ErrUnavailable}
		b := s.Counter("hits").Buffered(10, time.Minute)
		// The count is done, and the answer lost: unknown to the caller.
		toy.onCount = func(*driver.CountRequest) error { return down }
		_ = b.Add(10)
		synctest.Wait()
		_ = b.Add(3)
		if errs := f.all(); len(errs) != 1 || !errors.Is(errs[0], holdfast.ErrUnavailable) {
			t.Fatalf("reported %v", errs)
		}
		_, err := b.Flush(t.Context())
		wantErr(t, err, holdfast.ErrUnavailable)
		toy.set(func() { toy.onCount = nil })
		time.Sleep(time.Minute)
		synctest.Wait()
		if toy.value("hits") != 13 {
			t.Errorf("the backend has %d, want 13: each Add once", toy.value("hits"))
		}
	})
}

// "A failure is told to Hooks.Fault and tried again an interval later", also if more is
// added meanwhile.
func TestBuffered_Outage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var faults atomic.Int64
		s, toy := open(t, holdfast.Hooks{Fault: func(string, string, error) { faults.Add(1) }})
		toy.set(func() {
			toy.onCount = func(*driver.CountRequest) error {
				return &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone}
			}
		})
		b := s.Counter("n").Buffered(100, time.Minute)
		for range 6000 {
			if err := b.Add(1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if n := faults.Load(); n < 4 || n > 6 {
			t.Errorf("%d flushes in five minutes", n)
		}
		toy.set(func() { toy.onCount = nil })
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// To a backend that is closed for good, as a directory that was deleted, no flush is tried for ever: only when there is
// more to tell.
func TestBuffered_ClosedBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f faults
		s, toy := open(t, f.hook())
		toy.set(func() {
			toy.onCount = func(*driver.CountRequest) error {
				return &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone, Err: driver.ErrClosed}
			}
		})
		b := s.Counter("n").Buffered(100, time.Minute)
		for tries := 1; tries < 3; tries++ {
			_ = b.Add(1)
			time.Sleep(time.Hour)
			if n := len(f.all()); n != tries {
				t.Errorf("%d flushes were tried after %d times that something was added", n, tries)
			}
		}
		wantErr(t, b.Close(), holdfast.ErrClosed)
	})
}

// A flush that may have been counted is repeated as it was, also if a repetition was
// surely not done: that says nothing of the first.
func TestBuffered_RefusedRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		b := s.Counter("hits").Buffered(1000, time.Hour)
		toy.onCount = func(*driver.CountRequest) error { return &driver.Error{Kind: driver.ErrUnavailable} }
		_ = b.Add(5)
		_, err := b.Flush(t.Context())
		wantErr(t, err, holdfast.ErrUnavailable)
		toy.set(func() { toy.onCount = nil })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 { // some get no turn, others no answer
			_, err = b.Flush(ctx)
			if wantErr(t, err, context.Canceled); holdfast.NotDone(err) {
				t.Error("what may have been counted is told to be surely not")
			}
		}
		_ = b.Add(2)
		if v, err := b.LoadExact(t.Context()); v != 7 || err != nil {
			t.Errorf("exactly %d, %v", v, err)
		}
	})
}

// What was surely not counted joins the next flush.
func TestBuffered_RefusedFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		b := s.Counter("hits").Buffered(1000, time.Hour)
		_ = b.Add(5)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := b.Flush(ctx)
		wantErr(t, err, context.Canceled)
		_ = b.Add(2)
		if v, err := b.LoadExact(t.Context()); v != 7 || err != nil {
			t.Errorf("exactly %d, %v", v, err)
		}
		if toy.called("count") != 1 {
			t.Errorf("%d calls, want both amounts in one", toy.called("count"))
		}
	})
}

func TestBuffered_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		b := s.Counter("hits").Buffered(1000, time.Hour)
		_ = b.Add(5)
		toy.onCount = func(*driver.CountRequest) error { return &driver.Error{Kind: driver.ErrUnavailable} }
		wantErr(t, b.Close(), holdfast.ErrUnavailable)
		toy.set(func() { toy.onCount = nil })
		if err := b.Close(); err != nil || toy.value("hits") != 5 {
			t.Errorf("second Close: %v, %d", err, toy.value("hits"))
		}
		wantErr(t, b.Add(1), holdfast.ErrClosed)
		calls := toy.called("count")
		if err := b.Close(); err != nil || toy.called("count") != calls {
			t.Errorf("Close with nothing left: %v, %d calls", err, toy.called("count")-calls)
		}
	})
}

func TestBuffered_Mistakes(t *testing.T) {
	s, _ := open(t)
	c := s.Counter("hits")
	wantInvalid(t, c.Buffered(0, time.Second).Add(1), "threshold is below 1")
	wantInvalid(t, c.Buffered(-5, time.Second).Add(1), "threshold is below 1")
	wantInvalid(t, c.Buffered(1, 5).Add(1), "interval(5ns) is out of range")
	wantInvalid(t, c.Unsigned().Buffered(0, time.Second).Add(1), "threshold is below 1")
	_, err := c.Buffered(0, time.Second).Flush(t.Context())
	wantInvalid(t, err, "threshold is below 1")
}

// An amount that does not fit is refused, not wrapped. It stays below the
// threshold here, so that nothing flushes it meanwhile.
func TestBuffered_Overflow(t *testing.T) {
	s, toy := open(t)
	toy.onCount = func(*driver.CountRequest) error {
		return &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone}
	}
	b := s.Counter("a").Buffered(math.MaxInt64, time.Hour)
	_ = b.Add(math.MaxInt64 - 1)
	wantErr(t, b.Add(2), holdfast.ErrExhausted)
	n := s.Counter("b").Buffered(math.MaxInt64, time.Hour)
	_ = n.Add(math.MinInt64 + 2)
	wantErr(t, n.Add(-3), holdfast.ErrExhausted)
	u := s.Counter("c").Unsigned().Buffered(math.MaxUint64, time.Hour)
	_ = u.Add(math.MaxUint64 - 1)
	wantErr(t, u.Add(2), holdfast.ErrExhausted)
	toy.onCount = nil
	toy.counts["b"] = 1 << 63
	if v, err := n.LoadApprox(t.Context()); v != math.MinInt64 || err != nil {
		t.Errorf("approximately %d, %v", v, err)
	}
	toy.counts["c"] = 5
	if v, err := u.LoadApprox(t.Context()); v != math.MaxUint64 || err != nil {
		t.Errorf("approximately %d, %v", v, err)
	}
}

// However fast it is counted on, one flush at a time is on its way.
func TestBuffered_SlowBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		toy.onCount = func(*driver.CountRequest) error { time.Sleep(time.Second); return nil }
		b := s.Counter("hits").Buffered(10, time.Minute)
		before := goroutines()
		for range 1000 {
			_ = b.Add(10)
			synctest.Wait()
		}
		if n := goroutines() - before; n > 2 {
			t.Errorf("%d goroutines", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if toy.value("hits") != 10_000 || toy.called("count") != 2 {
			t.Errorf("counted %d in %d calls", toy.value("hits"), toy.called("count"))
		}
	})
}

func TestBuffered_Concurrent(t *testing.T) {
	s, toy := open(t)
	b := s.Counter("hits").Buffered(7, time.Millisecond)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				if err := b.Add(1); err != nil {
					t.Error(err)
				}
				if i%50 == 0 {
					if _, err := b.Flush(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if err := b.Close(); err != nil || toy.value("hits") != 1600 {
		t.Errorf("counted %d of 1600, %v", toy.value("hits"), err)
	}
}

package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

// leasedLoad has clients ask at random times, about load times a second, and notes what
// is allowed.
type leasedLoad struct {
	mu       sync.Mutex
	admitted []time.Time
	asked    int
}

func (w *leasedLoad) run(t *testing.T, seed uint64, load int, from, until time.Time, allow func() (limit.Decision, error)) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	time.Sleep(time.Until(from))
	for time.Now().Before(until) {
		d, err := allow()
		if err != nil {
			t.Error(err)
			return
		}
		w.mu.Lock()
		if w.asked++; d.Allowed {
			w.admitted = append(w.admitted, time.Now())
		}
		w.mu.Unlock()
		time.Sleep(time.Duration(rnd.Int64N(2 * int64(time.Second) / int64(load))))
	}
}

// TestLeased: ten programs at twice the rate, one that is killed with its block and one
// that is stopped for three seconds: never more than the rate in any time, at most 1 % less
// than with a call for each decision, and at most a twentieth of the calls.
func TestLeased(t *testing.T) {
	strict, strictCalls := leasedRun(t, false)
	leased, calls := leasedRun(t, true)
	t.Logf("strict: %d allowed with %d calls; leased: %d with %d", strict, strictCalls, leased, calls)
	if float64(leased) < 0.99*float64(strict) {
		t.Errorf("leased %d are allowed, strictly %d", leased, strict)
	}
	if 20*calls > strictCalls {
		t.Errorf("leased takes %d calls, strict %d", calls, strictCalls)
	}
}

func leasedRun(t *testing.T, leased bool) (allowed, calls int) {
	rate := limit.Rate{Count: 1000, Per: time.Second}
	synctest.Test(t, func(t *testing.T) {
		_, d := limiting(t)
		w := &leasedLoad{}
		start := time.Now()
		end := start.Add(time.Minute)
		var all sync.WaitGroup
		for i := range 10 {
			s, err := holdfast.New(d)
			if err != nil {
				t.Fatal(err)
			}
			l := s.Limiter("l", rate)
			allow := func() (limit.Decision, error) { return l.Allow(t.Context(), "k") }
			if leased {
				blocks := l.Leased()
				if i != 0 {
					defer blocks.Close()
				}
				allow = func() (limit.Decision, error) { return blocks.Allow(t.Context(), "k") }
			}
			all.Go(func() {
				switch i {
				case 0: // killed
					w.run(t, uint64(i), 200, start, start.Add(5*time.Second), allow)
				case 1: // stopped for a while
					w.run(t, uint64(i), 200, start, start.Add(5*time.Second), allow)
					w.run(t, uint64(i), 200, start.Add(8*time.Second), end, allow)
				default:
					w.run(t, uint64(i), 200, start, end, allow)
				}
			})
		}
		all.Wait()
		allowed, calls = len(w.admitted), d.asked
		var full time.Duration // when a bucket of 1000 would be full again: what every window means
		for i, at := range w.admitted {
			now := at.Sub(start)
			if full = max(full, now) + time.Millisecond; full > now+time.Second {
				t.Fatalf("number %d, after %s, is above the rate in some time", i, now)
			}
		}
		time.Sleep(5 * time.Second) // what nobody uses is given back
	})
	return allowed, calls
}

// TestLeasedGivesBack what is not used, when nobody asks for the key any more and
// when it is closed.
func TestLeasedGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := limiting(t)
		l := s.Limiter("l", limit.Rate{Count: 100, Per: time.Hour, Algorithm: limit.FixedWindow})
		blocks := l.Leased()
		for range 10 {
			if d, err := blocks.Allow(t.Context(), "k"); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		synctest.Wait()
		if left, _ := l.Available(t.Context(), "k"); left >= 90 {
			t.Errorf("beside a block %d of 100 are left: nothing was taken ahead", left)
		}
		time.Sleep(3 * time.Second)
		if left, _ := l.Available(t.Context(), "k"); left != 90 {
			t.Errorf("after 10 of 100 %d are left", left)
		}
		for range 5 {
			if d, err := blocks.Allow(t.Context(), "k"); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		synctest.Wait()
		if err := blocks.Close(); err != nil {
			t.Fatal(err)
		}
		if left, _ := l.Available(t.Context(), "k"); left != 85 {
			t.Errorf("after 15 of 100 and Close %d are left", left)
		}
		if _, err := blocks.Allow(t.Context(), "k"); !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		for range 85 {
			if d, _ := l.Allow(t.Context(), "k"); !d.Allowed {
				t.Fatal("what was given back is refused")
			}
		}
		if d, err := l.Leased().Allow(t.Context(), "k"); err != nil || d.Allowed || d.RetryAfter <= 0 {
			t.Errorf("of nothing left: %+v, %v", d, err)
		}
	})
}

// TestLeasedBlocksHaveTheirTime: a block is used neither before it begins, nor by a
// program that went on too late.
func TestLeasedBlocksHaveTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := limiting(t)
		l := s.Limiter("l", limit.Rate{Count: 100, Per: time.Second})
		blocks := l.Leased()
		defer blocks.Close()
		for range 20 {
			if d, err := blocks.Allow(t.Context(), "late"); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		synctest.Wait()
		time.Sleep(900 * time.Millisecond) // the bucket is full again, and the block still here
		for _, key := range []string{"late", "early"} {
			if d, err := l.AllowN(t.Context(), key, 100); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			d, err := blocks.Allow(t.Context(), key)
			if err != nil || d.Allowed || d.RetryAfter <= 0 {
				t.Errorf("%s: beside a whole burst another one is answered %+v, %v", key, d, err)
			}
			time.Sleep(d.RetryAfter)
			if d, err = blocks.Allow(t.Context(), key); err != nil || !d.Allowed {
				t.Errorf("%s: after the time told it is answered %+v, %v", key, d, err)
			}
		}
	})
}

// silentLimits is a backend that does not answer.
type silentLimits struct{ *limitDriver }

func (silentLimits) Limit(ctx context.Context, _ *driver.LimitRequest) (driver.LimitReply, error) {
	<-ctx.Done()
	return driver.LimitReply{}, ctx.Err()
}

// All that wait for a block of a backend that does not answer are told so when the one
// request for it has failed, not one after the other.
func TestLeased_SilentBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := limiting(t)
		s, err := holdfast.New(silentLimits{d})
		if err != nil {
			t.Fatal(err)
		}
		blocks := s.Limiter("l", limit.Rate{Count: 100, Per: time.Second}).Leased()
		const callers = 50
		failed := make(chan error, callers)
		for range callers {
			go func() {
				_, err := blocks.Allow(t.Context(), "k")
				failed <- err
			}()
		}
		time.Sleep(6 * time.Second) // one request has failed
		synctest.Wait()
		if len(failed) != callers {
			t.Errorf("%d of %d callers are answered", len(failed), callers)
		}
		for range len(failed) {
			if err := <-failed; err == nil {
				t.Error("something is allowed")
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A limiter by blocks that was given no rate asks for it once, tells when the key is as if never used, and goes by a rate that
// is set later, also one of which there are no blocks.
func TestLeasedWithoutRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := limiting(t)
		made := s.Limiter("l", limit.Rate{Count: 100, Per: time.Hour, Algorithm: limit.FixedWindow})
		if _, err := made.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		blocks := s.Limiter("l", limit.Rate{}).Leased()
		defer blocks.Close()
		for range 40 {
			if got, err := blocks.Allow(t.Context(), "k"); err != nil || !got.Allowed || got.ResetAfter <= 0 || got.ResetAfter > time.Hour {
				t.Fatal(got, err)
			}
			time.Sleep(time.Millisecond)
		}
		if d.asked > 12 {
			t.Errorf("40 decisions by blocks took %d calls", d.asked)
		}
		if err := made.SetRate(t.Context(), limit.Rate{Count: 3, Per: time.Hour, Algorithm: limit.SlidingLog}); err != nil {
			t.Fatal(err)
		}
		d.mu.Lock()
		clear(d.keys)
		d.mu.Unlock()
		time.Sleep(time.Hour) // what is left of the old window
		allowed := 0
		for range 10 {
			if got, err := blocks.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			} else if got.Allowed {
				allowed++
			}
			synctest.Wait()
		}
		if allowed != 3 {
			t.Errorf("%d of 3 are allowed at the new rate", allowed)
		}
	})
}

// A limit of ours is not the caller's deadline.
func TestLeased_OwnTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := limiting(t)
		blocks := openOn(t, silentLimits{d}).Limiter("l", limit.Rate{Count: 100, Per: time.Second}).Leased()
		_, err := blocks.Allow(t.Context(), "k")
		if !errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || holdfast.NotDone(err) {
			t.Errorf("a backend that does not answer: %v", err)
		}
	})
}

// Close takes 5 seconds at most, however many keys are in use.
func TestLeased_CloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := limiting(t)
		stopping := &stoppingLimits{limitDriver: d}
		blocks := openOn(t, stopping).Limiter("l", limit.Rate{Count: 1000, Per: time.Hour, Algorithm: limit.FixedWindow}).Leased()
		for i := range 5000 * 4 { // of the last block of a key something is left
			if _, err := blocks.Allow(t.Context(), fmt.Sprint("k", i%5000)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		stopping.stopped.Store(true)
		start := time.Now()
		if err := blocks.Close(); err != nil || time.Since(start) > 5*time.Second {
			t.Errorf("Close took %s: %v", time.Since(start), err)
		}
	})
}

// stoppingLimits is a backend that answers until it is stopped.
type stoppingLimits struct {
	*limitDriver
	stopped atomic.Bool
}

func (s *stoppingLimits) Limit(ctx context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	if s.stopped.Load() {
		return silentLimits{s.limitDriver}.Limit(ctx, r)
	}
	return s.limitDriver.Limit(ctx, r)
}

// What the library counts on goes by driver.Now, which goes on while the machine is
// suspended; time.Now is for what is told to people.
func TestElapsedTime(t *testing.T) {
	told := map[string]int{"acquire.go": 1, "hold.go": 1} // how long a hold lasted, a release took
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "time.Now()"); !strings.HasSuffix(file, "_test.go") && n != told[file] {
			t.Errorf("%s reads time.Now %d times, want %d: it stands still in a suspended machine", file, n, told[file])
		}
	}
}

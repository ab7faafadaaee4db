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

// A limiter that does not exist is told by the call that was made.
func TestLeased_Missing(t *testing.T) {
	s, _ := limiting(t)
	_, err := s.Limiter("l", limit.Rate{}).Leased().Allow(t.Context(), "k")
	if !errors.Is(err, holdfast.ErrNotFound) || !strings.Contains(err.Error(), `allow "l"`) {
		t.Errorf("of a limiter that does not exist: %v", err)
	}
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

// lateLimits is a backend that answers only after a while.
type lateLimits struct {
	*limitDriver
	by *atomic.Int64
}

func (s lateLimits) Limit(ctx context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	reply, err := s.limitDriver.Limit(context.WithoutCancel(ctx), r)
	select {
	case <-time.After(time.Duration(s.by.Load())):
		return reply, err
	case <-ctx.Done():
		return driver.LimitReply{}, ctx.Err()
	}
}

// A block whose answer comes after the callers have been told that there is none is used, or
// given back: nothing of the limit is lost.
func TestLeased_LateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := limiting(t)
		by := &atomic.Int64{}
		by.Store(int64(20 * time.Second))
		l := openOn(t, lateLimits{d, by}).Limiter("l", limit.Rate{Count: 1000, Per: 24 * time.Hour, Algorithm: limit.FixedWindow})
		blocks := l.Leased()
		for end := time.Now().Add(19 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if _, err := blocks.Allow(t.Context(), "k"); !errors.Is(err, holdfast.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		by.Store(0)
		time.Sleep(time.Minute)
		if err := blocks.Close(); err != nil {
			t.Fatal(err)
		}
		if left, _ := l.Available(t.Context(), "k"); left != 1000 {
			t.Errorf("nothing was allowed, and of 1000 %d are left", left)
		}
	})
}

// A backend that needs seconds for each answer serves all the same.
func TestLeased_SlowBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := limiting(t)
		by := &atomic.Int64{}
		by.Store(int64(3 * time.Second))
		blocks := openOn(t, lateLimits{d, by}).Limiter("l", limit.Rate{Count: 1000, Per: time.Hour, Algorithm: limit.FixedWindow}).Leased()
		defer blocks.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if got, err := blocks.Allow(ctx, "k"); err != nil || !got.Allowed {
			t.Error(got, err)
		}
	})
}

// A refusal tells how long it lasts, as the strict limiter does, and the backend is not
// asked four times a second meanwhile.
func TestLeased_RetryAfter(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.GCRA, limit.FixedWindow} {
		synctest.Test(t, func(t *testing.T) {
			s, d := limiting(t)
			l := s.Limiter("l", limit.Rate{Count: 5, Per: time.Hour, Algorithm: a})
			if _, err := l.AllowN(t.Context(), "k", 5); err != nil {
				t.Fatal(err)
			}
			strict, err := l.Allow(t.Context(), "k")
			if err != nil || strict.Allowed {
				t.Fatal(strict, err)
			}
			blocks := l.Leased()
			defer blocks.Close()
			before := d.count()
			for range 100 {
				got, err := blocks.Allow(t.Context(), "k")
				if off := strict.RetryAfter - got.RetryAfter; err != nil || got.Allowed || off < 0 || off > 10*time.Second {
					t.Fatalf("%v: %v, strictly %s: %v", a, got, strict.RetryAfter, err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			if n := d.count() - before; n > 22 { // a second, for a block and for what is asked
				t.Errorf("%v: the backend was asked %d times in ten seconds", a, n)
			}
		})
	}
}

// A cost that is refused does not refuse a smaller one.
func TestLeased_TwoCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := limiting(t)
		l := s.Limiter("l", limit.Rate{Count: 100, Per: time.Hour, Algorithm: limit.FixedWindow})
		if _, err := l.AllowN(t.Context(), "k", 80); err != nil {
			t.Fatal(err)
		}
		blocks := l.Leased()
		defer blocks.Close()
		for i := range 20 {
			if d, err := blocks.AllowN(t.Context(), "k", 50); err != nil || d.Allowed {
				t.Fatal(d, err)
			}
			if d, err := blocks.Allow(t.Context(), "k"); err != nil || !d.Allowed {
				t.Fatalf("of 20 that are left %d are allowed: %v, %v", i, d, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// A key that is asked for once costs one call, as with a limiter that is not leased.
func TestLeased_RareKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := limiting(t)
		blocks := s.Limiter("l", limit.Rate{Count: 100, Per: time.Minute}).Leased()
		defer blocks.Close()
		for i := range 1000 {
			if got, err := blocks.Allow(t.Context(), fmt.Sprint("k", i)); err != nil || !got.Allowed {
				t.Fatal(got, err)
			}
		}
		time.Sleep(5 * time.Second)
		if n := d.count(); n != 1000 {
			t.Errorf("1000 keys that were asked for once took %d calls", n)
		}
	})
}

func (d *limitDriver) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

// What a bucket allows at once it allows by blocks too, however long the backend's answers take: also the whole burst, which
// begins to refill when it is taken, and what is taken of a slow key: its block has passed when the answer comes.
func TestLeased_WholeBurst(t *testing.T) {
	for _, c := range []struct {
		rate limit.Rate
		n    int64 // as often as it fits
	}{
		{limit.Rate{Count: 1, Per: time.Hour}, 1},
		{limit.Rate{Count: 10, Per: time.Hour, Burst: 1, Algorithm: limit.TokenBucket}, 1},
		{limit.Rate{Count: 5, Per: time.Hour}, 5},
		{limit.Rate{Count: 5, Per: time.Hour}, 1},
		{limit.Rate{Count: 5, Per: time.Hour, Algorithm: limit.FixedWindow}, 5},
	} {
		for _, by := range []time.Duration{1, 300 * time.Millisecond, 3 * time.Second} {
			t.Run(fmt.Sprintf("%v,%d,%s", c.rate, c.n, by), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { leasedWhole(t, c.rate, c.n, by) })
			})
		}
	}
}

func leasedWhole(t *testing.T, rate limit.Rate, n int64, by time.Duration) {
	_, d := limiting(t)
	slow := &atomic.Int64{}
	slow.Store(int64(by))
	blocks := openOn(t, lateLimits{d, slow}).Limiter("l", rate).Leased()
	defer blocks.Close()
	for i := range rate.Limit() / n {
		got, err := blocks.AllowN(t.Context(), "k", n)
		if err == nil && !got.Allowed && got.RetryAfter < time.Second { // of a block that was taken ahead
			time.Sleep(got.RetryAfter)
			got, err = blocks.AllowN(t.Context(), "k", n)
		}
		if err != nil || !got.Allowed {
			t.Fatalf("number %d of %d is answered %v, %v", i+1, rate.Limit()/n, got, err)
		}
	}
	if got, err := blocks.AllowN(t.Context(), "k", n); err != nil || got.Allowed {
		t.Errorf("above the rate: %v, %v", got, err)
	}
	if asked := d.count(); n == rate.Limit() && asked > 2 {
		t.Errorf("two decisions took %d calls", asked)
	}
}

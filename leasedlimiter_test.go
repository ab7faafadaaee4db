package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
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

// "What is above twice the need of the last second or two is given back": a program that
// had a rush and asks now and then does not keep the rest of it from others.
func TestLeased_SurplusIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := limiting(t)
		l := s.Limiter("l", limit.Rate{Count: 1000, Per: 24 * time.Hour, Algorithm: limit.FixedWindow})
		blocks := l.Leased()
		defer blocks.Close()
		used := int64(0)
		for range 400 {
			if d, err := blocks.Allow(t.Context(), "k"); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			used++
		}
		for range 4 {
			time.Sleep(900 * time.Millisecond)
			if d, err := blocks.Allow(t.Context(), "k"); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			used++
		}
		synctest.Wait()
		if left, _ := l.Available(t.Context(), "k"); left < 1000-used-2 {
			t.Errorf("%d were used, and of 1000 only %d are left for others", used, left)
		}
	})
}

// deafLimits is a backend that takes nothing back while it is away, or as long as it takes.
type deafLimits struct {
	*limitDriver
	away atomic.Bool
	slow atomic.Bool
	told atomic.Int64
}

func (s *deafLimits) Limit(ctx context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	if r.Op == driver.LimitReturn {
		s.told.Add(1)
		if s.away.Load() {
			return driver.LimitReply{}, &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone}
		}
		if s.slow.Load() {
			time.Sleep(time.Second)
		}
	}
	return s.limitDriver.Limit(ctx, r)
}

// aThousandADay is a limiter of a window, by blocks, on a backend that can be away.
func aThousandADay(t *testing.T) (*deafLimits, *holdfast.Limiter, *holdfast.LeasedLimiter) {
	d := &deafLimits{limitDriver: &limitDriver{rates: map[string]limit.Rate{}, keys: map[string]limit.State{}}}
	s, err := holdfast.New(d)
	if err != nil {
		t.Fatal(err)
	}
	l := s.Limiter("l", limit.Rate{Count: 1000, Per: 24 * time.Hour, Algorithm: limit.FixedWindow})
	blocks := l.Leased()
	t.Cleanup(func() { _ = s.Close() })
	t.Cleanup(func() { _ = blocks.Close() })
	return d, l, blocks
}

// What could not be given back because the backend was away is given back when it is not, of a key
// that is left and of one that is asked for now and then; it is asked about once a second.
func TestLeased_GivesBackLater(t *testing.T) {
	for _, use := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d, l, blocks := aThousandADay(t)
			used := int64(0)
			ask := func() {
				if d, err := blocks.Allow(t.Context(), "k"); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				used++
			}
			for range 400 {
				ask()
			}
			d.away.Store(true)
			for range 300 {
				time.Sleep(100 * time.Millisecond)
				if use {
					ask()
				}
			}
			if told := d.told.Load(); told > 100 {
				t.Errorf("in use %v: a backend that was away for 30 s was told %d times", use, told)
			}
			d.away.Store(false)
			for range 40 {
				time.Sleep(100 * time.Millisecond)
				if use {
					ask()
				}
			}
			synctest.Wait()
			if left, _ := l.Available(t.Context(), "k"); left < 1000-used-10 {
				t.Errorf("in use %v: %d were used, and of 1000 only %d are left for others", use, used, left)
			}
		})
	}
}

// What the backend refuses to take back, because the rate is another by then or the limiter is gone, it is told once.
func TestLeased_RefusedReturns(t *testing.T) {
	rate := limit.Rate{Count: 1000, Per: 24 * time.Hour, Algorithm: limit.FixedWindow}
	for _, said := range []limit.Rate{rate, {}} {
		t.Run(said.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { leasedRefusedReturns(t, rate, said) })
		})
	}
}

func leasedRefusedReturns(t *testing.T, rate, said limit.Rate) {
	d := &deafLimits{limitDriver: &limitDriver{rates: map[string]limit.Rate{}, keys: map[string]limit.State{}}}
	s := openOn(t, d)
	if err := s.Limiter("l", rate).SetRate(t.Context(), rate); err != nil {
		t.Fatal(err)
	}
	blocks := s.Limiter("l", said).Leased()
	defer blocks.Close()
	for range 20 {
		if d, err := blocks.Allow(t.Context(), "k"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	synctest.Wait()
	d.mu.Lock()
	if d.rates["l"] = (limit.Rate{Count: 9, Per: time.Hour}); said.Count == 0 {
		delete(d.rates, "l")
	}
	d.mu.Unlock()
	time.Sleep(time.Minute)
	if told := d.told.Load(); told < 1 || told > 3 {
		t.Errorf("with the rate %v the backend was told %d times", said, told)
	}
}

// More idle keys than can be given back in the time of a look are given back with the next ones.
func TestLeased_GivesBackMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, l, blocks := aThousandADay(t)
		d.slow.Store(true)
		for i := range 500 {
			for range 20 {
				if d, err := blocks.Allow(t.Context(), fmt.Sprint(i)); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
			}
		}
		time.Sleep(time.Minute)
		for i := range 500 {
			if left, _ := l.Available(t.Context(), fmt.Sprint(i)); left != 980 {
				t.Fatalf("key %d: of 1000 only %d are left for others", i, left)
			}
		}
	})
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

// What is left of blocks is used together: nothing piles up, and the whole limit is used.
func TestLeased_Remainders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := limiting(t)
		l := s.Limiter("l", limit.Rate{Count: 3000, Per: time.Hour, Algorithm: limit.FixedWindow})
		blocks := l.Leased()
		defer blocks.Close()
		rnd := rand.New(rand.NewPCG(1, 2))
		used := int64(0)
		for range 900 {
			n := 1 + rnd.Int64N(7)
			got, err := blocks.AllowN(t.Context(), "k", n)
			if err != nil {
				t.Fatal(err)
			}
			if got.Allowed {
				used += n
			} else if used+n <= 3000 {
				t.Fatalf("%d of 3000 are used, and %d are refused", used, n)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if used < 2994 || 5*d.count() > 900 {
			t.Errorf("%d of 3000 were used with %d calls", used, d.count())
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

// Close gives back the block that is on its way, too.
func TestLeased_CloseAwaitsBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := limiting(t)
		by := &atomic.Int64{}
		l := openOn(t, lateLimits{d, by}).Limiter("l", limit.Rate{Count: 1000, Per: 24 * time.Hour, Algorithm: limit.FixedWindow})
		blocks := l.Leased()
		for range 100 {
			if got, err := blocks.Allow(t.Context(), "k"); err != nil || !got.Allowed {
				t.Fatal(got, err)
			}
		}
		synctest.Wait()
		by.Store(int64(time.Second))
		used, before := int64(100), d.count()
		for ; d.count() == before; used++ { // until the next one is fetched
			if got, err := blocks.Allow(t.Context(), "k"); err != nil || !got.Allowed {
				t.Fatal(got, err)
			}
			runtime.Gosched()
		}
		start := time.Now()
		if err := blocks.Close(); err != nil || time.Since(start) > 2*time.Second {
			t.Fatalf("Close took %s: %v; want one answer with the block, and one to its return", time.Since(start), err)
		}
		by.Store(0)
		if left, _ := l.Available(t.Context(), "k"); left != 1000-used {
			t.Errorf("%d were used, and %d of 1000 are left", used, left)
		}
	})
}

// A block that comes while Close is at it is given back also if its rate has become one of which nothing can be used later.
func TestLeased_CloseAfterSliding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := limiting(t)
		by := &atomic.Int64{}
		s := openOn(t, lateLimits{d, by})
		blocks := s.Limiter("l", limit.Rate{}).Leased()
		l := s.Limiter("l", limit.Rate{Count: 1000, Per: 24 * time.Hour, Algorithm: limit.FixedWindow})
		if err := l.SetRate(t.Context(), limit.Rate{Count: 1000, Per: 24 * time.Hour, Algorithm: limit.FixedWindow}); err != nil {
			t.Fatal(err)
		}
		if got, err := blocks.Allow(t.Context(), "k"); err != nil || !got.Allowed {
			t.Fatal(got, err)
		}
		if err := l.SetRate(t.Context(), limit.Rate{Count: 1000, Per: 24 * time.Hour, Algorithm: limit.SlidingLog}); err != nil {
			t.Fatal(err)
		}
		before, _ := l.Available(t.Context(), "k2")
		by.Store(int64(time.Second))
		go blocks.AllowN(t.Context(), "k2", 10)
		synctest.Wait()
		if err := blocks.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		by.Store(0)
		if left, err := l.Available(t.Context(), "k2"); err != nil || left != before {
			t.Errorf("%d were left, and %d are: %v", before, left, err)
		}
	})
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

// Close tells a backend that is away for a moment again, also of blocks that were being given back when it began.
func TestLeased_CloseTriesAgain(t *testing.T) {
	for what, begun := range map[string]func(d *deafLimits){
		"in use": func(d *deafLimits) { d.away.Store(true) },
		"idle": func(d *deafLimits) {
			d.away.Store(true)
			time.Sleep(2500 * time.Millisecond) // it was tried before
		},
		"being given back": func(d *deafLimits) {
			d.slow.Store(true)
			time.Sleep(2500 * time.Millisecond) // at 2 s nobody has asked for it
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, l, blocks := aThousandADay(t)
				for range 100 {
					if d, err := blocks.Allow(t.Context(), "k"); err != nil || !d.Allowed {
						t.Fatal(d, err)
					}
				}
				synctest.Wait()
				begun(d)
				time.AfterFunc(time.Second, func() { d.away.Store(false) })
				start := time.Now()
				if err := blocks.Close(); err != nil || time.Since(start) > 3*time.Second {
					t.Errorf("Close took %s: %v", time.Since(start), err)
				}
				if left, _ := l.Available(t.Context(), "k"); left != 900 {
					t.Errorf("100 were used, and %d of 1000 are left", left)
				}
			})
		})
	}
}

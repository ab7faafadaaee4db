package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/limit"
)

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

// "Does not make a deleted limiter again": what is left of a block.
func TestLeased_DeletedStaysDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := limiting(t)
		blocks := s.Limiter("l", limit.Rate{Count: 100, Per: time.Hour}).Leased()
		for range 10 {
			if d, err := blocks.Allow(t.Context(), "k"); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		synctest.Wait()
		asked := d.forget("l")
		if err := blocks.Close(); err != nil {
			t.Fatal(err)
		}
		if d.asked == asked || len(d.rates) > 0 {
			t.Errorf("asked %d times, the limiter that was deleted is %v", d.asked-asked, d.rates)
		}
	})
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
	deny atomic.Bool // it has not the right
	gone atomic.Bool // for good
	told atomic.Int64
}

func (s *deafLimits) Limit(ctx context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	if r.Op == driver.LimitReturn {
		s.told.Add(1)
		if s.away.Load() {
			return driver.LimitReply{}, &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone}
		}
		if s.gone.Load() {
			return driver.LimitReply{}, &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone, Err: driver.ErrClosed}
		}
		if s.deny.Load() {
			return driver.LimitReply{}, &driver.Error{Kind: fs.ErrPermission, Outcome: driver.NotDone}
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
			if told := d.told.Load(); told > 31 { // once a second
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

// A backend that is closed for good is told once that something is given back, and Close does not wait for it.
func TestLeased_ClosedBackend(t *testing.T) {
	for _, idle := range []bool{false, true} {
		t.Run(fmt.Sprint("idle ", idle), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _, blocks := aThousandADay(t)
				for range 20 {
					if d, err := blocks.Allow(t.Context(), "k"); err != nil || !d.Allowed {
						t.Fatal(d, err)
					}
				}
				synctest.Wait()
				d.gone.Store(true)
				if idle {
					time.Sleep(time.Minute)
				}
				start := time.Now()
				if err := blocks.Close(); err != nil || time.Since(start) > 0 {
					t.Errorf("Close took %s: %v", time.Since(start), err)
				}
				if told := d.told.Load(); told != 1 {
					t.Errorf("it was told %d times", told)
				}
			})
		})
	}
}

// What the backend refuses to take back, because the rate is another by then, the limiter is gone, or a right is, it is told once.
func TestLeased_RefusedReturns(t *testing.T) {
	rate := limit.Rate{Count: 1000, Per: 24 * time.Hour, Algorithm: limit.FixedWindow}
	for _, said := range []limit.Rate{rate, {}} {
		for _, deny := range []bool{false, true} {
			t.Run(fmt.Sprint(said, " denied ", deny), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { leasedRefusedReturns(t, rate, said, deny) })
			})
		}
	}
}

func leasedRefusedReturns(t *testing.T, rate, said limit.Rate, deny bool) {
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
	d.deny.Store(deny)
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
		if used < 2994 || 10*d.count() > 900 {
			t.Errorf("%d of 3000 were used with %d calls", used, d.count())
		}
	})
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
			synctest.Wait() // an answer that is asked for now comes late
		}
		by.Store(0) // all but that block
		start := time.Now()
		if err := blocks.Close(); err != nil || time.Since(start) != time.Second {
			t.Fatalf("Close took %s: %v; want the answer with the block", time.Since(start), err)
		}
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

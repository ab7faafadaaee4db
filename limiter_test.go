package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/limits"
	"github.com/holdfast-io/holdfast/limit"
)

// limitDriver has limiters and nothing else.
type limitDriver struct {
	driver.Base
	mu    sync.Mutex
	rates map[string]limit.Rate
	keys  map[string]limit.State
	asked int
	epoch uint64 // how often a rate was set, or a limiter forgotten
	// silent: a request is answered when it is closed; nil: at once.
	silent chan struct{}
}

func (d *limitDriver) Info() driver.Info {
	return driver.Info{Scheme: "limits", Features: map[driver.Feature]bool{driver.FeatureLimit: true}}
}

func (d *limitDriver) Limit(_ context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	if silent := d.quiet(); silent != nil {
		<-silent
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	has, exists := d.rates[r.Name]
	rate, err := limits.Agree(has, exists, r)
	if err != nil {
		return driver.LimitReply{}, err
	}
	if r.Op != driver.LimitPeek {
		d.rates[r.Name] = rate
	}
	if r.Op == driver.LimitSetRate {
		d.epoch++
		clear(d.keys)
		return driver.LimitReply{}, nil
	}
	s, reply, _ := limits.Decide(rate, d.epoch, d.keys[r.Key], time.Now().UnixNano(), r)
	d.keys[r.Key] = s
	return reply, nil
}

// forget deletes a limiter and tells how often it was asked.
func (d *limitDriver) forget(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.rates, name)
	d.epoch++
	return d.asked
}

func (d *limitDriver) quiet() chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.silent
}

func (d *limitDriver) hush() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = make(chan struct{})
}

func limiting(t *testing.T) (*holdfast.Space, *limitDriver) {
	d := &limitDriver{rates: map[string]limit.Rate{}, keys: map[string]limit.State{}}
	s, err := holdfast.New(d)
	if err != nil {
		t.Fatal(err)
	}
	return s, d
}

func TestLimiterRefusesBadInput(t *testing.T) {
	s, d := limiting(t)
	fine := limit.Rate{Count: 5, Per: time.Second}
	for what, call := range map[string]func() error{
		"rate 0":            func() error { return allow(s.Limiter("l", limit.Rate{Per: time.Second}), "k") },
		"a negative rate":   func() error { return allow(s.Limiter("l", limit.Rate{Count: -1, Per: time.Second}), "k") },
		"no time":           func() error { return allow(s.Limiter("l", limit.Rate{Count: 1}), "k") },
		"an overflow":       func() error { return allow(s.Limiter("l", limit.Rate{Count: 1 << 62, Per: time.Second}), "k") },
		"a key of 10 MB":    func() error { return allow(s.Limiter("l", fine), strings.Repeat("k", 10<<20)) },
		"a control byte":    func() error { return allow(s.Limiter("l", fine), "a\x00b") },
		"an empty name":     func() error { return allow(s.Limiter("", fine), "k") },
		"a negative cost":   func() error { _, err := s.Limiter("l", fine).AllowN(t.Context(), "k", -1); return err },
		"a negative settle": func() error { return settleBelow(t, s.Limiter("l", fine)) },
		"a bad SetRate":     func() error { return s.Limiter("l", fine).SetRate(t.Context(), limit.Rate{}) },
		"a wait for more than there is": func() error {
			return s.Limiter("l", fine).WaitN(t.Context(), "k", 6)
		},
	} {
		if err := call(); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s is answered with %v", what, err)
		}
	}
	if d.asked != 1 { // a reservation before its settle
		t.Errorf("the backend was asked %d times", d.asked)
	}
}

func allow(l *holdfast.Limiter, key string) error {
	_, err := l.Allow(context.Background(), key)
	return err
}

func settleBelow(t *testing.T, l *holdfast.Limiter) error {
	r, err := l.Reserve(t.Context(), "k", 1)
	if err != nil {
		t.Fatal(err)
	}
	return r.Settle(t.Context(), -1)
}

// TestLimiterWaitsInOrder: of every algorithm, within a Space.
func TestLimiterWaitsInOrder(t *testing.T) {
	for a := limit.GCRA; a <= limit.SlidingLog; a++ {
		t.Run(a.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { limiterWaitsInOrder(t, a) })
		})
	}
}

func limiterWaitsInOrder(t *testing.T, a limit.Algorithm) {
	s, _ := limiting(t)
	rate := limit.Rate{Count: 1, Per: time.Minute, Algorithm: a} // no two at the same moment: those may return in any order
	if a == limit.CalendarWindow {
		rate.Per, rate.Every = 0, limit.Hour
	}
	l := s.Limiter("l", rate)
	var (
		mu    sync.Mutex
		order []int
	)
	for i := range 10 {
		go func() {
			if err := l.Wait(t.Context(), "k"); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, i)
		}()
		synctest.Wait()
	}
	time.Sleep(24 * time.Hour)
	mu.Lock()
	defer mu.Unlock()
	if got := fmt.Sprint(order); got != "[0 1 2 3 4 5 6 7 8 9]" {
		t.Errorf("the waiters were served in the order %s", got)
	}
}

// TestLimiterWaitEnds: with its context, whatever waits before it, and with the Space.
func TestLimiterWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := limiting(t)
		l := s.Limiter("l", limit.Rate{Count: 1, Per: time.Minute, Algorithm: limit.FixedWindow})
		if err := l.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		first, second, third := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { first <- l.Wait(t.Context(), "k") }()
		synctest.Wait()
		go func() { second <- l.Wait(ctx, "k") }()
		synctest.Wait()
		go func() { third <- l.Wait(t.Context(), "k") }()
		synctest.Wait()
		cancel()
		if err := <-second; !errors.Is(err, context.Canceled) || !holdfast.NotDone(err) {
			t.Errorf("a wait that was cancelled in line ends with %v", err)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		_ = s.Close()
		if err := <-third; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("the wait of a closed Space ends with %v", err)
		}
	})
}

// Callers that leave a queue leave nothing behind, also while another waits before them.
func TestLimiterWaitLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := limiting(t)
		l := s.Limiter("l", limit.Rate{Count: 1, Per: time.Hour, Algorithm: limit.FixedWindow})
		if err := l.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		go func() { _ = l.Wait(t.Context(), "k") }()
		synctest.Wait()
		before := runtime.NumGoroutine()
		for range 3000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if err := l.Wait(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || !holdfast.NotDone(err) {
				t.Fatal(err)
			}
			cancel()
		}
		synctest.Wait()
		if after := runtime.NumGoroutine(); after > before+10 {
			t.Errorf("3000 waits that ended have left %d goroutines", after-before)
		}
		_ = s.Close()
	})
}

// TestLimiterWaitTellsWhatItTook: a wait that ends after something was taken for it, or may have been, is not told to have done
// nothing; it returns at once although its backend is silent by then.
func TestLimiterWaitTellsWhatItTook(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, d := limiting(t)
			l := s.Limiter("l", limit.Rate{Count: 1, Per: time.Hour})
			if err := l.Wait(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			if silent {
				d.hush()
			}
			go func() { ended <- l.Wait(ctx, "k") }()
			if synctest.Wait(); !silent {
				d.hush()
			}
			cancel()
			at := time.Now()
			if err := <-ended; !errors.Is(err, context.Canceled) || holdfast.NotDone(err) || time.Since(at) > 0 {
				t.Errorf("silent %v: the wait ends after %s with %v", silent, time.Since(at), err)
			}
			close(d.quiet())
			synctest.Wait()
			_ = s.Close()
		})
	}
}

// slowLimits is a backend that answers after some seconds.
type slowLimits struct {
	*limitDriver
	takes time.Duration
}

func (s slowLimits) Limit(ctx context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	select {
	case <-time.After(s.takes):
		return s.limitDriver.Limit(ctx, r)
	case <-ctx.Done():
		return driver.LimitReply{}, &driver.Error{Kind: ctx.Err(), Outcome: driver.Unknown}
	}
}

// A wait lasts as long as its caller's context, whatever the backend takes to answer.
func TestWait_SlowBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := limiting(t)
		s := openOn(t, slowLimits{d, time.Minute})
		l := s.Limiter("l", limit.Rate{Count: 1, Per: time.Second})
		if err := l.Wait(t.Context(), "k"); err != nil {
			t.Errorf("a wait without a deadline: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		if err := l.Wait(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 10*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		closed := make(chan error, 1)
		go func() { closed <- l.Wait(t.Context(), "k") }()
		synctest.Wait()
		start = time.Now()
		if err := s.Close(); err != nil || time.Since(start) > 0 {
			t.Errorf("Close after %s: %v", time.Since(start), err)
		}
		if err := <-closed; !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("a wait in a Space that is closed: %v", err)
		}
	})
}

// A Settle or Cancel that is NotDone can be repeated; after any other only the first counts.
func TestReservation_SettleAgain(t *testing.T) {
	s, _ := limiting(t)
	l := s.Limiter("l", limit.Rate{Count: 100, Per: time.Hour, Algorithm: limit.FixedWindow})
	r, err := l.Reserve(t.Context(), "k", 50)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range []error{r.Cancel(gone), r.Settle(t.Context(), -1)} {
		if !holdfast.NotDone(err) {
			t.Errorf("%v", err)
		}
	}
	if err := r.Settle(t.Context(), 10); err != nil {
		t.Error(err)
	}
	if err := r.Cancel(t.Context()); err != nil {
		t.Error(err)
	}
	if left, _ := l.Available(t.Context(), "k"); left != 90 {
		t.Errorf("after 10 of 100 %d are left", left)
	}
}

// What can never be taken, or not before its context ends, fails at once, also behind others that wait.
func TestLimiter_HopelessWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := limiting(t)
		l := s.Limiter("l", limit.Rate{Count: 1, Per: time.Hour, Algorithm: limit.FixedWindow})
		if err := l.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		over := make(chan error)
		go func() { over <- l.Wait(t.Context(), "k") }()
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		err := l.Wait(ctx, "k")
		wantErr(t, err, context.DeadlineExceeded)
		if wait := holdfast.RetryAfter(err); wait < 11*time.Minute || wait > time.Hour || !holdfast.NotDone(err) {
			t.Errorf("it would be %s", wait)
		}
		wantErr(t, l.WaitN(t.Context(), "k", 2), holdfast.ErrInvalid)
		wantErr(t, l.WaitN(t.Context(), "k", -1), holdfast.ErrInvalid)
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %s", took)
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

// Where a window is used up for longer than callers have time, all of them are told so with the next answer, also
// behind one that has asked and is not answered yet, and behind a larger cost; none waits until its context ends.
func TestLimiter_HopelessTogether(t *testing.T) {
	const trip, callers = 10 * time.Millisecond, 200
	for _, first := range []time.Duration{time.Second, 2 * time.Hour} { // what the first has; it fails, or stays
		synctest.Test(t, func(t *testing.T) {
			_, d := limiting(t)
			s := openOn(t, slowLimits{d, trip})
			l := s.Limiter("l", limit.Rate{Count: 10, Per: time.Hour, Algorithm: limit.FixedWindow})
			if _, err := l.AllowN(t.Context(), "k", 10); err != nil {
				t.Fatal(err)
			}
			start, failed := time.Now(), make(chan time.Duration, callers)
			wait := func(within time.Duration, cost int64) {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				err := l.WaitN(ctx, "k", cost)
				if after := holdfast.RetryAfter(err); within == time.Second && (!errors.Is(err, context.DeadlineExceeded) || after < 50*time.Minute) {
					t.Errorf("%v; to be tried again in %s", err, after)
				}
				failed <- time.Since(start)
			}
			go wait(first, 2)
			synctest.Wait()
			for i := range callers - 1 {
				go wait(time.Second, int64(1+i%2))
			}
			var last time.Duration
			for range callers - 1 {
				last = max(last, <-failed)
			}
			if last > 3*trip {
				t.Errorf("with a first of %s the last fails after %s", first, last)
			}
			<-failed
		})
	}
}

// A larger cost that is refused says nothing of a smaller one behind it.
func TestLimiter_SmallerCostBehindRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := limiting(t)
		l := openOn(t, slowLimits{d, 10 * time.Millisecond}).Limiter("l", limit.Rate{Count: 10, Per: time.Hour, Algorithm: limit.FixedWindow})
		if _, err := l.AllowN(t.Context(), "k", 9); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		large := make(chan error)
		go func() { large <- l.WaitN(ctx, "k", 2) }()
		synctest.Wait()
		if err := l.WaitN(ctx, "k", 1); err != nil {
			t.Error(err)
		}
		wantErr(t, <-large, context.DeadlineExceeded)
	})
}

// A caller that asks the backend something before its turn keeps its place in the order of arrival: one with a deadline,
// and one that does not know the rate.
func TestLimiter_PlaceBeforeAnswers(t *testing.T) {
	rate := limit.Rate{Count: 1, Per: time.Hour, Algorithm: limit.FixedWindow}
	for _, said := range []limit.Rate{rate, {}} {
		t.Run(said.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { placeBeforeAnswers(t, rate, said) })
		})
	}
}

func placeBeforeAnswers(t *testing.T, rate, said limit.Rate) {
	_, d := limiting(t)
	by := &atomic.Int64{}
	s := openOn(t, lateLimits{d, by})
	if err := s.Limiter("l", rate).Wait(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	l, served := s.Limiter("l", said), make(chan string, 3)
	wait := func(ctx context.Context, name string, takes time.Duration) {
		by.Store(int64(takes))
		go func() {
			if err := l.Wait(ctx, "k"); err != nil {
				t.Error(name, err)
			}
			served <- name
		}()
		synctest.Wait()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
	defer cancel()
	wait(t.Context(), "a", 0)
	wait(ctx, "b", time.Second)
	wait(t.Context(), "c", 0)
	if got := <-served + <-served + <-served; got != "abc" {
		t.Errorf("with the rate %v they are served in the order %s", said, got)
	}
}

// Callers of a window do not ask one after the other: as many as find room go on together, with the first
// answer that tells so, and in order.
func TestLimiter_TogetherByRoom(t *testing.T) {
	const trip, callers = 10 * time.Millisecond, 200
	for _, used := range []int64{0, 200} {
		synctest.Test(t, func(t *testing.T) {
			_, d := limiting(t)
			s := openOn(t, slowLimits{d, trip})
			l := s.Limiter("l", limit.Rate{Count: callers, Per: time.Hour, Algorithm: limit.FixedWindow})
			if _, err := l.AllowN(t.Context(), "k", used); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
			defer cancel()
			served := make(chan time.Time, callers)
			for range callers {
				go func() {
					if err := l.Wait(ctx, "k"); err != nil {
						t.Error(err)
					}
					served <- time.Now()
				}()
				synctest.Wait()
			}
			first, after := <-served, time.Duration(0)
			for range callers - 1 {
				after = max(after, (<-served).Sub(first))
			}
			if after > trip {
				t.Errorf("with %d used the last is served %s after the first", used, after)
			}
		})
	}
}

// Where another program takes what was left meanwhile, those that asked together wait in order again.
func TestLimiter_TogetherRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 10 * time.Millisecond
		_, d := limiting(t)
		s, other := openOn(t, slowLimits{d, trip}), openOn(t, d)
		rate := limit.Rate{Count: 4, Per: time.Hour, Algorithm: limit.FixedWindow}
		l, served := s.Limiter("l", rate), make(chan int, 4)
		for i, cost := range []int64{1, 1, 2, 4} { // in the next window there is room for the first two of those that are refused
			go func() {
				if err := l.WaitN(t.Context(), "k", cost); err != nil {
					t.Error(err)
				}
				served <- i
			}()
			synctest.Wait()
		}
		if i := <-served; i != 0 {
			t.Fatalf("%d is served first", i)
		}
		synctest.Wait() // two of the others are on their way
		if d, err := other.Limiter("l", rate).AllowN(t.Context(), "k", 3); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		before := d.count()
		time.Sleep(time.Second) // not long enough for a look
		if more := d.count() - before; more != 2 {
			t.Errorf("%d have asked; want those for which there was room", more)
		}
		if got := []int{<-served, <-served, <-served}; !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("then they are served in the order %v", got)
		}
	})
}

// Callers that have their turn are not looked at whenever one leaves: that would take as much time as there are pairs
// of them.
func TestLimiter_TogetherManyCallers(t *testing.T) {
	if holdfast.TurnsLookAgain(100) {
		t.Error("one that leaves looks at others that have their turn")
	}
}

// Nor are those that wait looked at whenever one that has its turn is refused as another was before.
func TestLimiter_RefusedManyCallers(t *testing.T) {
	if holdfast.TurnsTellAgain(100) {
		t.Error("one that is refused looks at others that were told so already")
	}
}

func TestLimiter_LateTold(t *testing.T) {
	if !holdfast.TurnsTellLate() {
		t.Error("a caller that came after others were told of a refusal is not")
	}
}

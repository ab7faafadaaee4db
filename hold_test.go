package holdfast_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/bridge"
)

// wantErr checks the kind of an error.
func wantErr(t testing.TB, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("error is %v, want %v", err, kind)
	}
}

func acquire(t testing.TB, m *holdfast.Mutex) *holdfast.Hold {
	t.Helper()
	h, err := m.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Promise: "Err (nil exactly while it lasts, compares the clock; afterwards
// ErrReleased or ErrLost)".
func TestHold_Err_AfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		h := acquire(t, s.Mutex("a"))
		if err := h.Err(); err != nil {
			t.Fatalf("Err of a live hold: %v", err)
		}
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, h.Err(), holdfast.ErrReleased)
		select {
		case <-h.Done():
		default:
			t.Error("Done is open after Release")
		}
	})
}

// Scenario 23: `if h.Err() == nil { write }` with the next holder granted must
// not write, not even while Release is still on its way.
func TestHold_Err_BeforeTheNextIsGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		h := acquire(t, s.Mutex("a"))
		ctx := h.Bind(t.Context())
		toy.onRelease = func(context.Context, string) error {
			wantErr(t, h.Err(), holdfast.ErrReleased)
			wantErr(t, context.Cause(ctx), holdfast.ErrReleased)
			return nil
		}
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestHold_SessionEnd(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 30 * time.Second, 24 * time.Hour} {
		t.Run(ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, toy := open(t)
				h := acquire(t, s.Mutex("a", holdfast.TTL(ttl)))
				ctx := h.Bind(t.Context())
				defer toy.Stall()()
				d, ok := h.Deadline()
				if left := driver.Until(d); !ok || left <= 0 || left >= ttl {
					t.Fatalf("deadline in %s, %t; want within the TTL of %s", left, ok, ttl)
				}
				time.Sleep(driver.Until(d) - 1)
				if err := h.Err(); err != nil {
					t.Errorf("a nanosecond before the deadline: %v", err)
				}
				time.Sleep(time.Nanosecond)
				wantErr(t, h.Err(), holdfast.ErrLost)
				wantErr(t, ctx.Err(), context.Canceled)
				wantErr(t, context.Cause(ctx), holdfast.ErrLost)
				<-h.Done()
				wantErr(t, h.Release(), holdfast.ErrLost)
				wantErr(t, h.Err(), holdfast.ErrLost)
			})
		})
	}
}

func TestHold_RenewedByTheLibraryGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, holdfast.TTL(3*time.Second))
		h := acquire(t, s.Mutex("a"))
		time.Sleep(time.Hour)
		if err := h.Err(); err != nil {
			t.Fatal(err)
		}
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestHold_MaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		h := acquire(t, s.Mutex("a", holdfast.MaxHold(time.Minute)))
		if d, ok := h.Deadline(); !ok || driver.Until(d) > time.Minute {
			t.Errorf("Deadline is %v, %t", d, ok)
		}
		time.Sleep(50 * time.Second)
		if err := h.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - 1)
		if err := h.Err(); err != nil {
			t.Fatalf("a nanosecond before the end: %v", err)
		}
		synctest.Wait()
		select {
		case <-h.Done():
			t.Fatal("Done before the end")
		default:
		}
		<-h.Done()
		if d, _ := h.Deadline(); driver.Until(d) != 0 {
			t.Errorf("Done %s after the end", -driver.Until(d))
		}
		wantErr(t, h.Err(), holdfast.ErrLost)
		wantErr(t, h.Extend(t.Context(), time.Minute), holdfast.ErrLost)
		if toy.holders("a") != 1 {
			t.Error("the toy ends a hold only when it is confirmed")
		}
		wantErr(t, h.Release(), holdfast.ErrLost)
		if toy.holders("a") != 0 {
			t.Error("Release of a lost hold did not confirm it to the backend")
		}
	})
}

func TestHold_MaxHold_NotExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		start := time.Now()
		h := acquire(t, s.Mutex("a", holdfast.MaxHold(time.Minute)))
		<-h.Done()
		if held := time.Since(start); held != time.Minute {
			t.Errorf("held for %s", held)
		}
	})
}

// An extension that is answered when the time is over, at the same instant as
// the timer, changes nothing, whichever runs first.
func TestHold_Extend_TooLate(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s, toy := open(t)
			h := acquire(t, s.Mutex("a", holdfast.MaxHold(time.Minute)))
			toy.onChange = func(driver.Change) { time.Sleep(time.Minute) }
			wantErr(t, h.Extend(t.Context(), time.Hour), holdfast.ErrLost)
			wantErr(t, h.Err(), holdfast.ErrLost)
		})
	}
}

func TestHold_Extend_OnlyForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		h := acquire(t, s.Mutex("a", holdfast.MaxHold(time.Hour), holdfast.TTL(24*time.Hour)))
		before, _ := h.Deadline()
		if err := h.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		if after, _ := h.Deadline(); !after.Equal(before) {
			t.Errorf("the deadline moved back by %s", before.Sub(after))
		}
	})
}

func TestHold_Extend_OnlyOfMaxHold(t *testing.T) {
	s, _ := open(t)
	h := acquire(t, s.Mutex("a"))
	wantInvalid(t, h.Extend(t.Context(), time.Minute), "no MaxHold")
	m := acquire(t, s.Mutex("b", holdfast.MaxHold(time.Minute)))
	wantInvalid(t, m.Extend(t.Context(), -1), "out of range")
	wantInvalid(t, h.Renew(t.Context(), 0), "ManualRenew")
}

func TestHold_ManualRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t, holdfast.TTL(10*time.Second))
		m := s.Mutex("a", holdfast.ManualRenew())
		h := acquire(t, m)
		time.Sleep(5 * time.Second)
		if err := h.Renew(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second)
		if err := h.Renew(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		far, _ := h.Deadline()
		if err := h.Renew(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		if d, _ := h.Deadline(); !d.Equal(far) {
			t.Errorf("a shorter Renew moved the deadline from %v to %v", far, d)
		}
		wantInvalid(t, h.Renew(t.Context(), 25*time.Hour), "out of range")
		time.Sleep(time.Minute)
		wantErr(t, h.Err(), holdfast.ErrLost)
		wantErr(t, h.Renew(t.Context(), 0), holdfast.ErrLost)

		other := acquire(t, m)
		if err := other.Release(); err != nil {
			t.Fatal(err)
		}
		if n := toy.called("end session"); n != 1 {
			t.Errorf("%d sessions were ended, want the released one", n)
		}
	})
}

// A wait may be longer than the TTL; the hold then begins with most of it.
func TestHold_ManualRenew_LongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t, holdfast.TTL(10*time.Second))
		first := acquire(t, s.Mutex("a"))
		// Just before the wait's session would be kept for the 300th time.
		time.AfterFunc(999900*time.Millisecond, func() { _ = first.Release() })
		h := acquire(t, s.Mutex("a", holdfast.ManualRenew()))
		if d, _ := h.Deadline(); driver.Until(d) < 7*time.Second {
			t.Errorf("only %s are left after the wait", driver.Until(d))
		}
		kept := toy.called("keep session")
		time.Sleep(time.Minute)
		if n := toy.called("keep session"); n != kept {
			t.Errorf("somebody renewed %d times after the grant", n-kept)
		}
		wantErr(t, h.Err(), holdfast.ErrLost)
	})
}

// A wait with a session of its own that is given up leaves nothing behind.
func TestHold_ManualRenew_CancelledWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		first := acquire(t, s.Mutex("a"))
		defer first.Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Mutex("a", holdfast.ManualRenew()).Acquire(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		synctest.Wait()
		if n := toy.called("end session"); n != 1 {
			t.Errorf("%d sessions were ended, want 1", n)
		}
	})
}

func TestHold_Bind(t *testing.T) {
	type key struct{}
	parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, 7))
	s, _ := open(t)
	h := acquire(t, s.Mutex("a"))
	ctx := h.Bind(parent)
	child, stop := context.WithCancel(ctx)
	defer stop()
	if ctx.Value(key{}) != 7 || ctx.Err() != nil {
		t.Fatal("a bound context lost its parent's values, or has ended")
	}
	own := errors.New("own")
	cancel(own)
	wantErr(t, context.Cause(child), own)
	if err := h.Err(); err != nil {
		t.Errorf("the parent's end ended the hold: %v", err)
	}
	other := h.Bind(t.Context())
	_ = h.Release()
	wantErr(t, context.Cause(other), holdfast.ErrReleased)
	late := h.Bind(t.Context())
	wantErr(t, late.Err(), context.Canceled)
	wantErr(t, context.Cause(late), holdfast.ErrReleased)
}

// Whoever sees that the hold is over finds everything bound to it ended: else a
// Release could let the next holder in while work under the old one goes on.
func TestHold_LossIsWhole(t *testing.T) {
	s, _ := open(t)
	for range 20 {
		h := acquire(t, s.Mutex("a"))
		var ctxs []context.Context
		for range 1000 {
			ctxs = append(ctxs, h.Bind(t.Context()))
		}
		go bridge.Lose(h, errors.New("forced"))
		for h.Err() == nil {
			runtime.Gosched()
		}
		for i := range ctxs {
			if ctxs[len(ctxs)-1-i].Err() == nil {
				t.Fatal("a bound context goes on after Err told of the loss")
			}
		}
		_ = h.Release()
	}
}

// Promise: "Bind (one result; starts no goroutine)". Everything in a bubble
// that has a goroutine left makes synctest fail; here none may even start.
func TestHold_Bind_NoGoroutine(t *testing.T) {
	s, _ := open(t)
	h := acquire(t, s.Mutex("a"))
	before := goroutines()
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 100 {
		child, stop := context.WithTimeout(h.Bind(parent), time.Hour)
		defer stop()
		_ = child
	}
	for end := time.Now().Add(30 * time.Second); goroutines() > before; runtime.Gosched() { // others, as of the runtime, end soon
		if time.Now().After(end) {
			t.Fatalf("100 Binds started %d goroutines", goroutines()-before)
		}
	}
}

// A leader that binds every request keeps only the open ones.
func TestHold_Bind_ForgetsEndedParents(t *testing.T) {
	s, _ := open(t)
	h := acquire(t, s.Mutex("a"))
	open := h.Bind(t.Context())
	before := heapObjects()
	for range 100_000 {
		parent, cancel := context.WithCancel(t.Context())
		h.Bind(parent)
		cancel()
	}
	if grown := heapObjects() - before; grown > 10_000 {
		t.Errorf("100,000 ended Binds left %d objects", grown)
	}
	_ = h.Release()
	wantErr(t, context.Cause(open), holdfast.ErrReleased)
}

// A hold that others have joined and left keeps nothing of them.
func TestReentrant_ForgetsWhatHasLeft(t *testing.T) {
	s, toy := open(t)
	m := s.Mutex("a", holdfast.Reentrant())
	h := acquire(t, m)
	ctx := h.Bind(t.Context())
	join := func() *holdfast.Hold {
		j, err := m.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	first, last := join(), join()
	before := heapObjects()
	for range 100_000 {
		_ = join().Release()
	}
	if grown := heapObjects() - before; grown > 10_000 {
		t.Errorf("100,000 holds that joined left %d objects", grown)
	}
	_ = first.Release()
	_ = h.Release()
	if last.Err() != nil || toy.holders("a") != 1 {
		t.Errorf("the last of three: %v, %d holders", last.Err(), toy.holders("a"))
	}
	_ = last.Release()
	if toy.holders("a") != 0 {
		t.Error("still held")
	}
}

func TestHold_Release_Twice(t *testing.T) {
	s, toy := open(t)
	first := errors.New("first")
	toy.onRelease = func(context.Context, string) error { return first }
	h := acquire(t, s.Mutex("a"))
	wantErr(t, h.Release(), first)
	toy.onRelease = nil
	wantErr(t, h.Release(), first)
	var none *holdfast.Hold
	if err := none.Release(); err != nil {
		t.Errorf("Release of a nil Hold: %v", err)
	}
}

// A stale Release never frees what another holds.
func TestHold_Release_NeverAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t, holdfast.TTL(time.Second))
		resume := toy.Stall()
		old := acquire(t, s.Mutex("a"))
		time.Sleep(time.Second)
		resume()
		next := acquire(t, s.Mutex("a"))
		wantErr(t, old.Release(), holdfast.ErrLost)
		if err := next.Err(); err != nil || toy.holders("a") != 1 {
			t.Errorf("the next holder: %v, %d holders", err, toy.holders("a"))
		}
		if next.Token() <= old.Token() {
			t.Errorf("token %d after %d", next.Token(), old.Token())
		}
	})
}

func TestHold_Release_ManyAtOnce(t *testing.T) {
	s, toy := open(t)
	h := acquire(t, s.Mutex("a"))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if err := h.Release(); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() { _ = h.Err(); _ = h.Done(); _ = h.Bind(t.Context()).Err() })
	}
	wg.Wait()
	if n := toy.called("release"); n != 1 {
		t.Errorf("the backend was told %d times", n)
	}
}

// A hold that the backend took back before Acquire returned is no hold.
func TestHold_LostBeforeItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		toy.onAcquire = func(_ context.Context, r *driver.Request) error {
			r.Lost(errors.New("forced"))
			return nil
		}
		_, err := s.Mutex("a").Acquire(t.Context())
		wantErr(t, err, holdfast.ErrLost)
		synctest.Wait()
		if toy.holders("a") != 0 {
			t.Error("what was granted was not given back")
		}
		toy.onAcquire = nil
		if err := s.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown waits for a hold that never was: %v", err)
		}
	})
}

func TestHold_LogValue(t *testing.T) {
	s, _ := open(t)
	h := acquire(t, s.Mutex("a"))
	var b strings.Builder
	log := slog.New(slog.NewTextHandler(&b, nil))
	log.Info("x", "hold", h)
	if !strings.Contains(b.String(), "hold.name=a hold.token=") {
		t.Errorf("logged %s", b.String())
	}
	b.Reset()
	var none *holdfast.Hold
	log.Info("x", "hold", none)
	if !strings.Contains(b.String(), "hold=none") {
		t.Errorf("logged %s", b.String())
	}
}

// Scenario 26: a token is taken by database/sql and JSON as it is.
func TestHold_TokenTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		toy.rev = 1 << 53
		_, err := s.Mutex("a").Acquire(t.Context())
		if err == nil || !strings.Contains(err.Error(), "2⁵³") {
			t.Errorf("a token that SQL cannot take gave %v", err)
		}
		synctest.Wait()
		if toy.holders("a") != 0 {
			t.Error("what was granted was not given back")
		}
	})
}

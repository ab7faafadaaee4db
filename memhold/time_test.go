package memhold_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/bridge"
	"github.com/holdfast-io/holdfast/memhold"
)

var ttls = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, time.Hour, 24 * time.Hour}

// forTTLs runs f under fake time for every TTL, with two clients of one memory.
func forTTLs(t *testing.T, f func(t *testing.T, a, b *holdfast.Space, ttl time.Duration)) {
	for _, ttl := range ttls {
		t.Run(ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := open(t, holdfast.TTL(ttl)), open(t, holdfast.TTL(ttl))
				f(t, a, b, ttl)
			})
		})
	}
}

// open opens a client of the test's memory.
func open(t *testing.T, opts ...holdfast.Option) *holdfast.Space {
	t.Helper()
	s, err := holdfast.Open(t.Context(), "mem://"+t.Name(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func stall(s *holdfast.Space) (resume func()) { return bridge.Driver(s).(bridge.Staller).Stall() }

func acquire(t *testing.T, m *holdfast.Mutex) *holdfast.Hold {
	t.Helper()
	h, err := m.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A hold lasts as long as its program lives, however short its TTL.
func TestKeepaliveKeeps(t *testing.T) {
	forTTLs(t, func(t *testing.T, a, b *holdfast.Space, ttl time.Duration) {
		h := acquire(t, a.Mutex("m"))
		for range 20 {
			time.Sleep(ttl / 3)
			if err := h.Err(); err != nil {
				t.Fatal(err)
			}
			if d, ok := h.Deadline(); !ok || driver.Until(d) < ttl/2 {
				t.Fatalf("only %s left of %s", driver.Until(d), ttl)
			}
		}
		if _, err := b.Mutex("m").TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatalf("the mutex is not held: %v", err)
		}
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
	})
}

// A stalled holder learns of its loss at its deadline, to the nanosecond, and
// the next waiter is granted after that, at the end of the TTL, never before.
func TestStallLosesAtTheDeadline(t *testing.T) {
	forTTLs(t, func(t *testing.T, a, b *holdfast.Space, ttl time.Duration) {
		h := acquire(t, a.Mutex("m"))
		time.Sleep(5 * ttl)
		resume := stall(a)
		deadline, _ := h.Deadline()
		granted := make(chan time.Time, 1)
		go func() {
			next, err := b.Mutex("m").Acquire(t.Context())
			granted <- time.Now()
			if err == nil {
				err = next.Release()
			}
			if err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(time.Until(deadline) - 1)
		if err := h.Err(); err != nil {
			t.Fatalf("lost before its deadline: %v", err)
		}
		<-h.Done()
		if now := time.Now(); !now.Equal(deadline) || !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Fatalf("done at %s, deadline %s, %v", now, deadline, h.Err())
		}
		at := <-granted
		if lead := at.Sub(deadline); lead <= 0 || lead > ttl*5/100+100*time.Millisecond {
			t.Fatalf("the next was granted %s after the loss", lead)
		}
		resume()
		if err := h.Release(); !errors.Is(err, holdfast.ErrLost) {
			t.Fatalf("release of a lost hold: %v", err)
		}
		if err := acquire(t, a.Mutex("m")).Release(); err != nil {
			t.Fatalf("the program cannot go on: %v", err)
		}
	})
}

// A stall shorter than what is left loses nothing, whatever happens meanwhile.
func TestShortStallLosesNothing(t *testing.T) {
	forTTLs(t, func(t *testing.T, a, b *holdfast.Space, ttl time.Duration) {
		h := acquire(t, a.Mutex("m"))
		waiting := acquireLater(t, a.Mutex("n"), acquire(t, b.Mutex("n")))
		resume := stall(a)
		time.Sleep(ttl / 2)
		waiting.release()
		time.Sleep(ttl / 10)
		select {
		case <-waiting.granted:
			t.Fatal("a grant reached a stalled client")
		default:
		}
		resume()
		<-waiting.granted
		time.Sleep(3 * ttl)
		if err := h.Err(); err != nil {
			t.Fatal(err)
		}
	})
}

// waiter waits for what another hold has.
type waiter struct {
	release func()
	granted chan *holdfast.Hold
}

func acquireLater(t *testing.T, m *holdfast.Mutex, held *holdfast.Hold) *waiter {
	w := &waiter{granted: make(chan *holdfast.Hold, 1)}
	w.release = func() {
		if err := held.Release(); err != nil {
			t.Error(err)
		}
	}
	go func() {
		h, err := m.Acquire(t.Context())
		if err != nil {
			t.Error(err)
		}
		w.granted <- h
	}()
	synctest.Wait()
	return w
}

// While a client is stalled its calls are unanswered, and answered exactly once
// when it goes on.
func TestCallsSurviveAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, holdfast.TTL(10*time.Second))
		c := s.Counter("n")
		if _, err := c.Add(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		resume := stall(s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a stalled client was answered: %v", err)
		}
		done := make(chan int64)
		go func() {
			n, err := c.Add(t.Context(), 1)
			if err != nil {
				t.Error(err)
			}
			done <- n
		}()
		time.Sleep(5 * time.Second)
		resume()
		resume()
		if n := <-done; n != 2 || s.Ping(t.Context()) != nil {
			t.Fatalf("the counter is %d", n)
		}
	})
}

// A call that was never sent before its session died goes to the next session.
func TestCallsSurviveADeadSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		if _, err := s.Counter("n").Add(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		resume := stall(s)
		time.Sleep(time.Minute)
		time.AfterFunc(time.Minute, resume)
		n, err := s.Counter("n").Add(t.Context(), 1)
		if err != nil || n != 2 {
			t.Fatalf("%d, %v", n, err)
		}
	})
}

// Release of a stalled client blocks for five seconds at most and goes on in the
// background.
func TestReleaseOfAStalledClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open(t), open(t)
		h := acquire(t, a.Mutex("m"))
		resume := stall(a)
		start := time.Now()
		if err := h.Release(); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Fatalf("blocked for %s", took)
		}
		resume()
		synctest.Wait()
		if _, err := b.Mutex("m").TryAcquire(t.Context()); err != nil {
			t.Fatalf("not released in the background: %v", err)
		}
	})
}

// The end of a stalled session is told to Hooks.Fault.
func TestLostSessionIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var faults []error
		s := open(t, holdfast.TTL(time.Second), holdfast.Hooks{Fault: func(op, name string, err error) { faults = append(faults, err) }})
		acquire(t, s.Mutex("m"))
		defer stall(s)()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(faults) != 1 || !errors.Is(faults[0], holdfast.ErrLost) {
			t.Fatalf("faults %v", faults)
		}
	})
}

// Scenario 32 with the longest TTL: a grant pushed hours after the last
// keepalive has nearly all of its MaxHold.
func TestMaxHoldOfAPushedGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		day := holdfast.TTL(24 * time.Hour)
		a, b := open(t, day), open(t, day)
		first := acquire(t, a.Mutex("m"))
		time.AfterFunc(7*time.Hour, func() { _ = first.Release() })
		h := acquire(t, b.Mutex("m", holdfast.MaxHold(time.Minute)))
		d, ok := h.Deadline()
		if left := driver.Until(d); !ok || left < 55*time.Second || left > time.Minute {
			t.Fatalf("%s left of a minute", left)
		}
		<-h.Done()
		if late := driver.Until(d); late > 0 {
			t.Fatalf("lost %s before its deadline", late)
		}
		if _, err := a.Mutex("m").Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if time.Now().Before(d) {
			t.Fatal("granted to the next before the holder's deadline")
		}
	})
}

// Sessions kept by hand end after their TTL unless they are kept, and Keep only
// moves forward.
func TestSessionByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		sess, err := s.Session(t.Context(), holdfast.TTL(10*time.Second), holdfast.ManualRenew())
		if err != nil {
			t.Fatal(err)
		}
		h := acquire(t, s.Mutex("m", holdfast.Under(sess)))
		for range 5 {
			time.Sleep(8 * time.Second)
			if err := sess.Keep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if !errors.Is(h.Err(), holdfast.ErrLost) || !errors.Is(sess.Err(), holdfast.ErrLost) {
			t.Fatalf("hold %v, session %v", h.Err(), sess.Err())
		}
		if err := sess.Keep(t.Context()); !errors.Is(err, holdfast.ErrLost) {
			t.Fatalf("a dead session was kept: %v", err)
		}
	})
}

// Opening a session on a stalled client waits, and gives up with its context
// without leaving anything behind.
func TestOpenSessionWhileStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		resume := stall(s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Session(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		time.AfterFunc(time.Second, resume)
		if _, err := s.Session(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// Closing leaves nothing behind, not even of a stalled client: synctest fails if
// a goroutine is left.
func TestNothingIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhold.Open(holdfast.TTL(24 * time.Hour))
		acquire(t, s.Mutex("m"))
		acquire(t, s.Mutex("x", holdfast.MaxHold(time.Hour)))
		if _, err := s.Counter("n").Add(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		go func() {
			for _, err := range s.Watch(context.Background(), "", 0) {
				if err != nil {
					return
				}
			}
		}()
		time.Sleep(10 * 24 * time.Hour)
		stall(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * 24 * time.Hour)
	})
}

// The holder knows of the end of its MaxHold before the memory does. Giving back
// what was lost does not spare the others the Delay.
func TestReleaseAfterMaxHoldKeepsTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open(t), open(t)
		start := time.Now()
		h := acquire(t, a.Mutex("m", holdfast.MaxHold(10*time.Second), holdfast.Delay(10*time.Second)))
		<-h.Done()
		if err := h.Release(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v", err)
		}
		acquire(t, b.Mutex("m"))
		if d := time.Since(start); d < 20*time.Second {
			t.Errorf("granted after %s, want 20 s", d)
		}
	})
}

// A hook that is told of a loss may use the Space, whatever the loss has locked.
func TestHookOfALossUsesTheSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a *holdfast.Space
		var next []*holdfast.Hold
		a = open(t, holdfast.Hooks{End: func(h *holdfast.Hold, _ time.Duration, err error) {
			if errors.Is(h.Err(), holdfast.ErrLost) && !errors.Is(err, holdfast.ErrClosed) {
				next = append(next, acquire(t, a.Mutex(h.Name())))
			}
		}})
		for _, name := range []string{"a", "b"} {
			acquire(t, a.Mutex(name, holdfast.MaxHold(time.Second)))
			acquire(t, a.Mutex(name+"2", holdfast.TTL(2*time.Second)))
		}
		resume := stall(a)
		time.Sleep(10 * time.Second)
		resume()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(next) != 4 {
			t.Errorf("%d hooks went on, want 4", len(next))
		}
	})
}

// A session with a policy that keeps its names ends with its keys ten minutes after the last
// of them was freed, not before that and not later.
func TestKeptSessionEndsOnceItsNamesAreFreed(t *testing.T) {
	for name, policy := range map[string]holdfast.LivenessOption{"never": holdfast.ReclaimNever(), "demand": holdfast.ReclaimOnDemand(time.Second)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, a, b := t.Context(), open(t), open(t)
				ses, err := a.Session(ctx, holdfast.TTL(10*time.Second), holdfast.ManualRenew(), policy)
				if err != nil {
					t.Fatal(err)
				}
				h, err := a.Mutex("m", holdfast.Under(ses)).Acquire(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := a.KV().Put(ctx, "k", []byte("v"), holdfast.Under(ses)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				if _, err := b.ForceRelease(ctx, "m", h.Token()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10*time.Minute - time.Second)
				if _, err := b.KV().Get(ctx, "k"); err != nil {
					t.Errorf("the key ended before its session: %v", err)
				}
				time.Sleep(2 * time.Second)
				if _, err := b.KV().Get(ctx, "k"); !errors.Is(err, holdfast.ErrNotFound) {
					t.Errorf("ten minutes after its last name was freed the session still keeps its key: %v", err)
				}
			})
		})
	}
}

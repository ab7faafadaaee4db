package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/bridge"
)

func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var log []string
		hook := func(who string) holdfast.Hooks {
			return holdfast.Hooks{
				Acquire: func(ctx context.Context, name string) (context.Context, func(*holdfast.Hold, error)) {
					log = append(log, who+" begins "+name)
					return context.WithValue(ctx, key{}, who), func(h *holdfast.Hold, err error) {
						log = append(log, fmt.Sprintf("%s got %t %t", who, h != nil, err != nil))
					}
				},
				End: func(h *holdfast.Hold, held time.Duration, err error) {
					log = append(log, fmt.Sprintf("%s end of %s after %s: %v", who, h.Name(), held, err))
				},
			}
		}
		s, _ := open(t, hook("1"), holdfast.Hooks{}, hook("2"))
		h := acquire(t, s.Mutex("a"))
		_, err := s.Mutex("a").TryAcquire(t.Context())
		wantErr(t, err, holdfast.ErrHeld)
		time.Sleep(time.Minute)
		_ = h.Release()
		lost := acquire(t, s.Mutex("b"))
		bridge.Lose(lost, errors.New("forced"))
		_ = lost.Release()
		synctest.Wait() // losses are told beside
		want := []string{
			"1 begins a", "2 begins a", "2 got true false", "1 got true false",
			"1 begins a", "2 begins a", "2 got false true", "1 got false true",
			`1 end of a after 1m0s: holdfast: hold "a": released`, `2 end of a after 1m0s: holdfast: hold "a": released`,
			"1 begins b", "2 begins b", "2 got true false", "1 got true false",
			`1 end of b after 0s: holdfast: hold "b": lost: forced`, `2 end of b after 0s: holdfast: hold "b": lost: forced`,
		}
		if !slices.Equal(log, want) {
			t.Errorf("got\n%q\nwant\n%q", log, want)
		}
	})
}

// Losses are told one after the other, with how long the holds lasted, however long
// a hook takes. Close waits for them, though not for a hook that closes.
func TestHooks_LossesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *holdfast.Space
		var log []string
		s, _ = open(t, holdfast.Hooks{End: func(h *holdfast.Hold, held time.Duration, _ error) {
			time.Sleep(time.Second)
			log = append(log, fmt.Sprint(h.Name(), " ", held))
			if h.Name() == "c" {
				_ = s.Close()
			}
		}})
		var holds []*holdfast.Hold
		for _, name := range []string{"a", "b", "c"} {
			holds = append(holds, acquire(t, s.Mutex(name)))
		}
		time.Sleep(time.Minute)
		for _, h := range holds {
			bridge.Lose(h, errors.New("forced"))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s.Ping(t.Context()) == nil {
			t.Error("the hook could not close the Space")
		}
		if want := []string{"a 1m0s", "b 1m0s", "c 1m0s"}; !slices.Equal(log, want) {
			t.Errorf("told %q, want %q", log, want)
		}
	})
}

// A grant that comes when the Space takes no more was never a hold: no hook is told
// of its end.
func TestHooks_NoEndWithoutAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends []error
		s, _ := open(t, holdfast.Hooks{End: func(_ *holdfast.Hold, _ time.Duration, err error) { ends = append(ends, err) }})
		h := acquire(t, s.Mutex("a"))
		late := make(chan error)
		go func() { _, err := s.Mutex("a").Acquire(t.Context()); late <- err }()
		synctest.Wait()
		go func() { _ = s.Shutdown(t.Context()) }()
		synctest.Wait()
		if err := h.Release(); err != nil {
			t.Error(err)
		}
		wantErr(t, <-late, holdfast.ErrClosed)
		synctest.Wait()
		if len(ends) != 1 || !errors.Is(ends[0], holdfast.ErrReleased) {
			t.Errorf("the hook was told of %v, want one release", ends)
		}
	})
}

func TestHooks_ToldBeforeClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		s, _ := open(t, holdfast.Hooks{End: func(*holdfast.Hold, time.Duration, error) {
			time.Sleep(time.Second)
			told++
		}})
		for _, name := range []string{"a", "b", "c"} {
			acquire(t, s.Mutex(name))
		}
		if err := s.Close(); err != nil || told != 3 {
			t.Errorf("Close: %v; %d of 3 ends were told before", err, told)
		}
	})
}

// What an Acquire hook puts into the context reaches the driver.
func TestHooks_ContextGoesOn(t *testing.T) {
	type key struct{}
	s, toy := open(t, holdfast.Hooks{Acquire: func(ctx context.Context, _ string) (context.Context, func(*holdfast.Hold, error)) {
		return context.WithValue(ctx, key{}, 7), nil
	}})
	toy.onAcquire = func(ctx context.Context, _ *driver.Request) error {
		if ctx.Value(key{}) != 7 {
			t.Error("the driver got another context")
		}
		return nil
	}
	_ = acquire(t, s.Mutex("a")).Release()
}

// An Acquire hook that returns no context leaves the one that it was given, for the next hook and the driver.
func TestHooks_NilContext(t *testing.T) {
	type key struct{}
	none := holdfast.Hooks{Acquire: func(context.Context, string) (context.Context, func(*holdfast.Hold, error)) { return nil, nil }}
	s, toy := open(t, none, none)
	toy.onAcquire = func(ctx context.Context, _ *driver.Request) error {
		if ctx == nil || ctx.Value(key{}) != 7 {
			t.Error("the driver got another context")
		}
		return nil
	}
	h, err := s.Mutex("a").Acquire(context.WithValue(t.Context(), key{}, 7))
	if err != nil {
		t.Fatal(err)
	}
	_ = h.Release()
}

// What a driver reports in the background reaches Fault.
func TestHooks_DriverFault(t *testing.T) {
	var f faults
	_, toy := open(t, f.hook())
	broken := errors.New("broken")
	toy.fault("keep session", "x", broken)
	if errs := f.all(); len(errs) != 1 || errs[0] != broken {
		t.Errorf("told %v", errs)
	}
	_, silent := open(t)
	silent.fault("keep session", "x", broken) // nobody listens, and nothing breaks
}

// leaves calls f in a goroutine of its own, which f does not return to, and returns after that ended.
func leaves(t *testing.T, f func()) {
	t.Helper()
	returned, over := false, make(chan struct{})
	go func() {
		defer close(over)
		defer func() { _ = recover() }()
		f()
		returned = true
	}()
	if <-over; returned {
		t.Error("a function that leaves the goroutine did not leave the call")
	}
}

// What a call that a hook or OnWait's function left was granted is given back, with all that was made for it,
// and the hooks are told of it.
func TestLeftCalls(t *testing.T) {
	for what, leave := range map[string]func(){"panic": func() { panic("left") }, "exit": runtime.Goexit} {
		t.Run(what, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testLeftCalls(t, leave) }) })
	}
}

func testLeftCalls(t *testing.T, leave func()) {
	var told error
	var ends bool
	s, toy := open(t, holdfast.Hooks{
		Acquire: func(ctx context.Context, _ string) (context.Context, func(*holdfast.Hold, error)) {
			return ctx, func(_ *holdfast.Hold, err error) { told = err }
		},
		End: func(*holdfast.Hold, time.Duration, error) {
			if ends {
				leave()
			}
		},
	})
	h := acquire(t, s.Mutex("a"))
	byHand := s.Mutex("a", holdfast.ManualRenew(), holdfast.OnWait(func(int) {
		_ = h.Release() // so that it is granted meanwhile
		synctest.Wait()
		leave()
	}))
	leaves(t, func() { _, _ = byHand.Acquire(t.Context()) })
	wantErr(t, told, context.Canceled)
	if !holdfast.NotDone(told) {
		t.Errorf("NotDone is false for %v", told)
	}
	synctest.Wait()
	if n := toy.manualSessions(); n != 0 {
		t.Errorf("%d sessions are left of an Acquire that took nothing", n)
	}
	_ = acquire(t, s.Mutex("a")).Release()

	reader, err := s.RWMutex("rw").Reader().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ends = true
	leaves(t, func() { _, _ = s.RWMutex("rw").Upgrade(t.Context(), reader) })
	ends = false
	writer, err := s.RWMutex("rw").Writer().TryAcquire(t.Context())
	if err != nil {
		t.Fatalf("after an Upgrade that a hook left: %v", err)
	}
	_ = writer.Release()
}

// A hook that ends the goroutine by which it is told of a loss keeps nobody from being told of the next one.
func TestHooks_ExitOnLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		s, _ := open(t, holdfast.Hooks{End: func(*holdfast.Hold, time.Duration, error) { told++; runtime.Goexit() }})
		for _, name := range []string{"a", "b"} {
			bridge.Lose(acquire(t, s.Mutex(name)), errors.New("forced"))
		}
		synctest.Wait()
		if told != 2 {
			t.Errorf("%d of 2 losses were told", told)
		}
	})
}

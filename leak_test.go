package holdfast_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
)

// collect runs the garbage collector and the clock until ok, at most a minute of
// fake time.
func collect(ok func() bool) bool {
	parsed = nil
	for range 60 {
		runtime.GC()
		time.Sleep(time.Second)
		if ok() {
			return true
		}
	}
	return false
}

// Promise: "A Hold that becomes unreachable is released and reported (the
// cleanup only marks it, the next beat releases; a bound ctx keeps it
// reachable)".
func TestHold_Abandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f faults
		s, toy := open(t, f.hook())
		acquire(t, s.Mutex("a"))
		if !collect(func() bool { return toy.holders("a") == 0 }) {
			t.Fatal("an abandoned hold was not released")
		}
		synctest.Wait()
		errs := f.all()
		if len(errs) != 1 || !errors.Is(errs[0], holdfast.ErrReleased) || !strings.Contains(errs[0].Error(), "unreachable") {
			t.Errorf("reported %v, want one abandoned hold", errs)
		}
	})
}

func TestHold_KeptByABoundContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f faults
		s, toy := open(t, f.hook())
		func() {
			ctx, cancel := context.WithCancel(acquire(t, s.Mutex("a")).Bind(t.Context()))
			defer cancel()
			if collect(func() bool { return toy.holders("a") == 0 }) {
				t.Fatal("a hold was released under a context bound to it")
			}
			runtime.KeepAlive(ctx)
		}()
		if !collect(func() bool { return toy.holders("a") == 0 }) {
			t.Error("a hold was kept after its bound context was gone")
		}
	})
}

// A reader that waits to become the writer has its hold, although nothing but
// the wait knows it.
func TestHold_NotAbandonedByUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f faults
		s, _ := open(t, f.hook())
		m := s.RWMutex("a")
		other, r := taken(t)(m.Reader().Acquire(t.Context())), taken(t)(m.Reader().Acquire(t.Context()))
		up := later(func() (*holdfast.Hold, error) { return m.Upgrade(t.Context(), r) })
		if collect(func() bool { return len(up) > 0 }) || len(f.all()) != 0 {
			t.Errorf("while the upgrade waited: %v", f.all())
		}
		if err := other.Release(); err != nil {
			t.Fatal(err)
		}
		if g := <-up; g.err != nil {
			t.Errorf("the upgrade: %v", g.err)
		}
	})
}

// A hold that is used is not abandoned, nor is one that was released or lost
// reported.
func TestHold_NotAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f faults
		s, toy := open(t, f.hook())
		kept := acquire(t, s.Mutex("kept"))
		_ = acquire(t, s.Mutex("released")).Release()
		lose(t, s)
		if collect(func() bool { return toy.holders("lost") == 0 }); toy.holders("lost") != 0 {
			t.Error("a lost hold that nobody has was not confirmed")
		}
		if errs := f.all(); len(errs) != 0 || kept.Err() != nil {
			t.Errorf("reported %v; the kept one is %v", errs, kept.Err())
		}
	})
}

// lose takes a hold, has it forced and drops it.
func lose(t *testing.T, s *holdfast.Space) {
	t.Helper()
	h := acquire(t, s.Mutex("lost"))
	if _, err := s.ForceRelease(t.Context(), "lost", h.Token()); err != nil {
		t.Fatal(err)
	}
}

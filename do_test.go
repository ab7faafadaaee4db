package holdfast_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/bridge"
)

// Scenario 24: a recovered panic inside Do must not leave the lock held.
func TestDo_ReleasesOnPanicAndGoexit(t *testing.T) {
	s, toy := open(t)
	ends := map[string]func(){
		"panic":  func() { panic("oops") },
		"Goexit": func() { runtime.Goexit() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				_ = s.Mutex("a").Do(t.Context(), func(context.Context, *holdfast.Hold) error { end(); return nil })
			}()
			<-done
			if toy.holders("a") != 0 {
				t.Errorf("held after %s", name)
			}
		})
	}
}

func TestDo_Results(t *testing.T) {
	own, forced := errors.New("own"), errors.New("forced")
	lose := func(h *holdfast.Hold) { bridge.Lose(h, forced) }
	tests := []struct {
		name string
		f    func(ctx context.Context, h *holdfast.Hold, cancel context.CancelCauseFunc) error
		is   []error
		not  []error
	}{
		{"nothing", func(context.Context, *holdfast.Hold, context.CancelCauseFunc) error { return nil }, nil, nil},
		{"own error", func(context.Context, *holdfast.Hold, context.CancelCauseFunc) error { return own }, []error{own}, []error{holdfast.ErrLost}},
		// Scenario 24: code that ignores cancellations at shutdown must see the loss.
		{"loss cancels f", func(ctx context.Context, h *holdfast.Hold, _ context.CancelCauseFunc) error {
			lose(h)
			<-ctx.Done()
			return ctx.Err()
		}, []error{holdfast.ErrLost, forced}, []error{context.Canceled}},
		{"loss that f did not notice", func(_ context.Context, h *holdfast.Hold, _ context.CancelCauseFunc) error {
			lose(h)
			return nil
		}, []error{holdfast.ErrLost}, nil},
		{"loss and own error", func(_ context.Context, h *holdfast.Hold, _ context.CancelCauseFunc) error {
			lose(h)
			return own
		}, []error{holdfast.ErrLost, own}, nil},
		{"loss told as cause", func(ctx context.Context, h *holdfast.Hold, _ context.CancelCauseFunc) error {
			lose(h)
			return context.Cause(ctx)
		}, []error{holdfast.ErrLost}, []error{context.Canceled}},
		// A cancelled parent still gives the caller's own error.
		{"parent cancelled", func(ctx context.Context, _ *holdfast.Hold, cancel context.CancelCauseFunc) error {
			cancel(nil)
			return ctx.Err()
		}, []error{context.Canceled}, []error{holdfast.ErrLost}},
		{"parent cancelled with a cause", func(ctx context.Context, _ *holdfast.Hold, cancel context.CancelCauseFunc) error {
			cancel(own)
			return context.Cause(ctx)
		}, []error{own}, []error{holdfast.ErrLost}},
		{"parent cancelled, then lost", func(ctx context.Context, h *holdfast.Hold, cancel context.CancelCauseFunc) error {
			cancel(nil)
			lose(h)
			return ctx.Err()
		}, []error{context.Canceled}, []error{holdfast.ErrLost}},
		{"released inside", func(_ context.Context, h *holdfast.Hold, _ context.CancelCauseFunc) error {
			return h.Release()
		}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, toy := open(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			err := s.Mutex("a").Do(ctx, func(ctx context.Context, h *holdfast.Hold) error { return tt.f(ctx, h, cancel) })
			if tt.is == nil && err != nil {
				t.Errorf("Do returned %v", err)
			}
			for _, is := range tt.is {
				wantErr(t, err, is)
			}
			for _, not := range tt.not {
				if errors.Is(err, not) {
					t.Errorf("error %v is also %v", err, not)
				}
			}
			if toy.holders("a") != 0 {
				t.Error("held after Do")
			}
		})
	}
}

// What the release says counts if nothing else is wrong.
func TestDo_FailedRelease(t *testing.T) {
	s, toy := open(t)
	broken := errors.New("broken")
	toy.onRelease = func(context.Context, string) error { return broken }
	f := func(context.Context, *holdfast.Hold) error { return nil }
	wantErr(t, s.Mutex("a").Do(t.Context(), f), broken)
	own := errors.New("own")
	f = func(context.Context, *holdfast.Hold) error { return own }
	wantErr(t, s.Mutex("b").Do(t.Context(), f), own)
}

func TestTryDo_EveryType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		ran := 0
		f := func(context.Context, *holdfast.Hold) error { ran++; return nil }
		lead := func(context.Context, *holdfast.Leadership) error { ran++; return nil }
		m, rw, sem, el := s.Mutex("m"), s.RWMutex("rw"), s.Semaphore("sem", 2), s.Election("el")
		tries := map[string]func() error{
			"Mutex.TryDo":            func() error { return m.TryDo(t.Context(), f) },
			"RWMutex.Reader().TryDo": func() error { return rw.Reader().TryDo(t.Context(), f) },
			"RWMutex.Writer().TryDo": func() error { return rw.Writer().TryDo(t.Context(), f) },
			"Semaphore.TryDo":        func() error { return sem.TryDo(t.Context(), 2, f) },
			"Election.TryLead":       func() error { return el.TryLead(t.Context(), nil, lead) },
			"Space.TryDoAll":         func() error { return s.TryDoAll(t.Context(), []holdfast.Want{m.Want(), sem.Want(1)}, f) },
		}
		waits := map[string]func() error{
			"Mutex.Do":            func() error { return m.Do(t.Context(), f) },
			"RWMutex.Reader().Do": func() error { return rw.Reader().Do(t.Context(), f) },
			"RWMutex.Writer().Do": func() error { return rw.Writer().Do(t.Context(), f) },
			"Semaphore.Do":        func() error { return sem.Do(t.Context(), 2, f) },
			"Election.Lead":       func() error { return el.Lead(t.Context(), nil, lead) },
			"Space.DoAll":         func() error { return s.DoAll(t.Context(), []holdfast.Want{m.Want(), sem.Want(1)}, f) },
		}
		all := takeAll(t, m, rw, sem, el)
		for name, try := range tries {
			if err := try(); !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("%s of a held name: %v", name, err)
			}
		}
		time.AfterFunc(time.Minute, func() { releaseAll(all) })
		for name, wait := range waits {
			if err := wait(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, try := range tries {
			if err := try(); err != nil {
				t.Errorf("%s of a free name: %v", name, err)
			}
		}
		if ran != len(tries)+len(waits) {
			t.Errorf("f ran %d times, want %d", ran, len(tries)+len(waits))
		}
	})
}

func takeAll(t *testing.T, m *holdfast.Mutex, rw *holdfast.RWMutex, sem *holdfast.Semaphore, el *holdfast.Election) []*holdfast.Hold {
	t.Helper()
	a, err1 := m.Acquire(t.Context())
	b, err2 := rw.Writer().Acquire(t.Context())
	c, err3 := sem.Acquire(t.Context(), 2)
	d, err4 := el.Campaign(t.Context(), nil)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	return []*holdfast.Hold{a, b, c, d.Hold}
}

func releaseAll(hs []*holdfast.Hold) {
	for _, h := range hs {
		_ = h.Release()
	}
}

package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// unheard lets changes be done and not be answered.
func unheard(toy *toy) {
	toy.set(func() {
		toy.afterChange = func(driver.Change) error {
			return &driver.Error{Kind: context.DeadlineExceeded, Err: errors.New("no answer")}
		}
	})
}

// wantLost asks for a hold that ended at once for the reason, and has nothing left.
func wantLost(t *testing.T, h *holdfast.Hold, reason string) {
	t.Helper()
	wantErr(t, h.Err(), holdfast.ErrLost)
	if !strings.Contains(h.Err().Error(), reason) {
		t.Errorf("%q does not say %q", h.Err(), reason)
	}
	select {
	case <-h.Done():
	default:
		t.Error("its Done is open")
	}
	wantErr(t, h.Release(), holdfast.ErrLost)
}

// A leader that does not hear whether it handed over leads no more.
func TestHandOver_Unknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		l, err := s.Election("e").Campaign(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		next := later(func() (*holdfast.Hold, error) {
			l, err := s.Election("e", holdfast.Owner("b")).Campaign(t.Context(), nil)
			return l.Hold, err
		})
		synctest.Wait()
		unheard(toy)
		wantErr(t, l.HandOver(t.Context(), "b"), context.DeadlineExceeded)
		wantLost(t, l.Hold, "it was to be handed over, and whether it was is not known")
		h := taken(t)((<-next).h, nil)
		synctest.Wait()
		if h.Err() != nil {
			t.Errorf("the next leader: %v", h.Err())
		}
		_ = h.Release()
	})
}

// A writer that does not hear whether it was downgraded is none any more, and no reader is left.
func TestDowngrade_Unknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		m := s.RWMutex("a")
		w := taken(t)(m.Writer().Acquire(t.Context()))
		unheard(toy)
		_, err := m.Downgrade(t.Context(), w)
		wantErr(t, err, context.DeadlineExceeded)
		wantLost(t, w, "it was to be downgraded, and whether it was is not known")
		synctest.Wait()
		if n := toy.holders("a"); n != 0 {
			t.Errorf("%d holders are left", n)
		}
	})
}

// What did not reach the backend is given back too: its holder believes in it no more.
func TestHandOver_Unsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		l, err := s.Election("e").Campaign(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		toy.set(func() {
			toy.onRelease = func(context.Context, string) error {
				toy.set(func() { toy.onRelease = nil })
				return driver.ErrUnavailable
			}
			toy.instead = func(driver.Change) error { return driver.ErrUnavailable }
		})
		wantErr(t, l.HandOver(t.Context(), "b"), holdfast.ErrUnavailable)
		wantLost(t, l.Hold, "whether it was is not known")
		next, err := s.Election("e").Campaign(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = next.Resign()
	})
}

// After a change that certainly was not made, and after one that takes nothing away, the hold goes on.
func TestChange_KeepsTheHold(t *testing.T) {
	refused := driver.Errorf("", "", driver.ErrUnavailable, "not now")
	unknown := &driver.Error{Kind: driver.ErrUnavailable, Err: errors.New("no answer")}
	tests := map[string]struct {
		fails  error
		change func(ctx context.Context, s *holdfast.Space, l *holdfast.Leadership, w, r *holdfast.Hold) error
	}{
		"hand over refused": {refused, func(ctx context.Context, _ *holdfast.Space, l *holdfast.Leadership, _, _ *holdfast.Hold) error {
			return l.HandOver(ctx, "b")
		}},
		"downgrade refused": {refused, func(ctx context.Context, s *holdfast.Space, _ *holdfast.Leadership, w, _ *holdfast.Hold) error {
			_, err := s.RWMutex("w").Downgrade(ctx, w)
			return err
		}},
		"hand over that the backend cannot": {errors.ErrUnsupported, func(ctx context.Context, _ *holdfast.Space, l *holdfast.Leadership, _, _ *holdfast.Hold) error {
			return l.HandOver(ctx, "b")
		}},
		"upgrade unheard": {unknown, func(ctx context.Context, s *holdfast.Space, _ *holdfast.Leadership, _, r *holdfast.Hold) error {
			_, err := s.RWMutex("r").Upgrade(ctx, r)
			return err
		}},
		"proclaim unheard": {unknown, func(ctx context.Context, _ *holdfast.Space, l *holdfast.Leadership, _, _ *holdfast.Hold) error {
			return l.Proclaim(ctx, nil)
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, toy := open(t)
				l, err := s.Election("e").Campaign(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				w, r := taken(t)(s.RWMutex("w").Writer().Acquire(t.Context())), taken(t)(s.RWMutex("r").Reader().Acquire(t.Context()))
				toy.set(func() { toy.instead = func(driver.Change) error { return tt.fails } })
				if err := tt.change(t.Context(), s, l, w, r); err == nil {
					t.Error("it succeeded")
				}
				synctest.Wait()
				if err := errors.Join(l.Err(), w.Err(), r.Err()); err != nil {
					t.Error(err)
				}
				if err := errors.Join(l.Release(), w.Release(), r.Release()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

package holdfast_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/bridge"
)

func TestElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t, holdfast.Owner("node-1"))
		e := s.Election("scheduler")
		_, err := e.Leader(t.Context())
		wantErr(t, err, fs.ErrNotExist)
		l, err := e.Campaign(t.Context(), []byte("10.0.0.7:80"))
		if err != nil {
			t.Fatal(err)
		}
		now, err := e.Leader(t.Context())
		if err != nil || now.Owner != "node-1" || string(now.Value) != "10.0.0.7:80" || now.Token != l.Token() || now.Revision == 0 {
			t.Errorf("leader %+v, %v", now, err)
		}
		if err := l.Proclaim(t.Context(), []byte("10.0.0.8:80")); err != nil {
			t.Fatal(err)
		}
		if now, _ := e.Leader(t.Context()); string(now.Value) != "10.0.0.8:80" {
			t.Errorf("leader %+v", now)
		}
		if err := l.Proclaim(t.Context(), nil); err != nil {
			t.Errorf("proclaiming nothing: %v", err)
		}
		_, err = e.TryCampaign(t.Context(), nil)
		wantErr(t, err, holdfast.ErrHeld)
		if err := l.Resign(); err != nil {
			t.Error(err)
		}
		wantErr(t, l.Proclaim(t.Context(), nil), holdfast.ErrReleased)
		var none *holdfast.Leadership
		if err := none.Resign(); err != nil {
			t.Error(err)
		}
	})
}

func TestElection_HandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		l, err := s.Election("e", holdfast.Owner("a")).Campaign(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		campaign := func(owner string) <-chan got {
			return later(func() (*holdfast.Hold, error) {
				l, err := s.Election("e", holdfast.Owner(owner)).Campaign(t.Context(), nil)
				if err != nil {
					return nil, err
				}
				return l.Hold, nil
			})
		}
		b, c := campaign("b"), campaign("c")
		wantErr(t, l.HandOver(t.Context(), "nobody"), fs.ErrNotExist)
		wantInvalid(t, l.HandOver(t.Context(), ""), "owner is empty")
		if l.Err() != nil {
			t.Fatal("a refused hand-over ended the leadership")
		}
		if err := l.HandOver(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		wantErr(t, l.Err(), holdfast.ErrReleased)
		next := <-c
		if err := l.Release(); err != nil || toy.holders("e") != 1 {
			t.Errorf("Release after HandOver: %v, %d leaders", err, toy.holders("e"))
		}
		_ = next.h.Release()
		_ = (<-b).h.Release()
	})
}

// Lead campaigns again after each loss, until f has something of its own to say.
func TestElection_Lead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		own := errors.New("own")
		terms, tokens := 0, map[holdfast.Token]bool{}
		err := s.Election("e").Lead(t.Context(), nil, func(ctx context.Context, l *holdfast.Leadership) error {
			tokens[l.Token()] = true
			if terms++; terms == 3 {
				return own
			}
			bridge.Lose(l.Hold, errors.New("forced"))
			<-ctx.Done()
			return ctx.Err()
		})
		wantErr(t, err, own)
		if terms != 3 || len(tokens) != 3 {
			t.Errorf("%d terms with %d tokens", terms, len(tokens))
		}
	})
}

func TestElection_Lead_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := s.Election("e").Lead(ctx, nil, func(ctx context.Context, _ *holdfast.Leadership) error {
			<-ctx.Done()
			return ctx.Err()
		})
		wantErr(t, err, context.DeadlineExceeded)
		if toy.holders("e") != 0 {
			t.Error("still leading")
		}
	})
}

// A candidate stays in the election while the backend is away, and after its wait was
// lost with its session; what the backend refuses ends it.
func TestElection_Lead_StaysThroughOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		failures := []error{driver.ErrUnavailable, driver.ErrLost, driver.ErrUnavailable}
		for range 100 {
			failures = append(failures, driver.ErrUnavailable)
		}
		toy.set(func() {
			toy.onAcquire = func(context.Context, *driver.Request) (err error) {
				if len(failures) > 0 {
					err, failures = &driver.Error{Kind: failures[0]}, failures[1:]
				}
				return err
			}
		})
		led := errors.New("led")
		lead := func(context.Context, *holdfast.Leadership) error { return led }
		wantErr(t, s.Election("e").Lead(t.Context(), nil, lead), led)
		failures = []error{driver.ErrUnavailable, driver.ErrConflict}
		wantErr(t, s.Election("e").Lead(t.Context(), nil, lead), holdfast.ErrConflict)
	})
}

// A backend that is closed for good, as a directory that was deleted, ends Lead, also where it calls itself unavailable
// or has lost a wait: it would campaign there for ever.
func TestElection_Lead_EndsWithTheBackend(t *testing.T) {
	for name, err := range map[string]error{
		"refused": &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone, Err: driver.ErrClosed},
		"lost":    &driver.Error{Kind: driver.ErrLost, Outcome: driver.NotDone, Err: driver.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, toy := open(t)
				toy.set(func() { toy.onAcquire = func(context.Context, *driver.Request) error { return err } })
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				lead := func(context.Context, *holdfast.Leadership) error { return errors.New("it led") }
				wantErr(t, s.Election("e").Lead(ctx, nil, lead), holdfast.ErrClosed)
			})
		})
	}
}

// What f says of another hold is its result, and no loss of the leadership.
func TestElection_Lead_LossOfAnotherHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		terms := 0
		err := s.Election("e").Lead(t.Context(), nil, func(ctx context.Context, _ *holdfast.Leadership) error {
			terms++
			return s.Mutex("job").Do(ctx, func(ctx context.Context, h *holdfast.Hold) error {
				bridge.Lose(h, errors.New("forced"))
				<-ctx.Done()
				return ctx.Err()
			})
		})
		wantErr(t, err, holdfast.ErrLost)
		if terms != 1 {
			t.Errorf("f ran %d times", terms)
		}
	})
}

// A Space that closes ends Lead instead of letting it campaign for ever.
func TestElection_Lead_EndsWithTheSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		time.AfterFunc(time.Minute, func() { _ = s.Close() })
		err := s.Election("e").Lead(t.Context(), nil, func(ctx context.Context, _ *holdfast.Leadership) error {
			<-ctx.Done()
			return ctx.Err()
		})
		wantErr(t, err, holdfast.ErrClosed)
	})
}

func TestElection_Observe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		e := s.Election("e")
		ctx, cancel := context.WithCancel(t.Context())
		var seen []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			for l, err := range e.Observe(ctx) {
				if err != nil {
					t.Error(err)
				}
				seen = append(seen, string(l.Value))
			}
		}()
		synctest.Wait()
		for _, v := range []string{"a", "b"} {
			l, err := e.Campaign(t.Context(), []byte(v))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := l.Proclaim(t.Context(), []byte(v+v)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := l.Proclaim(t.Context(), []byte(v+v)); err != nil { // nothing new
				t.Fatal(err)
			}
			synctest.Wait()
			_ = l.Resign()
			synctest.Wait()
		}
		cancel()
		<-done
		if want := []string{"a", "aa", "b", "bb"}; !slices.Equal(seen, want) {
			t.Errorf("saw %q, want %q", seen, want)
		}
	})
}

// An inner hold that hands leadership over is released like the outer one.
func TestElection_HandOverOfAJoinedHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		e := s.Election("e", holdfast.Owner("a"), holdfast.Reentrant())
		err := e.TryLead(t.Context(), nil, func(ctx context.Context, _ *holdfast.Leadership) error {
			next := later(func() (*holdfast.Hold, error) {
				l, err := s.Election("e", holdfast.Owner("b")).Campaign(t.Context(), nil)
				return l.Hold, err
			})
			err := e.TryLead(ctx, nil, func(_ context.Context, l *holdfast.Leadership) error { return l.HandOver(t.Context(), "b") })
			if err != nil {
				t.Errorf("the inner one: %v", err)
			}
			return (<-next).h.Release()
		})
		if err != nil {
			t.Errorf("the outer one: %v", err)
		}
	})
}

// The holder of a mutex is no leader.
func TestElection_LeaderOfAMutex(t *testing.T) {
	s, _ := open(t)
	h := acquire(t, s.Mutex("x"))
	if l, err := s.Election("x").Leader(t.Context()); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("a leader: %+v, %v", l, err)
	}
	if err := h.Release(); err != nil {
		t.Error(err)
	}
}

package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/bridge"
)

// Promise: "Reentrant() (a ctx from Bind/Do of the same resource joins, counted,
// the last Release frees)".
func TestReentrant_Joins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		m := s.Mutex("a", holdfast.Reentrant())
		err := m.Do(t.Context(), func(ctx context.Context, outer *holdfast.Hold) error {
			inner, err := m.Acquire(context.WithoutCancel(ctx))
			if err != nil {
				return err
			}
			innerCtx := inner.Bind(t.Context())
			if inner.Token() != outer.Token() || len(toy.requests) != 1 {
				t.Errorf("token %d and %d, %d requests", inner.Token(), outer.Token(), len(toy.requests))
			}
			again, err := m.TryAcquire(innerCtx)
			if err != nil {
				return err
			}
			if err := inner.Release(); err != nil {
				t.Error(err)
			}
			wantErr(t, inner.Err(), holdfast.ErrReleased)
			wantErr(t, context.Cause(innerCtx), holdfast.ErrReleased)
			if outer.Err() != nil || again.Err() != nil || ctx.Err() != nil || toy.holders("a") != 1 {
				t.Error("releasing one share ended the others")
			}
			if err := outer.Release(); err != nil {
				t.Error(err)
			}
			if again.Err() != nil || toy.holders("a") != 1 {
				t.Error("not the last Release freed it")
			}
			if err := again.Release(); err != nil || toy.holders("a") != 0 {
				t.Errorf("the last Release: %v, %d holders", err, toy.holders("a"))
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestReentrant_LossEndsAllShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		m := s.Mutex("a", holdfast.Reentrant())
		outer := acquire(t, m)
		inner := taken(t)(m.Acquire(outer.Bind(t.Context())))
		ctx := inner.Bind(t.Context())
		bridge.Lose(outer, context.DeadlineExceeded)
		wantErr(t, inner.Err(), holdfast.ErrLost)
		wantErr(t, context.Cause(ctx), holdfast.ErrLost)
		wantErr(t, inner.Release(), holdfast.ErrLost)
		wantErr(t, outer.Release(), holdfast.ErrLost)
		// What has ended cannot be joined: this is a hold of its own.
		next := taken(t)(m.Acquire(context.WithoutCancel(ctx)))
		if next.Token() <= outer.Token() {
			t.Errorf("joined a hold that was lost: token %d", next.Token())
		}
	})
}

// Without the option, or without the context, everybody waits.
func TestReentrant_OnlyWhenAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		outer := acquire(t, s.Mutex("a"))
		bound := outer.Bind(t.Context())
		_, err := s.Mutex("a").TryAcquire(bound)
		wantErr(t, err, holdfast.ErrHeld)
		_, err = s.Mutex("a", holdfast.Reentrant()).TryAcquire(t.Context())
		wantErr(t, err, holdfast.ErrHeld)
		other := taken(t)(s.Mutex("b", holdfast.Reentrant()).TryAcquire(bound))
		if other.Token() == outer.Token() {
			t.Error("joined the hold of another name")
		}
		elsewhere, there := open(t)
		if taken(t)(elsewhere.Mutex("a", holdfast.Reentrant()).TryAcquire(bound)); there.holders("a") != 1 {
			t.Error("joined the hold of another Space")
		}
	})
}

func TestReentrant_NeverForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		rw := s.RWMutex("rw", holdfast.Reentrant())
		r := taken(t)(rw.Reader().Acquire(t.Context()))
		_, err := rw.Writer().Acquire(r.Bind(t.Context()))
		wantErr(t, err, holdfast.ErrConflict)
		r2 := taken(t)(rw.Reader().Acquire(r.Bind(t.Context())))
		_, err = rw.Upgrade(t.Context(), r2)
		wantErr(t, err, holdfast.ErrConflict)
		releaseAll([]*holdfast.Hold{r2, r})
		w := taken(t)(rw.Writer().Acquire(t.Context()))
		if in := taken(t)(rw.Reader().Acquire(w.Bind(t.Context()))); in.Token() != w.Token() {
			t.Error("a reader did not join its own writer")
		}
		sem := s.Semaphore("sem", 4, holdfast.Reentrant())
		h := taken(t)(sem.Acquire(t.Context(), 2))
		_, err = sem.Acquire(h.Bind(t.Context()), 3)
		wantErr(t, err, holdfast.ErrConflict)
		taken(t)(sem.Acquire(h.Bind(t.Context()), 2))
		_, err = s.Mutex("sem", holdfast.Reentrant()).Acquire(h.Bind(t.Context()))
		wantErr(t, err, holdfast.ErrConflict)
		if toy.holders("sem") != 1 {
			t.Errorf("%d holders", toy.holders("sem"))
		}
	})
}

func TestReentrant_All(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, toy := open(t)
		re := s.With(holdfast.Reentrant())
		a, b, c := re.Mutex("a"), re.Mutex("b"), re.Mutex("c")
		all := taken(t)(re.AcquireAll(t.Context(), a.Want(), b.Want()))
		ctx := all.Bind(t.Context())
		in := taken(t)(re.AcquireAll(ctx, b.Want(), a.Want()))
		one := taken(t)(b.Acquire(ctx))
		two := taken(t)(re.AcquireAll(one.Bind(ctx), a.Want(), b.Want()))
		_, err := re.AcquireAll(ctx, a.Want(), c.Want())
		wantErr(t, err, holdfast.ErrConflict)
		_, err = re.AcquireAll(ctx, c.Want(), a.Want())
		wantErr(t, err, holdfast.ErrConflict)
		if len(toy.requests) != 1 {
			t.Errorf("%d requests", len(toy.requests))
		}
		releaseAll([]*holdfast.Hold{in, one, two, all})
		if toy.holders("a")+toy.holders("b") != 0 {
			t.Error("still held")
		}
	})
}

// An abandoned share is released like any other hold.
func TestReentrant_AbandonedShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f faults
		s, toy := open(t, f.hook())
		m := s.Mutex("a", holdfast.Reentrant())
		outer := acquire(t, m)
		taken(t)(m.Acquire(outer.Bind(t.Context())))
		if !collect(func() bool { return len(f.all()) == 1 }) {
			t.Fatal("the abandoned share was not reported")
		}
		if outer.Err() != nil {
			t.Errorf("the other share: %v", outer.Err())
		}
		if err := outer.Release(); err != nil || toy.holders("a") != 0 {
			t.Errorf("the last Release: %v", err)
		}
		time.Sleep(time.Minute)
	})
}

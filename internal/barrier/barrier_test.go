package barrier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/barrier"
)

// TestMaybeCounted: the outcome is unknown, and all else stays, also in the error that was given.
func TestMaybeCounted(t *testing.T) {
	closed := &driver.Error{Name: "b", Kind: driver.ErrClosed, Outcome: driver.NotDone}
	e, ok := errors.AsType[*driver.Error](barrier.MaybeCounted(closed))
	if !ok || e.Outcome != driver.Unknown || e.Name != "b" || !errors.Is(e, driver.ErrClosed) {
		t.Errorf("got %+v", e)
	}
	if closed.Outcome != driver.NotDone {
		t.Error("the error that was given has changed")
	}
	other := errors.New("other")
	if barrier.MaybeCounted(nil) != nil || barrier.MaybeCounted(other) != other {
		t.Error("what is no error of a backend has changed")
	}
}

// TestLater: an arrival ends a while after its caller's context, and so does a call that leaves.
func TestLater(t *testing.T) {
	for name, later := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"arriving": barrier.Arriving, "leaving": barrier.Leaving,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				ended, stop := later(ctx)
				defer stop()
				began := time.Now()
				<-ended.Done()
				if took := time.Since(began); took != barrier.LeavingFor {
					t.Errorf("it ends after %s", took)
				}
			})
		})
	}
}

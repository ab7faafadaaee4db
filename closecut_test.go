package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// What Close cuts off is ErrClosed, whatever the backend calls it, unless the caller has given up.
func TestClose_CutsCalls(t *testing.T) {
	for _, kind := range []error{context.Canceled, driver.ErrUnavailable} {
		for _, gaveUp := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s, toy := open(t)
				cut := make(chan struct{})
				toy.set(func() {
					toy.onClose = func() { close(cut) }
					toy.onAcquire = func(context.Context, *driver.Request) error {
						<-cut
						return &driver.Error{Kind: kind, Outcome: driver.NotDone}
					}
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error)
				go func() {
					_, err := s.Mutex("a").Acquire(ctx)
					ended <- err
				}()
				synctest.Wait()
				if gaveUp {
					cancel()
				}
				_ = s.Close()
				err := <-ended
				if errors.Is(err, holdfast.ErrClosed) == gaveUp || errors.Is(err, kind) != gaveUp || !holdfast.NotDone(err) {
					t.Errorf("%v, given up %v: %v", kind, gaveUp, err)
				}
			})
		}
	}
}

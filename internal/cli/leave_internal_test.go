package cli

import (
	"context"
	"testing"
	"testing/synctest"
)

// slowly is closed when its channel is.
type slowly chan struct{}

func (s slowly) Close() error {
	<-s
	return nil
}

// A command that has waited for its whole timeout does not wait for a close, too; another does.
func TestLeave(t *testing.T) {
	for _, cause := range []error{nil, errTimeout} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			if cause != nil {
				cancel(cause)
			}
			slow, left := make(slowly), make(chan struct{})
			go func() {
				defer close(left)
				leave(ctx, slow)
			}()
			synctest.Wait()
			select {
			case <-left:
				if cause == nil {
					t.Error("it does not wait for the close")
				}
			default:
				if cause != nil {
					t.Error("it waits for a backend that has not answered")
				}
			}
			close(slow)
			<-left
			cancel(nil)
		})
	}
}

package remote

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/driver"
)

// A read that meets the end of its Space says so: the link stays where it was, so asking
// again would fail at once, as often as the processor allows.
func TestCall_EndsWithTheSpace(t *testing.T) {
	for name, when := range map[string]func(e *engine) error{
		"during the call":  func(e *engine) error { e.close(); return context.Canceled },
		"during the pause": func(e *engine) error { go e.close(); return status.Error(codes.Unavailable, "no leader") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &engine{link: &serverLink{}}
				e.ctx, e.close = context.WithCancel(t.Context())
				calls := 0
				err := e.call(t.Context(), func(context.Context, *grpc.ClientConn) error {
					if calls++; calls > 1 {
						t.Fatal("the closed link is asked again")
					}
					return when(e)
				})
				if !errors.Is(err, driver.ErrClosed) {
					t.Errorf("a read that the end of its Space met: %v", err)
				}
			})
		})
	}
}

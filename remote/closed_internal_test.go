package remote

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/wire"
)

// A read under which a node has stopped, or a link was given up, is asked again; only the
// link over which it failed is left then.
func TestCall_GoesOnElsewhere(t *testing.T) {
	for name, why := range map[string]error{
		"the node has stopped":   wire.Status(driver.Errorf("read", "", driver.ErrClosed, "the node has stopped")).Err(),
		"the node does not lead": status.Error(codes.Unavailable, "no leader"),
		"the link was given up":  status.Error(codes.Canceled, "the connection is closing"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var left []string
				link := func(name string) *serverLink {
					return &serverLink{endpoint: name, cancel: func() { left = append(left, name) }}
				}
				e := &engine{link: link("first")}
				e.ctx, e.close = context.WithCancel(t.Context())
				calls := 0
				err := e.call(t.Context(), func(context.Context, *grpc.ClientConn) error {
					switch calls++; calls {
					case 5:
						e.mu.Lock()
						e.link = link("second")
						e.mu.Unlock()
					case 6:
						return nil
					}
					return why
				})
				if err != nil || calls != 6 || len(left) > 0 {
					t.Errorf("%d calls: %v; links left: %v", calls, err, left)
				}
			})
		})
	}
}

// A call that ends while only nodes that stop have answered says so, and not that its Space is closed.
func TestCall_NodeStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{link: &serverLink{cancel: func() {}}}
		e.ctx, e.close = context.WithCancel(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := e.call(ctx, func(context.Context, *grpc.ClientConn) error {
			return wire.Status(driver.Errorf("read", "", driver.ErrClosed, "the node has stopped")).Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrClosed) || !strings.Contains(err.Error(), "the node has stopped") {
			t.Errorf("a read of a node that has stopped: %v", err)
		}
	})
}

// A link over which nothing is answered is left.
func TestCall_LeavesItsLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, left, calls := &engine{}, false, 0
		e.ctx, e.close = context.WithCancel(t.Context())
		e.link = &serverLink{cancel: func() { left = true }}
		err := e.call(t.Context(), func(context.Context, *grpc.ClientConn) error {
			if calls++; left || calls > 100 {
				return nil
			}
			return status.Error(codes.Unavailable, "no leader")
		})
		if err != nil || !left {
			t.Errorf("after %d calls: %v; left is %v", calls, err, left)
		}
	})
}

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

package remote_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/remote"
	"github.com/holdfast-io/holdfast/server"
)

// busy is a node that refuses reads.
type busy struct {
	left  atomic.Int64 // how many it refuses still
	pause atomic.Int64 // what it asks for
	asked atomic.Int64
}

// refusal is what an overloaded node says; nil: it is not any more.
func (b *busy) refusal(method string) error {
	switch method {
	case pb.InspectService_Inspect_FullMethodName, pb.InspectService_List_FullMethodName, pb.WatchService_Watch_FullMethodName:
	default:
		return nil
	}
	b.asked.Add(1)
	if b.left.Add(-1) < 0 {
		return nil
	}
	e := driver.Errorf("call", "", driver.ErrExhausted, "too much to do")
	e.RetryAfter = time.Duration(b.pause.Load())
	return wire.Status(e).Err()
}

// openBusy is a Space on a busy node.
func openBusy(t *testing.T, b *busy) *holdfast.Space {
	t.Helper()
	return openAt(t, serveRefusing(t, newNode(t), b.refusal))
}

func newNode(t *testing.T) *server.Server {
	t.Helper()
	n, err := server.New(server.Config{Dir: t.TempDir(), Tick: fast})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// serveRefusing serves a node, but for the calls that refusal has an error for.
func serveRefusing(t *testing.T, n *server.Server, refusal func(method string) error) (addr string) {
	t.Helper()
	svc := api.New(n)
	g := grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := refusal(info.FullMethod); err != nil {
				return nil, err
			}
			return next(ctx, r)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := refusal(info.FullMethod); err != nil {
				return err
			}
			return next(srv, s)
		}))
	svc.Register(g)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = g.Serve(ln) }()
	t.Cleanup(func() { g.Stop(); svc.Close() })
	return ln.Addr().String()
}

func openAt(t *testing.T, endpoints ...string) *holdfast.Space {
	t.Helper()
	s, err := remote.Open(remote.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// A read that an overloaded node refuses is asked again, as a command is.
func TestBusy(t *testing.T) {
	b := &busy{}
	s := openBusy(t, b)
	put(t, s, "k", "v")
	for what, read := range map[string]func() error{
		"Inspect": func() error { _, err := s.Inspect(t.Context(), "x"); return err },
		"List": func() (err error) {
			for _, err = range s.List(t.Context(), "") {
			}
			return err
		},
		"Watch": func() error {
			for _, err := range s.Watch(t.Context(), "k", 1) {
				return err
			}
			return nil
		},
	} {
		b.pause.Store(int64(time.Millisecond))
		b.asked.Store(0)
		b.left.Store(3)
		if err := read(); err != nil || b.asked.Load() != 4 {
			t.Errorf("%s: %v, after %d tries", what, err, b.asked.Load())
		}
	}
}

// It is asked again only until its caller gives up; and a refusal without a time to
// come back, such as a quota, is one.
func TestBusy_Ends(t *testing.T) {
	b := &busy{}
	s := openBusy(t, b)
	b.pause.Store(int64(time.Hour))
	b.left.Store(1)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Inspect(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller who gave up is told %v", err)
	}
	b.pause.Store(0)
	b.left.Store(1)
	if _, err := s.Inspect(t.Context(), "x"); !errors.Is(err, holdfast.ErrExhausted) {
		t.Errorf("a quota is told as %v", err)
	}
}

// A watch for which a node has no room is refused soon, from now on or from a revision,
// with what the node says: those that it has stay.
func TestBusy_NoRoomForAWatch(t *testing.T) {
	b := &busy{}
	s := openBusy(t, b)
	put(t, s, "k", "v")
	b.pause.Store(int64(time.Hour))
	for _, from := range []holdfast.Revision{0, 1} {
		b.left.Store(1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		for e, err := range s.Watch(ctx, "k", from) {
			if !errors.Is(err, holdfast.ErrExhausted) || !strings.Contains(err.Error(), "too much to do") {
				t.Errorf("from %d: %v, %v", from, e, err)
			}
			break
		}
		if ctx.Err() != nil {
			t.Errorf("from %d: the caller had to give up", from)
		}
		cancel()
	}
}

// A node that is unavailable is left for another, whatever time it names: whichever is
// asked first says for ever that it does not lead.
func TestUnavailableIsLeft(t *testing.T) {
	n := newNode(t)
	var first atomic.Int64
	refusing := func(id int64) func(method string) error {
		return func(method string) error {
			if method != pb.InspectService_Inspect_FullMethodName || !first.CompareAndSwap(0, id) && first.Load() != id {
				return nil
			}
			e := driver.Errorf("read", "", driver.ErrUnavailable, "this node does not lead")
			e.RetryAfter = time.Hour
			return wire.Status(e).Err()
		}
	}
	s := openAt(t, serveRefusing(t, n, refusing(1)), serveRefusing(t, n, refusing(2)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := s.Inspect(ctx, "x"); err != nil {
		t.Error(err)
	}
}

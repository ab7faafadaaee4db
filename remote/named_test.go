package remote_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/session"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// signpost is a node that never leads, and names another.
type signpost struct {
	pb.UnimplementedSessionStreamServer
	to atomic.Value // of string
}

func (s *signpost) Attach(client pb.SessionStream_AttachServer) error {
	_ = client.SetHeader(metadata.Pairs("holdfast-cluster", "1"))
	for {
		b, err := client.Recv()
		if err != nil {
			return err
		}
		m, _, err := session.DecodeMessage(b.Messages)
		if err != nil {
			return err
		}
		no := session.Message{Kind: session.KindRefused, Session: m.Session, Stream: m.Stream, Refusal: session.RefusedNoLeader, Endpoint: s.to.Load().(string)}
		if err := client.Send(&pb.Batch{Messages: session.AppendMessage(nil, &no)}); err != nil {
			return err
		}
	}
}

// at serves something by gRPC, and tells where.
func at(t *testing.T, opts []grpc.ServerOption, register func(*grpc.Server)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(opts...)
	register(g)
	go func() { _ = g.Serve(ln) }()
	t.Cleanup(g.Stop)
	return ln.Addr().String()
}

// newSignpost is one that names a node.
func newSignpost(t *testing.T, to string) (*signpost, string) {
	s := &signpost{}
	s.to.Store(to)
	return s, at(t, nil, func(g *grpc.Server) { pb.RegisterSessionStreamServer(g, s) })
}

// A node of another cluster, at an address that another node has named, is not used, and the caller is told why.
func TestNamedNodeOfAnotherCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := shelf(t) // goes when the node in it has ended
	other := newGroup(t, 1, fast)
	other.stop(0)
	other.cfgs[0].Dir, other.cfgs[0].ClusterID = dir, 2
	other.start(0)
	g := newGroup(t, 1, fast)
	sign, addr := newSignpost(t, other.cfgs[0].Founders[0].Client)
	s := openAt(t, addr)
	for why := ""; !strings.Contains(why, "cluster"); { // a busy machine may need more than one try to hear of it
		brief, stop := context.WithTimeout(ctx, time.Second)
		n, err := s.Counter("n").Add(brief, 1)
		if stop(); err == nil || ctx.Err() != nil {
			t.Fatalf("counted to %d: %v", n, err)
		}
		why = err.Error()
	}
	sign.to.Store(g.cfgs[0].Founders[0].Client)
	if n, err := s.Counter("n").Add(ctx, 1); n != 1 || err != nil {
		t.Errorf("counted to %d: %v", n, err)
	}
	if n, err := openAt(t, other.cfgs[0].Founders[0].Client).Counter("n").Load(ctx); n != 0 || err != nil {
		t.Errorf("the other cluster has counted to %d: %v", n, err)
	}
}

// What refuses for good at an address that another node has named does not end the Space: the address may be
// an old one, and something else there.
func TestNamedNodeThatRefuses(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g := newGroup(t, 1, fast)
	asked := make(chan struct{}, 100)
	stranger := at(t, []grpc.ServerOption{grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		asked <- struct{}{}
		return status.Error(codes.PermissionDenied, "this is something else")
	})}, func(*grpc.Server) {})
	sign, addr := newSignpost(t, stranger)
	s := openAt(t, addr)
	counted := make(chan error, 1)
	go func() {
		_, err := s.Counter("n").Add(ctx, 1)
		counted <- err
	}()
	for range 2 {
		select {
		case <-asked:
		case err := <-counted:
			t.Fatalf("it ended: %v", err)
		}
	}
	sign.to.Store(g.cfgs[0].Founders[0].Client)
	if err := <-counted; err != nil {
		t.Error(err)
	}
}

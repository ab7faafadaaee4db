package cli

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// operated is a node that answers orders as it is told, and counts them.
type operated struct {
	pb.UnimplementedAdminServiceServer
	err    error
	orders int
}

func (o *operated) ChangeMembers(context.Context, *pb.ChangeMembersRequest) (*pb.ChangeMembersResponse, error) {
	o.orders++
	return &pb.ChangeMembersResponse{}, o.err
}

// bound is an address that takes connections.
func bound(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func (o *operated) start(t *testing.T) string {
	ln, s := bound(t), grpc.NewServer()
	pb.RegisterAdminServiceServer(s, o)
	go s.Serve(ln)
	t.Cleanup(s.Stop)
	return ln.Addr().String()
}

func order(ctx context.Context, a *app, again func(error) bool) error {
	return a.onNodes(ctx, again, func(c pb.AdminServiceClient) error {
		_, err := c.ChangeMembers(ctx, &pb.ChangeMembersRequest{})
		return err
	})
}

// A change that a node may have made before it went away is not asked of the next, which
// would say that it makes no sense; what nobody has heard is.
func TestOnNodes_MayBeDone(t *testing.T) {
	gone := bound(t)
	gone.Close()
	first, second := &operated{err: status.Error(codes.Unavailable, "the connection broke")}, &operated{}
	a := &app{url: "holdfast://" + gone.Addr().String() + "," + first.start(t) + "," + second.start(t), timeout: time.Minute}
	err := order(t.Context(), a, holdfast.NotDone)
	if err == nil || !strings.Contains(err.Error(), "may be done") || first.orders != 1 || second.orders != 0 {
		t.Errorf("the nodes were asked %d and %d times: %v", first.orders, second.orders, err)
	}
	if err := order(t.Context(), a, always); err != nil || second.orders != 1 {
		t.Errorf("what may be asked twice: %v", err)
	}
}

// A machine that takes a connection and says nothing leaves time for the next.
func TestOnNodes_Silent(t *testing.T) {
	t.Parallel()
	live := &operated{}
	a := &app{url: "holdfast://" + bound(t).Addr().String() + "," + live.start(t), timeout: 10 * time.Second}
	ctx, cancel := context.WithTimeout(t.Context(), a.timeout)
	defer cancel()
	if err := order(ctx, a, holdfast.NotDone); err != nil || live.orders != 1 {
		t.Errorf("the live node was asked %d times: %v", live.orders, err)
	}
}

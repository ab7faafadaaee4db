package relay

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// verbose is a leader that tells much about a name.
type verbose struct {
	pb.UnimplementedInspectServiceServer
}

func (verbose) Inspect(context.Context, *pb.InspectRequest) (*pb.InspectResponse, error) {
	return &pb.InspectResponse{Next: strings.Repeat("x", 5<<20)}, nil
}

// What a leader answers goes to the caller, however long it is: whether that takes it is
// for the caller to say.
func TestLongAnswerOfALeader(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	pb.RegisterInspectServiceServer(s, verbose{})
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(s.Stop)
	l := &leaderLink{addr: ln.Addr().String(), way: insecure.NewCredentials()}
	x, err := l.lane(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.conn.Close() })
	got, err := pb.NewInspectServiceClient(x.conn).Inspect(t.Context(), &pb.InspectRequest{Name: "x"})
	if err != nil || len(got.GetNext()) != 5<<20 {
		t.Errorf("%d bytes: %v", len(got.GetNext()), err)
	}
}

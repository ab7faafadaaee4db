package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// telling is a node that says of its group what it is told.
type telling struct {
	pb.UnimplementedAdminServiceServer
	st    pb.StatusResponse
	asked func()
}

func (n *telling) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	if n.asked != nil {
		n.asked()
	}
	return &n.st, nil
}

func (n *telling) start(t *testing.T) string {
	ln, s := bound(t), grpc.NewServer()
	pb.RegisterAdminServiceServer(s, n)
	go s.Serve(ln)
	t.Cleanup(s.Stop)
	return ln.Addr().String()
}

// The members are those that the leader knows, whichever node is named; without a leader
// that is said.
func TestMembersOf_Follower(t *testing.T) {
	leader := &telling{}
	leader.st.Serving, leader.st.Leader, leader.st.Members = true, 1, []*pb.Member{{Id: 1}, {Id: 2}, {Id: 3}}
	follower := &telling{}
	follower.st.Leader, follower.st.Members = 1, []*pb.Member{{Id: 1, ClientAddress: leader.start(t)}, {Id: 2}}
	a := &app{url: "holdfast://" + follower.start(t), timeout: time.Minute}
	list := func() (all []*pb.Member, err error) {
		hosts, creds, err := a.nodes()
		if err != nil {
			return nil, err
		}
		return all, onNode(t.Context(), hosts[0], creds, time.Minute, func(c *grpc.ClientConn) (err error) {
			all, err = a.membersOf(t.Context(), pb.NewAdminServiceClient(c))
			return err
		})
	}
	if all, err := list(); err != nil || len(all) != 3 {
		t.Errorf("by a node that follows: %v, %v", all, err)
	}
	alone := &telling{}
	alone.st.Members = follower.st.Members
	a.url = "holdfast://" + alone.start(t)
	if _, err := list(); err == nil || !strings.Contains(err.Error(), "knows no leader") {
		t.Errorf("without a leader: %v", err)
	}
}

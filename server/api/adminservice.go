package api

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// adminService is pb.AdminService.
type adminService struct {
	pb.UnimplementedAdminServiceServer
	*gateway
}

func (s adminService) ForceRelease(ctx context.Context, r *pb.ForceReleaseRequest) (*pb.ForceReleaseResponse, error) {
	if err := checkName(r.Name); err != nil {
		return nil, named(err, "force release", r.Name)
	}
	res, now, err := s.do(ctx, core.Command{Op: core.OpForce, Name: r.Name, Token: r.Token, Flags: atOnce(r.Now)})
	if err != nil {
		return nil, named(err, "force release", r.Name)
	}
	return &pb.ForceReleaseResponse{Header: s.header(ctx, res.Revision), UntilMs: convert.Left(now, res.Deadline).Milliseconds()}, nil
}

func atOnce(now bool) core.Flags {
	if now {
		return core.Now
	}
	return 0
}

func (s adminService) RevokeSession(ctx context.Context, r *pb.RevokeSessionRequest) (*pb.RevokeSessionResponse, error) {
	if len(r.Session) != 16 {
		return nil, named(invalid("", "a session has 16 bytes, not %d", len(r.Session)), "revoke session", "")
	}
	res, now, err := s.do(ctx, core.Command{Op: core.OpRevoke, Session: core.SessionID(r.Session), Flags: atOnce(r.Now)})
	if err != nil {
		return nil, named(err, "revoke session", "")
	}
	return &pb.RevokeSessionResponse{Header: s.header(ctx, res.Revision), UntilMs: convert.Left(now, res.Deadline).Milliseconds()}, nil
}

func (s adminService) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	st, err := s.s.Status(ctx)
	if err != nil {
		return nil, named(err, "status", "")
	}
	out := &pb.StatusResponse{
		Header: &pb.Header{ClusterId: s.s.ClusterID(), MemberId: st.ID, Revision: int64(st.Revision), RaftTerm: st.Term},
		Leader: st.Leader, Serving: st.Serving, Applied: st.Applied, Snapshot: st.SnapshotIndex, Waiting: int64(st.Waiting),
	}
	for _, e := range st.Members.Endpoints {
		out.Members = append(out.Members, &pb.Member{
			Id: e.ID, PeerAddress: e.Peer, ClientAddress: e.Client, Learner: !slices.Contains(st.Members.Conf.GetVoters(), e.ID),
		})
	}
	return out, nil
}

func (s adminService) ChangeMembers(ctx context.Context, r *pb.ChangeMembersRequest) (*pb.ChangeMembersResponse, error) {
	c := replica.Change{Promote: r.Promote, Remove: r.Remove}
	for _, m := range r.Add {
		if m.GetId() == 0 || m.GetPeerAddress() == "" {
			return nil, named(invalid("", "a new member needs a number and a peer_address"), "change members", "")
		}
		c.Add = append(c.Add, replica.Endpoint{ID: m.Id, Peer: m.PeerAddress, Client: m.ClientAddress})
	}
	if len(c.Add)+len(c.Promote)+len(c.Remove) == 0 {
		return nil, named(invalid("", "nothing is to change"), "change members", "")
	}
	if err := s.s.Members(ctx, c); err != nil {
		return nil, s.whyNot(ctx, c, err)
	}
	return &pb.ChangeMembersResponse{Header: s.header(ctx, s.revision(ctx))}, nil
}

// whyNot tells what is wrong with a change that the leader did not make; err if it is
// not the change.
func (s adminService) whyNot(ctx context.Context, c replica.Change, err error) error {
	st, unknown := s.s.Status(ctx)
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Outcome != driver.NotDone {
		return err // it may have been made, which would look like a mistake of the caller's now
	}
	if unknown != nil || !st.Serving {
		return err
	}
	voters, learners := st.Members.Conf.GetVoters(), st.Members.Conf.GetLearners()
	bad := func(format string, args ...any) error {
		return named(invalid("", format, args...), "change members", "")
	}
	for _, e := range c.Add {
		if slices.Contains(voters, e.ID) || slices.Contains(learners, e.ID) {
			return bad("node %d is a member already", e.ID)
		}
	}
	for _, id := range c.Promote {
		switch {
		case slices.Contains(voters, id):
			return bad("node %d votes already", id)
		case !slices.Contains(learners, id):
			return bad("node %d is no member: add it first", id)
		}
	}
	if !slices.ContainsFunc(slices.Concat(voters, c.Promote), func(id uint64) bool { return !slices.Contains(c.Remove, id) }) {
		return bad("nobody would be left who votes")
	}
	return err
}

func (s adminService) MoveLeader(ctx context.Context, r *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	st, err := s.s.Status(ctx)
	switch {
	case err != nil:
		return nil, named(err, "move leader", "")
	case !st.Leading:
		return nil, driver.Errorf("move leader", "", driver.ErrUnavailable, "this node does not lead: ask the leader")
	case !slices.Contains(st.Members.Conf.GetVoters(), r.Id):
		return nil, named(invalid("", "%d is no voter of this group", r.Id), "move leader", "")
	}
	if err := s.s.Transfer(ctx, r.Id); err != nil {
		return nil, named(err, "move leader", "")
	}
	return &pb.MoveLeaderResponse{Header: s.header(ctx, st.Revision)}, nil
}

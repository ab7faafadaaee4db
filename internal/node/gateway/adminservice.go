package gateway

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/address"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Admin is pb.AdminService.
type Admin struct {
	*Gateway
}

func (s Admin) ForceRelease(ctx context.Context, r *pb.ForceReleaseRequest) (*pb.ForceReleaseResponse, error) {
	if err := CheckName(r.Name); err != nil {
		return nil, Named(err, "force release", r.Name)
	}
	res, now, err := s.do(ctx, core.Command{Op: core.OpForce, Name: r.Name, Token: r.Token, Flags: atOnce(r.Now)})
	if err != nil {
		return nil, Named(err, "force release", r.Name)
	}
	return &pb.ForceReleaseResponse{Header: s.Header(ctx, res.Revision), UntilMs: convert.Left(now, res.Deadline).Milliseconds()}, nil
}

func atOnce(now bool) core.Flags {
	if now {
		return core.Now
	}
	return 0
}

func (s Admin) RevokeSession(ctx context.Context, r *pb.RevokeSessionRequest) (*pb.RevokeSessionResponse, error) {
	if len(r.Session) != 16 {
		return nil, Named(Invalid("", "a session has 16 bytes, not %d", len(r.Session)), "revoke session", "")
	}
	c := core.Command{Op: core.OpRevoke, Session: core.SessionID(r.Session), Flags: atOnce(r.Now)}
	res, now, err := s.do(ctx, c)
	if errors.Is(err, driver.ErrExhausted) {
		res, now, err = s.revokeByItself(ctx, c)
	}
	if err != nil {
		return nil, Named(err, "revoke session", "")
	}
	return &pb.RevokeSessionResponse{Header: s.Header(ctx, res.Revision), UntilMs: convert.Left(now, res.Deadline).Milliseconds()}, nil
}

// revokeByItself revokes a session in its own name, since there is no room for another that would:
// to end one is how room is made. The command has no number: none of what the session asks for
// itself is in its way, and no answer of that is taken for its own.
func (g *Gateway) revokeByItself(ctx context.Context, c core.Command) (core.Result, int64, error) {
	var info core.SessionInfo
	ns, found := callerOf(ctx).namespace, false
	if err := g.look(ctx, func(m *core.Machine, _ int64) { info, found = m.Session(c.Session) }); err != nil {
		return core.Result{}, 0, err
	}
	if !found || info.Namespace != ns {
		return core.Result{}, 0, noSuchSession(ns)
	}
	reply, err := g.submit(ctx, &core.Frame{Session: c.Session, Commands: []core.Command{c}})
	if err != nil {
		return core.Result{}, 0, err
	}
	res := reply.Results[0]
	if res.Code == core.CodeNoSession { // it has ended since
		return res, reply.Now, noSuchSession(ns)
	}
	return res, reply.Now, refusal(&res, reply.Now, nil)
}

func noSuchSession(ns string) error {
	return driver.Errorf("", "", fs.ErrNotExist, "namespace %q has no such session, or it has ended", ns)
}

func (s Admin) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	st, err := s.s.Status(ctx)
	if err != nil {
		return nil, Named(err, "status", "")
	}
	out := &pb.StatusResponse{
		Header: &pb.Header{ClusterId: s.s.ClusterID(), MemberId: st.ID, Revision: int64(st.Revision), RaftTerm: st.Term},
		Leader: st.Leader, Serving: st.Serving, Applied: st.Applied, Snapshot: st.SnapshotIndex, Waiting: int64(st.Waiting), Version: uint32(st.Version),
		Check: st.Checked.Index, CheckAgeMs: st.Checked.Ago.Milliseconds(), CheckResult: st.Checked.Nodes[st.ID], Healing: st.Healing, Frozen: st.Frozen, HeldMs: st.Held.Milliseconds(), DiskFull: st.Full,
	}
	for _, e := range st.Members.Endpoints {
		out.Members = append(out.Members, &pb.Member{
			Id: e.ID, PeerAddress: e.Peer, ClientAddress: e.Client, Learner: !slices.Contains(st.Members.Conf.GetVoters(), e.ID),
			LeastVersion: uint32(st.Versions[e.ID].Least), NewestVersion: uint32(st.Versions[e.ID].Newest), CheckResult: st.Checked.Nodes[e.ID],
		})
	}
	return out, nil
}

func (s Admin) ChangeMembers(ctx context.Context, r *pb.ChangeMembersRequest) (*pb.ChangeMembersResponse, error) {
	if err := onlyOperators(ctx); err != nil {
		return nil, err
	}
	c := replica.Change{Promote: r.Promote, Remove: r.Remove}
	var err error
	if c.Add, err = endpoints(r.Add, false); err != nil {
		return nil, err
	}
	if c.Update, err = endpoints(r.Update, false); err != nil {
		return nil, err
	}
	if c.Replace, err = endpoints(r.Replace, true); err != nil {
		return nil, err
	}
	number, err := s.members(ctx, c)
	if err != nil {
		return nil, err
	}
	return &pb.ChangeMembersResponse{Header: s.ownHeader(ctx), Number: number}, nil
}

// members has the group change its members.
func (s Admin) members(ctx context.Context, c replica.Change) (number uint64, err error) {
	err = s.tenured(ctx, func(ctx context.Context) error {
		number, err = s.s.Members(ctx, c)
		return err
	})
	return number, Named(err, c.String(), "")
}

// ownHeader tells the revision of this node, be it the leader or not.
func (s Admin) ownHeader(ctx context.Context) *pb.Header {
	st, _ := s.s.Status(ctx) // a node that has stopped has none
	return s.Header(ctx, st.Revision)
}

// endpoints are members that a change names; known: without addresses they have those of before.
func endpoints(list []*pb.Member, known bool) (all []replica.Endpoint, err error) {
	for _, m := range list {
		if m.GetId() == 0 || m.GetPeerAddress() == "" && !known {
			return nil, Named(Invalid("", "a member needs a number and a peer_address"), "change members", "")
		}
		for _, addr := range []string{m.GetPeerAddress(), m.GetClientAddress()} {
			if addr != "" && !address.Findable(addr) {
				return nil, Named(Invalid("", "at %q node %d cannot be found from elsewhere: name one of its addresses, HOST:PORT", addr, m.GetId()), "change members", "")
			}
		}
		all = append(all, replica.Endpoint{ID: m.Id, Peer: m.PeerAddress, Client: m.ClientAddress})
	}
	return all, nil
}

func (s Admin) MoveLeader(ctx context.Context, r *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	if err := onlyOperators(ctx); err != nil {
		return nil, err
	}
	if r.Id == 0 {
		return nil, Named(Invalid("", "0 is no voter of this group: see holdfast member ls"), "move leader", "")
	}
	if err := s.s.Transfer(ctx, r.Id); err != nil {
		return nil, Named(err, "move leader", "")
	}
	return &pb.MoveLeaderResponse{Header: s.ownHeader(ctx)}, nil
}

func (s Admin) CheckState(ctx context.Context, _ *pb.CheckStateRequest) (*pb.CheckStateResponse, error) {
	if err := onlyOperators(ctx); err != nil {
		return nil, err
	}
	if _, err := s.members(ctx, replica.Change{Check: true}); err != nil {
		return nil, err
	}
	return &pb.CheckStateResponse{Header: s.ownHeader(ctx)}, nil
}

func (s Admin) Unfreeze(ctx context.Context, r *pb.UnfreezeRequest) (*pb.UnfreezeResponse, error) {
	if err := onlyOperators(ctx); err != nil {
		return nil, err
	}
	if _, err := s.members(ctx, replica.Change{Unfreeze: true, Ruler: r.GetId()}); err != nil {
		return nil, err
	}
	return &pb.UnfreezeResponse{Header: s.ownHeader(ctx)}, nil
}

// BackUp writes everything that the node knows.
func (s Admin) BackUp(ctx context.Context, w io.Writer) error {
	return Named(s.s.Backup(ctx, w), "backup", "")
}

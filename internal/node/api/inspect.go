package api

import (
	"cmp"
	"context"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Inspect tells about one name.
func (s *Service) Inspect(ctx context.Context, r *pb.InspectRequest) (*pb.InspectResponse, error) {
	if err := checkName(r.GetName()); err != nil {
		return nil, wire.Status(named(err, "inspect", r.GetName())).Err()
	}
	reply, err := s.node.Inspect(ctx, namespace(ctx), &driver.InspectRequest{Name: r.GetName(), After: r.GetAfter(), Max: int(r.GetLimit())})
	out := &pb.InspectResponse{Revision: uint64(reply.Revision), Next: reply.Next}
	if len(reply.Resources) > 0 {
		out.Resource = wire.Resource(&reply.Resources[0])
	}
	return answered(out, err)
}

// List tells about all names with a prefix.
func (s *Service) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	reply, err := s.node.Inspect(ctx, namespace(ctx), &driver.InspectRequest{
		Name: r.GetPrefix(), Prefix: true, After: r.GetAfter(), Max: cmp.Or(int(max(r.GetLimit(), 0)), 100),
	})
	out := &pb.ListResponse{Revision: uint64(reply.Revision), More: reply.Next != "", Next: reply.Next}
	for i := range reply.Resources {
		out.Resources = append(out.Resources, wire.Resource(&reply.Resources[i]))
	}
	return answered(out, err)
}

// GetSession tells about a session.
func (s *Service) GetSession(ctx context.Context, r *pb.GetSessionRequest) (*pb.GetSessionResponse, error) {
	info, err := s.session(ctx, r)
	out := wire.SessionInfo(&info)
	out.LeaseId, _ = leaseOf(namespace(ctx), core.SessionID(info.ID))
	return answered(out, named(err, "get session", ""))
}

// session finds a session by its id or as a lease.
func (s *Service) session(ctx context.Context, r *pb.GetSessionRequest) (driver.SessionInfo, error) {
	switch n := len(r.GetSession()); {
	case n > 0 && r.GetLeaseId() != 0:
		return driver.SessionInfo{}, invalid("", "session and lease_id are both given: give one")
	case r.GetLeaseId() != 0:
		return s.plain.leaseInfo(ctx, r.GetLeaseId(), r.GetAfter(), int(r.GetLimit()))
	case n != len(core.SessionID{}):
		return driver.SessionInfo{}, invalid("", "a session id has 16 bytes, not %d: give one, or a lease_id", n)
	}
	return s.node.SessionInfo(ctx, namespace(ctx), &driver.SessionInfoRequest{ID: wire.LeaseID(r.GetSession()), After: r.GetAfter(), Max: int(r.GetLimit())})
}

// Ping answers when the node can serve.
func (s *Service) Ping(ctx context.Context, _ *pb.PingRequest) (*pb.PingResponse, error) {
	out := &pb.PingResponse{}
	err := s.node.Look(ctx, func(m *core.Machine) { out.Revision, out.Ordinal = m.Revision(), m.Ordinal() })
	return answered(out, err)
}

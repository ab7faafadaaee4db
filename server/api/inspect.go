package api

import (
	"context"
	"io/fs"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Inspect tells about one name.
func (s *Service) Inspect(ctx context.Context, r *pb.InspectRequest) (*pb.InspectResponse, error) {
	if err := checkName(r.GetName()); err != nil {
		return nil, wire.Status(named(err, "inspect", r.GetName())).Err()
	}
	reply, err := s.node.Inspect(ctx, namespace(ctx), &driver.InspectRequest{Name: r.GetName()})
	out := &pb.InspectResponse{Revision: reply.Revision}
	if len(reply.Resources) > 0 {
		out.Resource = wire.Resource(&reply.Resources[0])
	}
	return answered(out, err)
}

// List tells about all names with a prefix.
func (s *Service) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	reply, err := s.node.Inspect(ctx, namespace(ctx), &driver.InspectRequest{
		Name: r.GetPrefix(), Prefix: true, After: r.GetAfter(), Max: int(max(r.GetLimit(), 0)),
	})
	out := &pb.ListResponse{Revision: reply.Revision, More: reply.More}
	for i := range reply.Resources {
		out.Resources = append(out.Resources, wire.Resource(&reply.Resources[i]))
	}
	return answered(out, err)
}

// GetSession tells about a session.
func (s *Service) GetSession(ctx context.Context, r *pb.GetSessionRequest) (*pb.GetSessionResponse, error) {
	if n := len(r.GetSession()); n != len(core.SessionID{}) {
		return nil, wire.Status(driver.Errorf("get session", "", fs.ErrInvalid, "a session id has 16 bytes, not %d", n)).Err()
	}
	info, err := s.node.SessionInfo(ctx, namespace(ctx), wire.LeaseID(r.GetSession()))
	return answered(wire.SessionInfo(&info), err)
}

// Ping answers when the node can serve.
func (s *Service) Ping(ctx context.Context, _ *pb.PingRequest) (*pb.PingResponse, error) {
	out := &pb.PingResponse{}
	err := s.node.Look(ctx, func(m *core.Machine) { out.Revision = m.Revision() })
	return answered(out, err)
}

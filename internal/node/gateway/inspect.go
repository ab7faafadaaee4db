package gateway

import (
	"cmp"
	"context"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Inspect tells about names of the caller's namespace.
func (g *Gateway) Inspect(ctx context.Context, r *driver.InspectRequest) (driver.InspectReply, error) {
	return g.s.Inspect(ctx, callerOf(ctx).namespace, r)
}

// Inspector is pb.InspectService.
type Inspector struct{ *Gateway }

// whole is an answer, or an error alone.
func whole[R any](r *R, err error) (*R, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Inspect tells about one name.
func (s Inspector) Inspect(ctx context.Context, r *pb.InspectRequest) (*pb.InspectResponse, error) {
	if len(r.GetNames()) > 0 {
		return s.several(ctx, r)
	}
	if err := cmp.Or(CheckName(r.GetName()), CheckLimit(int64(r.GetLimit()))); err != nil {
		return nil, Named(err, "inspect", r.GetName())
	}
	reply, err := s.s.Inspect(ctx, callerOf(ctx).namespace, &driver.InspectRequest{Name: r.GetName(), After: r.GetAfter(), Max: int(r.GetLimit())})
	out := &pb.InspectResponse{Revision: uint64(reply.Revision), Next: reply.Next}
	if len(reply.Resources) > 0 {
		out.Resource = wire.Resource(&reply.Resources[0])
	}
	return whole(out, err)
}

// several tells about several names at one revision.
func (s Inspector) several(ctx context.Context, r *pb.InspectRequest) (*pb.InspectResponse, error) {
	if r.GetName() != "" || r.GetAfter() != "" || r.GetLimit() != 0 || len(r.GetNames()) > core.MaxNames {
		return nil, Named(Invalid("", "names beside name, after or limit, or more than %d of them", core.MaxNames), "inspect", r.GetName())
	}
	for _, name := range r.GetNames() {
		if err := CheckName(name); err != nil {
			return nil, Named(err, "inspect", name)
		}
	}
	reply, err := s.s.Inspect(ctx, callerOf(ctx).namespace, &driver.InspectRequest{Names: r.GetNames()})
	out := &pb.InspectResponse{Revision: uint64(reply.Revision)}
	for i := range reply.Resources {
		out.Resources = append(out.Resources, wire.Resource(&reply.Resources[i]))
	}
	return whole(out, err)
}

// List tells about all names with a prefix.
func (s Inspector) List(ctx context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	if err := CheckLimit(int64(r.GetLimit())); err != nil {
		return nil, Named(err, "list", r.GetPrefix())
	}
	reply, err := s.s.Inspect(ctx, callerOf(ctx).namespace, &driver.InspectRequest{
		Name: r.GetPrefix(), Prefix: true, After: r.GetAfter(), Max: cmp.Or(int(r.GetLimit()), 100),
	})
	out := &pb.ListResponse{Revision: uint64(reply.Revision), More: reply.Next != "", Next: reply.Next}
	for i := range reply.Resources {
		out.Resources = append(out.Resources, wire.Resource(&reply.Resources[i]))
	}
	return whole(out, err)
}

// GetSession tells about a session.
func (s Inspector) GetSession(ctx context.Context, r *pb.GetSessionRequest) (*pb.GetSessionResponse, error) {
	info, err := s.session(ctx, r)
	out := wire.SessionInfo(&info)
	out.LeaseId, _ = leaseOf(callerOf(ctx).namespace, core.SessionID(info.ID))
	return whole(out, Named(err, "get session", ""))
}

// session finds a session by its id or as a lease.
func (s Inspector) session(ctx context.Context, r *pb.GetSessionRequest) (driver.SessionInfo, error) {
	if err := CheckLimit(int64(r.GetLimit())); err != nil {
		return driver.SessionInfo{}, err
	}
	switch n := len(r.GetSession()); {
	case n > 0 && r.GetLeaseId() != 0:
		return driver.SessionInfo{}, Invalid("", "session and lease_id are both given: give one")
	case r.GetLeaseId() != 0:
		return s.LeaseInfo(ctx, r.GetLeaseId(), r.GetAfter(), int(r.GetLimit()))
	case n != len(core.SessionID{}):
		return driver.SessionInfo{}, Invalid("", "a session id has 16 bytes, not %d: give one, or a lease_id", n)
	}
	return s.s.SessionInfo(ctx, callerOf(ctx).namespace, &driver.SessionInfoRequest{ID: wire.LeaseID(r.GetSession()), After: r.GetAfter(), Max: int(r.GetLimit())})
}

// Ping answers when the node can serve.
func (s Inspector) Ping(ctx context.Context, _ *pb.PingRequest) (*pb.PingResponse, error) {
	out := &pb.PingResponse{}
	err := s.s.Look(ctx, func(m *core.Machine, _ int64) { out.Revision, out.Ordinal = m.Revision(), m.Ordinal() })
	return whole(out, err)
}

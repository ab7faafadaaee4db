package remote

import (
	"cmp"
	"context"
	"math"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Ping asks the leader for a linearizable read of nothing.
func (e *engine) Ping(ctx context.Context) error {
	return e.call(ctx, func(ctx context.Context, c *grpc.ClientConn) error {
		_, err := pb.NewInspectServiceClient(c).Ping(ctx, &pb.PingRequest{})
		return err
	})
}

// Inspect lists holders and waiters.
func (e *engine) Inspect(ctx context.Context, r *driver.InspectRequest) (reply driver.InspectReply, err error) {
	err = e.call(ctx, func(ctx context.Context, c *grpc.ClientConn) error {
		inspect := one
		if r.Prefix {
			inspect = list
		}
		reply, err = inspect(ctx, pb.NewInspectServiceClient(c), r)
		return err
	})
	return reply, err
}

func one(ctx context.Context, c pb.InspectServiceClient, r *driver.InspectRequest) (reply driver.InspectReply, err error) {
	m, err := c.Inspect(ctx, &pb.InspectRequest{Name: r.Name, After: r.After, Limit: limit(r.Max), Names: r.Names})
	for _, x := range m.GetResources() {
		reply.Resources = append(reply.Resources, wire.ToResource(x))
	}
	if reply.Revision, reply.Next = driver.Revision(m.GetRevision()), m.GetNext(); m.GetResource() != nil {
		reply.Resources = append(reply.Resources, wire.ToResource(m.GetResource()))
	}
	return reply, err
}

func list(ctx context.Context, c pb.InspectServiceClient, r *driver.InspectRequest) (reply driver.InspectReply, err error) {
	m, err := c.List(ctx, &pb.ListRequest{Prefix: r.Name, After: r.After, Limit: cmp.Or(limit(r.Max), core.MaxNames)})
	reply.Revision, reply.Next = driver.Revision(m.GetRevision()), m.GetNext()
	for _, x := range m.GetResources() {
		reply.Resources = append(reply.Resources, wire.ToResource(x))
	}
	return reply, err
}

// limit is a bound on an answer as the wire has it.
func limit(most int) int32 { return int32(min(max(most, 0), math.MaxInt32)) }

// SessionInfo tells about a session, also of another client's.
func (e *engine) SessionInfo(ctx context.Context, r *driver.SessionInfoRequest) (info driver.SessionInfo, err error) {
	err = e.call(ctx, func(ctx context.Context, c *grpc.ClientConn) error {
		m, err := pb.NewInspectServiceClient(c).GetSession(ctx, &pb.GetSessionRequest{Session: r.ID[:], After: r.After, Limit: limit(r.Max)})
		info = wire.ToSessionInfo(m)
		return err
	})
	return info, err
}

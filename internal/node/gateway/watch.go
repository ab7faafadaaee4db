package gateway

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Follow sends what happens on this node, until ctx ends. From now on means after
// everything that was answered before, which only the leader knows.
func (g *Gateway) Follow(ctx context.Context, r *pb.WatchRequest, send func(*pb.WatchResponse) error) error {
	if r.GetFromRevision() == 0 {
		if err := g.s.Look(ctx, func(*core.Machine, int64) {}); err != nil {
			return err
		}
	}
	feed, first, err := g.s.Feed(callerOf(ctx).namespace, wire.ToWatchRequest(r))
	if err != nil {
		return Named(err, "watch", r.GetPrefix())
	}
	defer feed.Close()
	if err := send(&pb.WatchResponse{ReadyRevision: first, Ordinal: feed.Place().Ordinal}); err != nil {
		return err
	}
	for {
		events, resync, err := feed.Next(ctx)
		if err != nil {
			return err
		}
		m := &pb.WatchResponse{ResyncRevision: resync, Events: wire.Events(events)}
		if resync != 0 {
			m.Ordinal = feed.Place().Ordinal
		}
		if err := send(m); err != nil {
			return err
		}
	}
}

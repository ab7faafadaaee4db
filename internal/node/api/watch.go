package api

import (
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Watch follows what happens on this node. From now on means after everything
// that was answered before, which only the leader knows.
func (s *Service) Watch(r *pb.WatchRequest, client grpc.ServerStreamingServer[pb.WatchResponse]) error {
	ctx := client.Context()
	if r.GetFromRevision() == 0 {
		if err := s.node.Look(ctx, func(*core.Machine) {}); err != nil {
			return wire.Status(err).Err()
		}
	}
	feed, first, err := s.node.Feed(namespace(ctx), wire.ToWatchRequest(r))
	if err != nil {
		return wire.Status(named(err, "watch", r.GetPrefix())).Err()
	}
	defer feed.Close()
	if err := client.Send(&pb.WatchResponse{ReadyRevision: first, Ordinal: feed.Place().Ordinal}); err != nil {
		return err
	}
	for {
		events, resync, err := feed.Next(ctx)
		if err != nil {
			return wire.Status(err).Err()
		}
		m := &pb.WatchResponse{ResyncRevision: resync, Events: wire.Events(events)}
		if resync != 0 {
			m.Ordinal = feed.Place().Ordinal
		}
		if err := client.Send(m); err != nil {
			return err
		}
	}
}

package gateway

import (
	"context"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// Sessions is pb.SessionService.
type Sessions struct {
	*Gateway
}

func (s Sessions) Open(ctx context.Context, r *pb.OpenRequest) (*pb.OpenResponse, error) {
	o, err := s.OpenLease(ctx, r)
	return o, Named(err, "open session", "")
}

func (s Sessions) Keep(ctx context.Context, r *pb.KeepRequest) (*pb.KeepResponse, error) {
	ttl, err := s.CheckRenewal(r.TtlMs)
	if err != nil {
		return nil, Named(err, "keep session", "")
	}
	left, err := s.keepLease(ctx, r.LeaseId, ttl)
	if err != nil {
		return nil, Named(err, "keep session", "")
	}
	return &pb.KeepResponse{Header: s.headerNow(ctx), TtlMs: left.Milliseconds()}, nil
}

func (s Sessions) End(ctx context.Context, r *pb.EndRequest) (*pb.EndResponse, error) {
	h, err := s.EndLease(ctx, r.LeaseId)
	if err != nil {
		return nil, Named(err, "end session", "")
	}
	return &pb.EndResponse{Header: h}, nil
}

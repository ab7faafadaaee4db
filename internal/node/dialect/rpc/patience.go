package rpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"
)

// A gRPC call is given up if its request does not come: it would keep a goroutine
// as long as its connection lives.

type openingKey struct{}

var errSlowRequest = errors.New("the request did not come in time")

// within gives each call a time for its request.
func within(limit time.Duration) tap.ServerInHandle {
	return func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		late := time.AfterFunc(limit, func() { cancel(errSlowRequest) })
		return context.WithValue(ctx, openingKey{}, late), nil
	}
}

// arrived says that the request of a call is there.
func arrived(ctx context.Context) {
	if late, ok := ctx.Value(openingKey{}).(*time.Timer); ok {
		late.Stop()
	}
}

func (s *Services) arrivedUnary(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	arrived(ctx)
	if err := admit(ctx); err != nil {
		return nil, s.status(err).Err()
	}
	return next(ctx, r)
}

// arrivedStream waits for the request of calls that have one; a client's stream
// may be silent.
func (s *Services) arrivedStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := admit(ss.Context()); err != nil {
		return s.status(err).Err()
	}
	if info.IsClientStream {
		arrived(ss.Context())
		return next(srv, ss)
	}
	return next(srv, oneRequest{ss})
}

// oneRequest is a stream to the client only.
type oneRequest struct{ grpc.ServerStream }

func (s oneRequest) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	arrived(s.Context())
	return err
}

// Package api lets programs in any language use a Holdfast node: gRPC for
// Holdfast's own clients and everybody else's.
package api

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// NamespaceHeader names the tenant of a call, in gRPC metadata (in lower case)
// and HTTP headers; absent: default.
const NamespaceHeader = "Holdfast-Namespace"

// Service is the services of one node.
type Service struct {
	node *server.Server
	pb.UnimplementedSessionStreamServer
	pb.UnimplementedInspectServiceServer
	pb.UnimplementedWatchServiceServer
}

// New returns the services of a node.
func New(node *server.Server) *Service { return &Service{node: node} }

// Register adds the services to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	pb.RegisterSessionStreamServer(r, s)
	pb.RegisterInspectServiceServer(r, s)
	pb.RegisterWatchServiceServer(r, s)
}

// namespace is the tenant that a call names.
func namespace(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md.Get(NamespaceHeader); len(v) > 0 && v[0] != "" {
		return v[0]
	}
	return "default"
}

// answered is a response, or the status of an error.
func answered[R any](r R, err error) (R, error) {
	if err != nil {
		var none R
		return none, wire.Status(err).Err()
	}
	return r, nil
}

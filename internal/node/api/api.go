// Package api lets programs in any language use a Holdfast node: it serves gRPC and
// JSON over HTTP on one port, as docs/wire.md describes them.
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
	node  *server.Server
	plain *gateway
	pb.UnimplementedSessionStreamServer
	pb.UnimplementedInspectServiceServer
	pb.UnimplementedWatchServiceServer
}

// New returns the services of a node. Make one for each node, whatever the number
// of ports: it keeps account of the calls that wait.
func New(node *server.Server) *Service { return &Service{node: node, plain: newGateway(node)} }

// Close ends the waits of calls and withdraws what they waited for. Serve does it
// itself; the node goes on.
func (s *Service) Close() {
	s.plain.drain()
	s.plain.close()
}

// Register adds the services to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	r = around{r, s.plain}
	pb.RegisterSessionStreamServer(r, s)
	pb.RegisterInspectServiceServer(r, s)
	pb.RegisterWatchServiceServer(r, s)
	s.plain.register(r)
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

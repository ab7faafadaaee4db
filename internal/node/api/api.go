// Package api lets programs in any language use a Holdfast node: it serves gRPC and
// JSON over HTTP on one port, as docs/wire.md describes them.
package api

import (
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/internal/node/dialect/rest"
	"github.com/holdfast-io/holdfast/internal/node/dialect/rpc"
	"github.com/holdfast-io/holdfast/internal/node/gateway"
	"github.com/holdfast-io/holdfast/internal/node/relay"
	"github.com/holdfast-io/holdfast/server"
)

// Service is the services of one node, in every dialect.
type Service struct {
	node    *server.Server
	gateway *gateway.Gateway
	relay   *relay.Relay
	rpc     *rpc.Services
	rest    *rest.Handler
}

// New returns the services of a node. Make one for each node, whatever the number
// of ports: it keeps account of the calls that wait.
func New(node *server.Server) *Service {
	g := gateway.New(node, rpc.Label)
	r := relay.New(g)
	return &Service{node: node, gateway: g, relay: r, rpc: rpc.New(g, r), rest: rest.New(g, r)}
}

// Close ends the waits of calls and withdraws what they waited for. Serve does it
// itself; the node goes on.
func (s *Service) Close() {
	s.drain(defaultGrace)
	s.gateway.Close()
}

// Register adds the services to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) { s.rpc.Register(r) }

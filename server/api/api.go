// Package api lets programs in any language use a node that runs inside your own:
// gRPC for Holdfast's clients and everybody else's, and JSON over HTTP for the rest,
// all on one port.
//
//	ln, err := net.Listen("tcp", "127.0.0.1:7420")
//	err = api.Serve(ctx, ln, node, api.Config{})
//
// What is there, with examples for curl, is in docs/wire.md.
package api

import (
	"context"
	"net"

	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/server"
)

// Config says how a node is served. The zero value is a plain port on loopback.
//
//	TLS      *tls.Config             spoken on the port, beside plain text; nil: plain text only.
//	                                 If it demands certificates of clients, plain text is refused.
//	Relay    *tls.Config             for calls that are passed on to the leader's port; nil: plain text
//	RelayCAs func() *x509.CertPool   signers of the leader's certificate, asked with each connection;
//	                                 nil: Relay.RootCAs
//	Public   bool                    allows addresses other than loopback. There are no access rules
//	                                 yet: every program that reaches the port can do everything
//	                                 but change the members.
//	Hosts    []string                names that callers may call the node by, beside its addresses,
//	                                 which it knows; calls that name another host are refused
//	PeerCAs  func() *x509.CertPool   signers of the nodes' certificates, with which members can be
//	                                 changed over TLS; nil: only from the machine of the node
//	Admin    net.Listener            profiles (pprof) and metrics, on loopback; nil: none. Serve closes it.
//	Grace    time.Duration           how long calls may go on when the node stops; default 5 s
//	Peek     time.Duration           how long a connection may take for its first bytes, a handshake,
//	                                 the header and the body of a request each; default 10 s
//	Calls    int                     calls under way, default 8,192
//	Waits    int                     calls that wait, watches and streams, default 32,768
//	Streams  int                     of those, on one connection of gRPC, default 4,096
type Config = api.Config

// Serve serves a node on one port: gRPC, HTTP with JSON, health, metrics. It
// returns when ctx ends, after it has handed leadership over to another node if
// there is one and has answered the calls under way, or when the node stops. It
// closes ln, not the node.
func Serve(ctx context.Context, ln net.Listener, node *server.Server, cfg Config) error {
	return api.Serve(ctx, ln, api.New(node), cfg)
}

// Package remote lets a program use a Holdfast server, one node or a replicated
// group, as a Space:
//
//	s, err := holdfast.Open(ctx, "holdfast://a:7420,b:7420,c:7420/orders")
//
// The path is the namespace, "default" if there is none. holdfasts:// is the same
// over TLS. Parameters of the URL name PEM files: holdfast_tls_ca has the authorities
// that sign servers' certificates (without it: the system's), holdfast_tls_cert and
// holdfast_tls_key are the client's own certificate and key:
//
//	holdfasts://a:7420/orders?holdfast_tls_ca=/etc/app/ca.pem
//
// [New] takes any other TLS configuration.
//
// All sessions of a Space share one stream to the leader; it is found, and found
// again after a failover, among the endpoints and the last eight other nodes that were
// named as leaders, by the endpoints or by each other. A broken
// connection loses nothing: a hold ends only when its session's deadline passes
// unrenewed, and then its holder knows before anybody else can be granted.
package remote

// Package transport carries messages between the nodes of a group: ordered for
// each peer, bounded, checksummed, and over mutually authenticated TLS.
//
// Losing a message is allowed, and told; delaying heartbeats behind a snapshot is
// not, so snapshots travel on connections of their own. Both ends of a connection
// say which node they are, which they mean and which cluster they belong to before
// anything else is read: a stray process on the right port is refused.
package transport

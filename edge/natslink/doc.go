// Package natslink links nodes of package edge over NATS: what changes goes by plain
// messages, and the last state of every node is kept in a stream for those that come
// later.
//
//	link, err := natslink.Open(ctx, "nats://user:password@host:4222", nil)
//	defer link.Close()
//	node, err := edge.Open(edge.Config{Actor: hostname, Link: link})
//
// A user name without a password is a token. Parameters of the URL are addr (a further
// server of the cluster; may be repeated), stream, subject, create=false, replicas,
// retention and storage=memory: the fields of [Options]. TLS is used if the server asks
// for it; holdfast_tls_ca, holdfast_tls_cert and holdfast_tls_key name PEM files for it.
// A server from 2.9 on is needed, with JetStream.
//
// # What goes over NATS
//
// Changes go to the subject <subject>.d, once. States go to
// <subject>.s.<node>.<incarnation>.<kind>.<part>, of which a stream keeps the last message
// each: a node that starts, or was away for however long, reads one message for each
// part of each node. Kinds are counters, values (sets and registers) and windows; those of
// windows end by themselves (Nats-TTL) when they do not count any more. Servers before 2.11, and
// streams without allow_msg_ttl, keep them for [Options.Retention], of every incarnation. Messages
// above 256 bytes are compressed with s2 (Content-Encoding: s2).
//
// Nothing waits for an answer. A message that is lost is made good by the node's next
// state, and after a connection that was cut the node asks the others for theirs. The server
// answers each state, and gives it back to its sender as to all: one that the stream refuses, as for lack of space,
// does not answer within 10 s, or has forgotten before it was read, as one with a small max_bytes does, is told by
// [Link.Err], [Options.OnError] and the SendErrors of the node, until the states are kept again: nodes that start,
// or were cut off, do not learn all before.
//
// # When the server is away
//
// Open does not need the server, nodes count on without it, and nothing is kept to be
// sent later: when it is back each node sends its counts of that moment. A stream that
// was purged or deleted is filled again by the nodes that run. Counts of a node that is
// gone are told by the first of those that run and know them, in the order of their names.
//
// # Rights
//
// A user needs to publish to <subject>.> and to $JS.API.STREAM.INFO.<stream>,
// $JS.API.CONSUMER.CREATE.<stream>.>, $JS.API.CONSUMER.DELETE.<stream>.> and
// $JS.FC.<stream>.>, to subscribe to <subject>.d and _INBOX.>, and to publish to
// $JS.API.STREAM.CREATE.<stream> if the stream is to be made.
package natslink

// Package edge counts and limits on many nodes at once without asking anyone: each
// node decides in its own memory, tells the others what it has counted, and all come
// to the same counts.
//
//	node, err := edge.Open(edge.Config{Actor: hostname, Link: link})
//	views, err := node.Counter("views")
//	views.Add(1)
//	logins, err := node.Limiter("logins", edge.LimiterConfig{
//		Rate: limit.Rate{Count: 10, Per: time.Minute, Algorithm: limit.FixedWindow},
//	})
//	d, err := logins.Take(ip, time.Now(), 1)
//
// A [Link] carries messages between nodes and may lose, repeat, delay and reorder
// them. Messages have absolute counts, which are merged by the greater, so none of
// that makes a count wrong: what was lost is in the next whole state.
//
// # What a limit promises
//
// A decision waits for nobody and knows what the others had told by then, so several
// nodes together can admit more than the rate: in a window at most what the others
// admit within one [Config.Flush] and the time of a message, and while nodes cannot
// hear each other up to the whole rate each. [LimiterConfig.LocalCap] bounds what
// each node admits, and so the price of a partition. What a window admitted too much
// is owed, and taken off the next ones. A limit that must never admit too much has to
// ask one place; this one is for load, not for money.
//
// # Time
//
// Windows are numbered by the clock, which has to agree between nodes to a small part
// of a window; buckets (GCRA) need less, since counts are taken from them when they
// come. Counts from more than one window ahead are ignored and counted, so a
// node with a clock far off limits nobody but itself.
//
// # Actors
//
// [Config.Actor] names the node by any text that no other running node has. A node
// keeps its counts in memory: after a restart it is a new incarnation, which learns
// from the others what it had told them. What it had counted after its last flush is
// lost with it. A counter keeps one part for each name that ever counted, since nobody can
// know that a node is gone for good and has told all: incarnations of one name are folded a day
// after they were last heard, names never. Use names that are used again, as hosts or the pods
// of a StatefulSet have; a uid of a pod is for nodes that have only limiters. Two running nodes of one name are told by [Config.OnConflict].
package edge

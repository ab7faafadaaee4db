// Package memhold keeps a Space in memory: locks, counters, keys and all else
// that Holdfast has, for one process and as long as it runs.
//
// Use it in tests, in programs that may grow to several processes later, and
// wherever goroutines need what package sync does not have: fair queues,
// timeouts, sessions, fencing tokens, elections, watches.
//
//	s := memhold.Open()
//	defer s.Close()
//
// By URL, "mem:" is a memory of its own and "mem://name" one that all in
// the process share that open that name, until the last of them closes it.
//
// It is the state machine of the server with the network left out: the same
// sessions, the same commands, the same order, answered within a few
// microseconds. All features are there but two: nothing survives the process
// ("durable"), and no other machine can take part ("many-machines"). Holds are
// renewed in the background; nobody loses one unless the process stops for as
// long as the TTL. It works under the fake time of testing/synctest.
package memhold

// Package replica is a whole Holdfast node as a pure step: give it ticks, peer
// messages, client messages and word from the disk, and it tells what to write,
// to send and to answer.
//
// A [Node] owns the raft state, the machine of package core, cluster time and
// the session streams. It starts no goroutine, reads no clock and does no I/O;
// the shells around it do, and a simulation can stand in for them all. Its one
// source of chance is the election jitter that the raft library draws from
// crypto/rand.
//
// # Duties of the shell
//
// After every input take [Node.Output] and
//
//  1. write Writes to disk in order, and call [Node.Written] when they are
//     durable; several may share one sync;
//  2. send Messages to their peers, in order for each peer; losing one is
//     allowed;
//  3. hand Frames to their streams, and close the streams in Closed;
//  4. publish Events;
//  5. look after Snapshot, SendSnapshots, Compact and Mark.
//
// Time is the shell's elapsed time in nanoseconds, never going back.
package replica

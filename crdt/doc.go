// Package crdt counts and keeps sets and registers on many nodes that do not wait
// for each other, and lets them agree afterwards: whatever is lost, repeated or
// comes out of order on the way, nodes that have heard of the same changes have the
// same value.
//
// Every type is delta-state: a change returns a delta, which is a small value of the
// same type, and Merge joins deltas and whole states alike.
//
//	d := c.Add(me, 1)     // on one node
//	other.Merge(d)        // on the others, once or more, in any order
//
// There are [GCounter] and [PNCounter], [GSet] and [ORSet], [Register] and [Map]. All
// are pure: no lock, no clock, no network. A caller that shares one between goroutines
// locks it itself, and moves the deltas.
//
// # Actors
//
// An [Actor] is a node and its incarnation. An actor's part is written by that actor
// alone and only grows, so the greater of two reports is the later one. A node that
// starts without its old state takes the next incarnation: under the old one its
// first changes would look like old ones and be lost.
//
// # Encoding
//
// Append and Decode speak a format with a version and a checksum. What is cut off,
// flipped or of a newer version is refused, and the receiver stays as it was.
package crdt

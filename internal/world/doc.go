// Package world runs whole groups of production nodes, with their Go, gRPC and
// REST clients, in a world that crashes, cuts, delays and forgets, and judges
// every answer.
//
// Where package sim runs the pure step of a node under a shell of its own, here
// the shells run too: loop, writer, snapshots, transport, gateway, relay, package
// remote and what is below it. Only the machine is not real: an in-memory network
// and package simdisk. Time is that of a bubble of testing/synctest, so that a
// minute takes as long as its computation does.
//
//	synctest.Test(t, func(t *testing.T) {
//		res := world.Run(world.Options{Seed: 7})
//	})
//
// A seed decides the size of the world, the load of each client and the faults. It
// does not decide the order in which goroutines run: the same seed gives the same
// faults, not the same history. Clocks all go at the same rate; package sim has
// those that do not.
package world

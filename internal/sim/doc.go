// Package sim runs whole clusters of Holdfast in one goroutine, under a
// simulated world that crashes, cuts, delays, stops and forgets, and checks at
// every step what the product promises.
//
// The code that runs is the product's own: replica, disk, storage, core and
// session. Only their surroundings are simulated: clocks with rates of their own,
// links that lose, repeat and reorder, disks that lose what was not synced. A
// seed decides everything, so that a failure can be replayed to the last bit.
//
//	res := sim.Run(sim.Options{Seed: 7})
//	if res.Violation != "" { … }
//
// Only one simulation at a time may run in a process: the raft library draws its
// election jitter from a source that is global.
package sim

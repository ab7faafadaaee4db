// Package gather finds out what a guard asks, and waits until it passes.
//
//	g := gather.New(gather.Config{Space: space, Dir: "."})
//	c := guard.All(guard.LockFree("main-branch"), guard.Not(guard.FileExists(".freeze")))
//	result, err := g.Wait(ctx, &c, gather.WaitOptions{})
//
// Locks, semaphores, counters, elections and keys are read from a Space, branches by the
// git program, issues from GitHub or a file; files, sessions and commands are looked at
// here. A [Source] of your own adds to these or takes the place of one.
//
// Every fact has a bound on its time: what does not answer is an error of that leaf, and
// the others are decided without it. A wait is woken by the events of the Space (of
// counters only where the backend keeps a history, else within a second), by the
// instants of time windows, and for the rest by looking again every so often; a slow
// re-check of everything heals what no event told.
//
// Names from a condition never become options of a program or text of a shell: see [Git],
// [Sessions] and [Commands].
package gather

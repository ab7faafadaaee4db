// Package pipeline decides what a run of several phases does next: wait for a condition,
// take what the phase holds, start its command, verify, try again, go to the phase for
// failures, or ask how a command ended that nobody saw. It also decides which of several runs
// that wait for the same place starts next, and which of them a newer one replaces.
//
//	d := pipeline.Definition{Name: "release", Phases: []pipeline.Phase{
//		pipeline.NewPhase("build", "make", "dist"),
//		pipeline.NewPhase("deploy", "./deploy").
//			WithPre(guard.FileNotExists("freeze")).
//			WithHolds(pipeline.Want{Kind: "lock", Name: "prod"}),
//	}}
//	state, effects, err := d.Step(state, pipeline.Event{Kind: pipeline.Submitted, At: now})
//
//	q, err := pipeline.NewQueue(pipeline.CancelOlder)
//	replaced, err := q.Join(pipeline.Run{ID: "build-7"})
//	next, ok := q.Start() // when there is a place
//	q.Leave(next.ID)      // when it has ended
//
// The package is pure: it starts nothing, waits for nothing and knows no clock. What has
// happened is told by events, which carry their time; what is to be done is an answer. The
// same events in the same order give the same states and effects, so a log of events is a
// run that survives its runner.
package pipeline

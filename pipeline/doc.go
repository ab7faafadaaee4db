// Package pipeline decides which of several runs that wait for the same place starts
// next, and which of them a newer one replaces.
//
//	q, err := pipeline.NewQueue(pipeline.CancelOlder)
//	replaced, err := q.Join(pipeline.Run{ID: "build-7"})
//	next, ok := q.Start() // when there is a place
//	q.Leave(next.ID)      // when it has ended
//
// The package is pure: it starts nothing, and what has to be cancelled is an answer.
// The same calls in the same order give the same answers.
package pipeline

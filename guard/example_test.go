package guard_test

import (
	"fmt"

	"github.com/holdfast-io/holdfast/guard"
)

func Example() {
	c := guard.All(
		guard.LockFree("main-branch"),
		guard.SemaphoreAvailable("agents", 2),
		guard.Not(guard.FileExists(".freeze")),
	)
	facts := guard.Inputs{
		{Source: guard.SourceLock, Name: "main-branch"}: {Is: true, Text: "deploy-7"},
		{Source: guard.SourceSemaphore, Name: "agents"}: {Number: 3},
		{Source: guard.SourceFile, Name: ".freeze"}:     {},
	}
	fmt.Println(c.Evaluate(facts))
	// Output:
	// failed
	//   ✗ the lock "main-branch" is free (held by "deploy-7"): it is waited for until "deploy-7" releases it
	//   ✓ the semaphore "agents" has 2 free (3 available)
	//   ✓ not: the file ".freeze" exists (no)
}

package guardtest_test

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/guard/guardtest"
)

func Example() {
	facts := guardtest.New()
	g := gather.New(gather.Config{Sources: facts.Sources()})
	c := guard.BranchMerged("feature/x", "main")
	fmt.Println(g.Evaluate(context.Background(), &c).Outcome)
	facts.Set(c.Input(), guard.Fact{Is: true})
	fmt.Println(g.Evaluate(context.Background(), &c).Outcome)
	facts.Break(c.Input(), "the repository is gone")
	fmt.Println(g.Evaluate(context.Background(), &c).Outcome)
	// Output:
	// needs_input
	// passed
	// error
}

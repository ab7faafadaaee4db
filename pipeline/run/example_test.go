package run_test

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/memhold"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// printing is a Runner that only says what it would run.
type printing struct{}

func (printing) Run(c *run.Command) (run.Exit, error) {
	fmt.Println(c.Phase+":", c.Args)
	return run.Exit{}, nil
}

func Example() {
	ctx := context.Background()
	s, err := holdfast.New(memhold.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	p, err := run.New(run.Config{Space: s, Runner: printing{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ref, err := p.Submit(ctx, run.Submission{Definition: &pipeline.Definition{Name: "release", Phases: []pipeline.Phase{
		pipeline.NewPhase("build", "make", "dist"),
		pipeline.NewPhase("deploy", "./deploy").WithPre(guard.KeyAbsent("freeze")).WithHolds(pipeline.Want{Kind: "lock", Name: "prod"}),
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	state, err := p.Run(ctx, ref)
	fmt.Println(ref, "is", state.Status, err)
	// Output:
	// build: [make dist]
	// deploy: [./deploy]
	// release/1 is done <nil>
}

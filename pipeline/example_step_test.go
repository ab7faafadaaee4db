package pipeline_test

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/pipeline"
)

func ExampleDefinition_Step() {
	d := &pipeline.Definition{Name: "release", Phases: []pipeline.Phase{
		pipeline.NewPhase("deploy", "./deploy").
			WithPre(guard.FileNotExists("freeze")).
			WithHolds(pipeline.Want{Kind: "lock", Name: "prod"}),
	}}
	if err := d.Check(); err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 11, 16, 9, 0, 0, 0, time.UTC)
	var s pipeline.State
	for _, e := range []pipeline.Event{
		{Kind: pipeline.Submitted},
		{Kind: pipeline.Admitted},
		{Kind: pipeline.Checked, Phase: "deploy", Attempt: 1, Outcome: guard.Failed, Reason: "freeze exists"},
		{Kind: pipeline.Checked, Phase: "deploy", Attempt: 1, Outcome: guard.Passed},
		{Kind: pipeline.Acquired, Phase: "deploy", Attempt: 1, Token: 33},
		{Kind: pipeline.Launched, Phase: "deploy", Attempt: 1},
		{Kind: pipeline.TakenOver}, // the runner was lost
	} {
		e.At = at
		next, effects, err := d.Step(s, e)
		if err != nil {
			fmt.Println(err)
			return
		}
		s = next
		fmt.Print(e.Kind, " → ", s.Status, ":")
		for _, f := range effects {
			if f.Kind != pipeline.Tell {
				fmt.Print(" ", f.Kind)
			}
		}
		fmt.Println()
	}
	fmt.Println(s.Reason)
	// Output:
	// submitted → queued: enqueue
	// admitted → blocked: check
	// checked → blocked:
	// checked → acquiring: acquire
	// acquired → launching: launch
	// launched → running: start
	// taken over → unknown: ask
	// its runner was lost while the command ran: say how it ended
}

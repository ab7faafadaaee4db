package cli

import (
	"testing"

	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// The tree says ✓ of phases that have succeeded, and of no others.
func TestReportTree_Failures(t *testing.T) {
	phase := func(name, next string, recovery bool) pipeline.Phase {
		return pipeline.Phase{Name: name, Run: []string{"x"}, OnFailure: next, Recovery: recovery}
	}
	d := &pipeline.Definition{Name: "ship", Phases: []pipeline.Phase{
		phase("build", "", false), phase("test", "report", false), phase("sign", "", false), phase("report", "clean", false), phase("deploy", "", false), phase("clean", "", true),
	}}
	for _, c := range []struct {
		state pipeline.State
		want  string
	}{
		{pipeline.State{Status: pipeline.Running, Phase: "test", Attempt: 1}, "\n  ✓ build\n  … test: running\n  · sign\n  · report\n  · deploy"},
		{pipeline.State{Status: pipeline.Running, Phase: "report", Attempt: 1, Failed: []string{"test"}}, "\n  ✓ build\n  ✗ test\n  · sign\n  … report: running\n  · deploy"},
		{pipeline.State{Status: pipeline.Done, Phase: "deploy", Attempt: 1, Failed: []string{"test"}}, "\n  ✓ build\n  ✗ test\n  · sign\n  ✓ report\n  ✓ deploy"},
		{pipeline.State{Status: pipeline.Failed, Phase: "clean", Attempt: 1, Failed: []string{"test", "report"}}, "\n  ✓ build\n  ✗ test\n  · sign\n  ✗ report\n  · deploy\n  ✓ clean"},
		{pipeline.State{Status: pipeline.Failed, Phase: "clean", Attempt: 1, Failed: []string{"test", "report", "clean"}}, "\n  ✓ build\n  ✗ test\n  · sign\n  ✗ report\n  · deploy\n  ✗ clean"},
		{pipeline.State{Status: pipeline.Failed, Phase: "build", Attempt: 1, Failed: []string{"build"}}, "\n  ✗ build\n  · test\n  · sign\n  · report\n  · deploy"},
	} {
		got := reportTree(&run.Report{Ref: run.Ref{Pipeline: "ship", ID: "1"}, Definition: d, State: c.state}, nil)
		if want := "ship/1: " + string(c.state.Status) + c.want; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

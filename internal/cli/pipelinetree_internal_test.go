package cli

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

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

// A run that goes on in the moment in which --wait is over is not left: a command that has begun would be ended.
func TestBound_GoesOn(t *testing.T) {
	for status, want := range map[pipeline.Status]bool{pipeline.Running: false, pipeline.Acquiring: false, pipeline.Blocked: true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancelCause(t.Context())
			tree := &liveTree{at: pipeline.State{Status: pipeline.Blocked}}
			tree.bound(time.Second, stop)
			tree.mu.Lock() // told has it
			time.Sleep(time.Second)
			tree.count(&pipeline.State{Status: status})
			tree.mu.Unlock()
			synctest.Wait()
			if got := errors.Is(context.Cause(ctx), errBlocked); got != want {
				t.Errorf("%s: left: %t", status, got)
			}
			tree.stop()
		})
	}
}

// A run that was left is told with what is to be done next: of one that asks how a command ended, to say so.
func TestOutcomeOf_Hint(t *testing.T) {
	for status, want := range map[pipeline.Status]string{
		pipeline.Blocked: "go on with holdfast pipeline run --resume ship/1",
		pipeline.Unknown: "say how its command ended: holdfast pipeline approve ship/1",
	} {
		err := (&app{}).outcomeOf(run.Ref{Pipeline: "ship", ID: "1"}, pipeline.State{Status: status}, context.Canceled, errBlocked)
		if f := failureOf(err); f.code != exitTimeout || f.hint != want {
			t.Errorf("%s: %+v", status, f)
		}
	}
}

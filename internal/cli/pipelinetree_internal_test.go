package cli

import (
	"context"
	"errors"
	"os"
	"strings"
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

// guards.md: "Of a phase it is that of the run that is in it", in whatever status that is, and each is in the table there.
func TestReportJSON_Statuses(t *testing.T) {
	text, err := os.ReadFile("../../docs/guards.md")
	if err != nil {
		t.Fatal(err)
	}
	d := &pipeline.Definition{Name: "ship", Phases: []pipeline.Phase{pipeline.NewPhase("build", "x"), pipeline.NewPhase("test", "x"), pipeline.NewPhase("sign", "x"), {Name: "clean", Recovery: true}}}
	d.Phases[1].OnFailure = "clean"
	told := func(s pipeline.State) (names string) {
		for _, ph := range reportJSON(&run.Report{Definition: d, State: s}).Phases {
			if names += ph.Name + " " + string(ph.Status) + ", "; !strings.Contains(string(text), "\n| `"+string(ph.Status)+"` |") {
				t.Errorf("the status %q is not in docs/guards.md", ph.Status)
			}
		}
		return names
	}
	for _, s := range []pipeline.Status{pipeline.Blocked, pipeline.Acquiring, pipeline.Launching, pipeline.Running, pipeline.Verifying, pipeline.Pausing, pipeline.Unknown, pipeline.Stopping, pipeline.Cancelled} {
		if got, want := told(pipeline.State{Status: s, Phase: "test"}), "build done, test "+string(s)+", sign not_entered, clean not_entered, "; got != want {
			t.Errorf("%s: %s; want %s", s, got, want)
		}
	}
	for want, s := range map[string]pipeline.State{
		"build not_entered, test not_entered, sign not_entered, clean not_entered, ": {Status: pipeline.Queued},
		"build done, test done, sign done, clean not_entered, ":                      {Status: pipeline.Done, Phase: "sign"},
		"build failed, test not_entered, sign not_entered, clean not_entered, ":      {Status: pipeline.Failed, Phase: "build", Failed: []string{"build"}},
		"build done, test failed, sign not_entered, clean running, ":                 {Status: pipeline.Running, Phase: "clean", Failed: []string{"test"}},
		"build done, test failed, sign not_entered, clean done, ":                    {Status: pipeline.Failed, Phase: "clean", Failed: []string{"test"}},
	} {
		if got := told(s); got != want {
			t.Errorf("%+v: %s; want %s", s, got, want)
		}
		if !strings.Contains(string(text), "\n| `"+string(s.Status)+"` |") {
			t.Errorf("the status %q is not in docs/guards.md", s.Status)
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
		err := (&app{}).outcomeOf(&run.Report{Ref: run.Ref{Pipeline: "ship", ID: "1"}, State: pipeline.State{Status: status}}, context.Canceled, errBlocked)
		if f := failureOf(err); f.code != exitTimeout || f.hint != want {
			t.Errorf("%s: %+v", status, f)
		}
	}
}

// What cannot be said of a run that has lost its runner is asked once somebody has gone on with it.
func TestHintAfterNo(t *testing.T) {
	ref := run.Ref{Pipeline: "ship", ID: "1"}
	for want, rep := range map[string]run.Report{
		"no program runs it: holdfast pipeline run --resume ship/1": {State: pipeline.State{Status: pipeline.Running}},
		"holdfast pipeline why ship/1 tells what it waits for":      {State: pipeline.State{Status: pipeline.Running}, Runner: "ann"},
		"holdfast pipeline status ship/1 tells where it stands":     {State: pipeline.State{Status: pipeline.Done}},
	} {
		if got := hintAfterNo(ref, &rep); got != want {
			t.Errorf("%s %q: %q", rep.State.Status, rep.Runner, got)
		}
	}
}

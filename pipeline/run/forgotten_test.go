//go:build unix

package run_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// headOfFirst is where the first run of release has its state.
const headOfFirst = "holdfast/pipelines/release/run/1"

// A backend forgets the last events that it has kept, as after a failover to a server that did not
// have them yet: the run goes on with what is kept.
func TestForgotten(t *testing.T) {
	s, other := backends.Open(t, "memory")
	p := pipelines(t, run.Config{Space: s})
	r, done := blockedOn(t, p, "go"), make(chan pipeline.State, 1)
	before, err := other.KV().Get(t.Context(), headOfFirst)
	ok(t, err)
	go func() { done <- ended(t, p, r) }()
	seq := until(t, p, r, func(rep *run.Report) bool { return rep.State.Reason != "" }).Events
	_, err = other.KV().Txn(t.Context(), holdfast.Txn{Then: []holdfast.Op{
		holdfast.PutOp(headOfFirst, withTokenOf(t, other, before.Value)), holdfast.DeleteRangeOp("holdfast/pipelines/release/log/1/00000000"),
	}})
	ok(t, err)
	until(t, p, r, func(rep *run.Report) bool { return rep.State.Reason != "" && rep.Events >= seq-1 })
	_, err = other.KV().Put(t.Context(), "go", nil)
	ok(t, err)
	if last := <-done; last.Status != pipeline.Done {
		t.Errorf("it is %+v", last)
	}
}

// The event that was forgotten has given its number to another's: that one counts.
func TestForgotten_AnotherInItsPlace(t *testing.T) {
	s, other := backends.Open(t, "memory")
	p := pipelines(t, run.Config{Space: s})
	r, done := blockedOn(t, p, "go"), make(chan pipeline.State, 1)
	go func() { done <- ended(t, p, r) }()
	until(t, p, r, func(rep *run.Report) bool { return rep.State.Reason != "" })
	e, err := other.KV().Get(t.Context(), headOfFirst)
	ok(t, err)
	head := changed(t, e.Value, func(head map[string]any) {
		head["by"] = "another"
		head["state"].(map[string]any)["status"] = pipeline.Cancelled
	})
	_, err = other.KV().Put(t.Context(), headOfFirst, head)
	ok(t, err)
	_, err = other.KV().Put(t.Context(), "go", nil) // it would go on, if the other event were not there
	ok(t, err)
	if last := <-done; last.Status != pipeline.Cancelled {
		t.Errorf("it is %+v", last)
	}
}

// A run with a condition that this program does not know, of a later version, says so.
func TestUnknownCondition(t *testing.T) {
	s, other := backends.Open(t, "memory")
	p := pipelines(t, run.Config{Space: s})
	r := blockedOn(t, p, "go")
	const key = "holdfast/pipelines/release/definition/1"
	e, err := other.KV().Get(t.Context(), key)
	ok(t, err)
	_, err = other.KV().Put(t.Context(), key, bytes.Replace(e.Value, []byte(`"Kind":"key"`), []byte(`"Kind":"keyhole"`), 1))
	ok(t, err)
	leave := going(t, p, r)
	defer leave()
	given := time.Now().Add(20 * time.Second)
	rep := until(t, p, r, func(rep *run.Report) bool { return rep.State.Reason != "" || time.Now().After(given) })
	if !strings.Contains(rep.State.Reason, "the kind is unknown") {
		t.Errorf("it is %+v", rep.State)
	}
}

// blockedOn submits a run that waits for a key.
func blockedOn(t *testing.T, p *run.Pipelines, key string) run.Ref {
	t.Helper()
	return submit(t, p, release(pipeline.NewPhase("deploy").WithPre(guard.KeyExists(key))))
}

// withTokenOf is an earlier head, with the runner that has the run now.
func withTokenOf(t *testing.T, s *holdfast.Space, head []byte) []byte {
	t.Helper()
	e, err := s.KV().Get(t.Context(), headOfFirst)
	ok(t, err)
	var now struct{ Token uint64 }
	ok(t, json.Unmarshal(e.Value, &now))
	return changed(t, head, func(head map[string]any) { head["token"] = now.Token })
}

func changed(t *testing.T, text []byte, change func(map[string]any)) []byte {
	t.Helper()
	var m map[string]any
	ok(t, json.Unmarshal(text, &m))
	change(m)
	b, err := json.Marshal(m)
	ok(t, err)
	return b
}

// A program without a Runner does not take over a run with a command.
func TestRun_WithoutRunner(t *testing.T) {
	s, other := backends.Open(t, "memory")
	p, q := pipelines(t, run.Config{Space: s, Runner: commands(succeed)}), pipelines(t, run.Config{Space: other})
	r := submit(t, p, release(pipeline.NewPhase("wait"), pipeline.NewPhase("deploy", "./deploy")))
	if _, err := q.Run(t.Context(), r); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without a Runner: %v", err)
	}
	if last := ended(t, p, r); last.Status != pipeline.Done {
		t.Errorf("it is %+v", last)
	}
}

// A command that takes the signal for a wish, and ends well, was interrupted all the same: its phase
// has not succeeded, and the next one does not run.
func TestLeave_EndsWell(t *testing.T) {
	for _, retries := range []int{0, 1} {
		s, _ := backends.Open(t, "memory")
		var phases []string
		endsWell, began := begun(func(c *run.Command) (run.Exit, error) {
			if phases = append(phases, c.Phase); len(phases) == 1 {
				<-c.Stop
			}
			return succeed(c)
		})
		p := pipelines(t, run.Config{Space: s, Runner: endsWell})
		build := pipeline.NewPhase("build", "make")
		build.Retries = retries
		r := submit(t, p, release(build, pipeline.NewPhase("deploy", "./deploy")))
		ok(t, left(t, p, r, began))
		rep := until(t, p, r, func(*run.Report) bool { return true })
		if retries == 0 && (rep.State.Status != pipeline.Failed || rep.State.Code != 0 || !strings.HasSuffix(rep.State.Reason, "with exit code 0")) || rep.State.Phase != "build" {
			t.Errorf("left with %d retries it is %+v", retries, rep.State)
		}
		if last := ended(t, p, r); (last.Status == pipeline.Done) != (retries > 0) || len(phases) != 1+2*retries {
			t.Errorf("with %d retries it ran %q, and is %+v", retries, phases, last)
		}
	}
}

// A command that had ended by itself when its runner was told to end it has ended as it did, also if the
// end of its output was still awaited.
func TestLeave_EndedBefore(t *testing.T) {
	s, _ := backends.Open(t, "memory")
	var phases []string
	endsItself, began := begun(func(c *run.Command) (run.Exit, error) {
		if phases = append(phases, c.Phase); len(phases) == 1 {
			<-c.Stop
		}
		return run.Exit{Itself: true}, nil
	})
	p := pipelines(t, run.Config{Space: s, Runner: endsItself})
	r := submit(t, p, release(pipeline.NewPhase("build", "make"), pipeline.NewPhase("deploy", "./deploy")))
	ok(t, left(t, p, r, began))
	if last := ended(t, p, r); last.Status != pipeline.Done || len(phases) != 2 {
		t.Errorf("it ran %q, and is %+v", phases, last)
	}
}

// A program that is not there was not ended by its runner, also if that was told to end it.
func TestLeave_CannotRun(t *testing.T) {
	s, _ := backends.Open(t, "memory")
	cannot, began := begun(func(c *run.Command) (run.Exit, error) {
		<-c.Stop
		return run.Exit{}, fs.ErrNotExist
	})
	p := pipelines(t, run.Config{Space: s, Runner: cannot})
	build := pipeline.NewPhase("build", "make")
	build.Retries = 2
	r := submit(t, p, release(build))
	ok(t, left(t, p, r, began))
	rep := until(t, p, r, func(*run.Report) bool { return true })
	if rep.State.Status != pipeline.Failed || rep.State.Code != 127 || !strings.Contains(rep.State.Reason, "cannot be run") {
		t.Errorf("it is %+v", rep.State)
	}
}

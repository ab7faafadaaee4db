package run_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// A backend that is deleted while a command runs does not come back: the run ends with an error that says so.
func TestRun_Deleted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := pipelines(t, run.Config{Space: backends.Client(t, "file:"+dir), Runner: commands(func(c *run.Command) (run.Exit, error) {
		return run.Exit{}, os.RemoveAll(dir)
	})})
	r := submit(t, p, release(pipeline.NewPhase("deploy", "./deploy").WithHolds(prod), pipeline.NewPhase("next", "true")))
	ended := make(chan error, 1)
	go func() {
		_, err := p.Run(t.Context(), r)
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, holdfast.ErrClosed) || !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it has not ended")
	}
}

// So it is with a run that waits.
func TestRun_DeletedMeanwhile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	waits := make(chan struct{})
	told := sync.OnceFunc(func() { close(waits) })
	p := pipelines(t, run.Config{Space: backends.Client(t, "file:"+dir), Runner: commands(nil), Told: func(_ run.Ref, s pipeline.State) {
		if s.Status == pipeline.Blocked {
			told()
		}
	}})
	r := submit(t, p, release(pipeline.NewPhase("deploy", "./deploy").WithPre(guard.KeyExists("ready"))))
	ended := make(chan error, 1)
	go func() {
		_, err := p.Run(t.Context(), r)
		ended <- err
	}()
	<-waits
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it has not ended")
	}
}

//go:build unix

package run_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// docs/guards.md: "A run that is resumed after that is looked at once more": it goes on if all is there now, and fails for
// what is missing now, with and without holds, before and after the command.
func TestOverdue(t *testing.T) {
	both := guard.All(guard.KeyExists("one"), guard.KeyExists("two"))
	for what, ph := range map[string]pipeline.Phase{
		"when":            pipeline.NewPhase("deploy", "./deploy").WithPre(both),
		"when and holds":  pipeline.NewPhase("deploy", "./deploy").WithPre(both).WithHolds(prod),
		"until":           pipeline.NewPhase("deploy", "./deploy").WithPost(both, time.Hour),
		"until and holds": pipeline.NewPhase("deploy", "./deploy").WithPost(both, time.Hour).WithHolds(prod),
	} {
		ph.Wait = time.Hour
		t.Run(what, func(t *testing.T) {
			if s := overdue(t, ph, "one", "two"); s.Status != pipeline.Done {
				t.Errorf("all is there now, and it is %+v", s)
			}
		})
		t.Run(what+" of which a part is missing", func(t *testing.T) {
			if s := overdue(t, ph, "one"); s.Status != pipeline.Failed || !strings.Contains(s.Reason, "two") || strings.Contains(s.Reason, "one") {
				t.Errorf("two is missing, and it is %+v", s)
			}
		})
	}
}

// overdue leaves a run that waits, and resumes it when its time is over, with some keys.
func overdue(t *testing.T, ph pipeline.Phase, keys ...string) pipeline.State {
	s, _ := backends.Open(t, "memory")
	later, began := atomic.Int64{}, time.Now()
	clock := func() time.Time { return began.Add(time.Duration(later.Load())) }
	p := pipelines(t, run.Config{Space: s, Runner: commands(succeed), Now: clock})
	r := submit(t, p, release(ph))
	leave := going(t, p, r)
	until(t, p, r, func(rep *run.Report) bool {
		return strings.Contains(rep.State.Reason, "one") && strings.Contains(rep.State.Reason, "two")
	})
	leave()
	later.Store(int64(2 * time.Hour))
	for _, key := range keys {
		_, err := s.KV().Put(t.Context(), key, nil)
		ok(t, err)
	}
	return ended(t, p, r)
}

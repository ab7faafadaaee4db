package run_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/memhold"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// A phase that waits for a limiter goes on as soon as its rate is raised, its key reset, or it is made anew.
func TestLimits_Wakes(t *testing.T) {
	slow, fast := limit.Rate{Count: 1, Per: time.Hour}, limit.Rate{Count: 100, Per: time.Second}
	for what, change := range map[string]func(*testing.T, *holdfast.Limiter){
		"a new rate": func(t *testing.T, l *holdfast.Limiter) { ok(t, l.SetRate(t.Context(), fast)) },
		"a reset":    func(t *testing.T, l *holdfast.Limiter) { ok(t, l.Reset(t.Context(), "ann")) },
		"made anew": func(t *testing.T, l *holdfast.Limiter) {
			ok(t, l.Delete(t.Context()))
			synctest.Wait()
			ok(t, l.SetRate(t.Context(), fast))
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memhold.Open()
				defer s.Close()
				api := s.Limiter("api", slow)
				_, err := api.Allow(t.Context(), "ann")
				ok(t, err)
				p := pipelines(t, run.Config{Space: s, Runner: commands(succeed), Recheck: 30 * time.Minute})
				r := submit(t, p, release(pipeline.NewPhase("deploy", "./deploy").WithLimits(pipeline.Limit{Limiter: "api", Key: "ann", Cost: 1})))
				done := make(chan pipeline.State)
				go func() { done <- ended(t, p, r) }()
				time.Sleep(10 * time.Second)
				if rep := until(t, p, r, func(*run.Report) bool { return true }); rep.State.Status != pipeline.Launching {
					t.Fatalf("it is %+v", rep.State)
				}
				before := time.Now()
				change(t, api)
				if last := <-done; last.Status != pipeline.Done || time.Since(before) > time.Second {
					t.Errorf("it is %s, %s after the change", last.Status, time.Since(before))
				}
			})
		})
	}
}

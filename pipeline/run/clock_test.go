//go:build unix

package run_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/limit"
	"github.com/holdfast-io/holdfast/memhold"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// TestWhen_ClockSetBack: what has changed during a long wait for a lock or a limiter is seen before the command starts
// also if the clock of the runner, one of its caller's, was set back meanwhile.
func TestWhen_ClockSetBack(t *testing.T) {
	ph := pipeline.NewPhase("deploy", "./deploy").WithPre(guard.KeyAbsent("freeze"))
	for status, ph := range map[pipeline.Status]pipeline.Phase{
		pipeline.Acquiring: ph.WithHolds(prod),
		pipeline.Launching: ph.WithLimits(pipeline.Limit{Limiter: "deploys", Cost: 1}),
	} {
		t.Run(string(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { clockSetBack(t, status, ph) })
		})
	}
}

func clockSetBack(t *testing.T, at pipeline.Status, ph pipeline.Phase) {
	s := memhold.Open()
	defer s.Close()
	var back atomic.Int64
	clock := func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }
	p := pipelines(t, run.Config{Space: s, Runner: commands(succeed), Now: clock})
	let := taken(t, s)
	r := submit(t, p, release(ph))
	done := make(chan pipeline.State, 1)
	go func() { done <- ended(t, p, r) }()
	until(t, p, r, status(at))
	back.Store(int64(time.Hour))
	time.Sleep(time.Minute)
	_, err := s.KV().Put(t.Context(), "freeze", nil)
	ok(t, err)
	let()
	if rep := until(t, p, r, blockedOrEnded); rep.State.Status.Ended() {
		t.Fatalf("it is %+v", rep.State)
	}
	_, err = s.KV().Delete(t.Context(), "freeze")
	ok(t, err)
	if last := <-done; last.Status != pipeline.Done {
		t.Errorf("it is %+v", last)
	}
}

// taken takes the lock, and all that the limiter allows; let gives both back.
func taken(t *testing.T, s *holdfast.Space) (let func()) {
	h, err := s.Mutex("prod").Acquire(t.Context())
	ok(t, err)
	l := s.Limiter("deploys", limit.Rate{Count: 1, Per: 24 * time.Hour})
	_, err = l.Allow(t.Context(), "")
	ok(t, err)
	return func() {
		ok(t, h.Release())
		ok(t, l.Reset(t.Context(), ""))
	}
}

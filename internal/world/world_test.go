package world_test

import (
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/internal/world"
)

var (
	budget = flag.Duration("world.budget", 0, "run new worlds for this long")
	first  = flag.Uint64("world.first", 1, "the first seed")
	count  = flag.Int("world.seeds", share, "how many worlds to run without a budget")
	length = flag.Duration("world.time", time.Minute, "how long faults happen in a world")
)

// share is how many worlds an ordinary test run has.
const share = 5

func TestWorlds(t *testing.T) {
	began, total, seeds := time.Now(), world.Result{}, 0
	for seed := *first; *budget == 0 && seeds < *count || time.Since(began) < *budget; seed++ {
		res := run(t, seed)
		total.Add(res)
		seeds++
		for _, v := range res.Violations {
			t.Errorf("seed %d: %s", seed, v)
		}
		if t.Failed() {
			break
		}
	}
	report(t, seeds, &total, time.Since(began))
}

func run(t *testing.T, seed uint64) (res world.Result) {
	synctest.Test(t, func(*testing.T) { res = world.Run(world.Options{Seed: seed, Time: *length}) })
	return res
}

func report(t *testing.T, seeds int, r *world.Result, took time.Duration) {
	t.Logf("proof: %d worlds, %.2f simulated hours in %s (%.0f times real time), %d answers, %d faults, %d events, %d violations",
		seeds, r.Simulated.Hours(), took.Round(time.Second), r.Simulated.Seconds()/took.Seconds(), r.Sum("answer "), r.Sum("fault "), r.Sum("event "), len(r.Violations))
	for _, name := range r.Names("") {
		t.Logf("proof: %8d %s", r.Counts[name], name)
	}
}

package size

import (
	"context"
	"sync"
	"testing"
	"time"
)

// work is what a bystander must not notice.
type work struct {
	kind string
	do   func(ctx context.Context)
}

// beside does one work after the other, and tells what a bystander sees of each: the turns that
// took longest, elections, and holds that it lost or turns that failed.
func (g *group) beside(works []work) figures {
	g.tb.Helper()
	by, all := g.bystander(g.leastTTL()), figures{"elections": 0, "lost": 0}
	for _, w := range works {
		began, term := time.Now(), g.term()
		seen := by.during(func() { w.do(g.tb.Context()) })
		lost, elections := float64(seen.Lost+seen.Failed), g.term()-term
		all[w.kind+"-p99-ms"], all[w.kind+"-max-ms"] = ms(rank(seen.Took, 0.99)), ms(rank(seen.Took, 1))
		all["elections"] += elections
		all["lost"] += lost
		g.tb.Logf("%s in %s: turns %d, p50 %s, p99 %s, most %s; elections %g, lost %g", w.kind, time.Since(began).Round(time.Millisecond),
			len(seen.Took), rank(seen.Took, 0.5), rank(seen.Took, 0.99), rank(seen.Took, 1), elections, lost)
	}
	return all
}

// reading is one work: so many readers who read as often as they can, for a while.
func reading(tb testing.TB, lasts time.Duration, readers int, read func(ctx context.Context) error) func(context.Context) {
	return func(ctx context.Context) {
		end := time.Now().Add(lasts)
		var all sync.WaitGroup
		for range readers {
			all.Go(func() {
				for ctx.Err() == nil && time.Now().Before(end) && !tb.Failed() {
					if err := read(ctx); err != nil {
						tb.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
}

// idle is no work at all: what the bystander sees of the machine.
func idle(lasts time.Duration) work {
	return work{"idle", func(ctx context.Context) { <-time.After(lasts) }}
}

// saving saves a backup by the program.
func (g *group) saving() work {
	return work{"save", func(context.Context) {
		out, err := played(g.tb, nodeRole, "--url", g.url(), "snapshot", "save", g.tb.TempDir()+"/backup").CombinedOutput()
		if err != nil {
			g.tb.Errorf("save: %v: %s", err, out)
		}
	}}
}

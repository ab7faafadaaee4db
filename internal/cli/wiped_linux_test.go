package cli_test

import (
	"flag"
	"slices"
	"testing"
	"time"
)

var wipes = flag.Int("cli.wipes", 2, "how many nodes TestWiped wipes")

// TestWiped: a node of three that loses its disk under load is at full strength again
// without an operator, and no call fails.
func TestWiped(t *testing.T) {
	s := newSequence(t, 3) // of three nodes
	stop := s.loaded(s.url)
	var took []time.Duration
	for range *wipes {
		began := time.Now()
		s.wiped(s.r.IntN(len(s.nodes)))
		s.whole()
		took = append(took, time.Since(began))
	}
	failed, longest := stop()
	s.judge()
	slices.Sort(took)
	t.Logf("proof: %d nodes wiped: full strength after p50 %s, p99 %s; %d operations linearizable, %d failed, the longest took %s", len(took),
		took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond), len(s.history), failed, longest.Round(time.Millisecond))
	paused(t, longest)
	if failed > 0 {
		t.Errorf("%d calls failed", failed)
	}
}

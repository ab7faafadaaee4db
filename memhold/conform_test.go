package memhold_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/drivertest"
	_ "github.com/holdfast-io/holdfast/memhold"
)

// TestConformance runs the suite that every backend passes, with clients that
// share one memory as processes share a server. A stalled client is behind a
// link that drops everything, too.
func TestConformance(t *testing.T) {
	open(t) // the memory lives until the test ends
	h := drivertest.URL("mem://" + t.Name())
	h.Stall, h.Cut, h.Flood = stall, stall, true
	drivertest.Run(t, h)
}

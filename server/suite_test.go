package server_test

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/drivertest"
	"github.com/holdfast-io/holdfast/internal/bridge"
)

// TestConformance runs the suite that every backend passes, on a node with a
// real disk. A stalled client is behind a link that drops everything, too.
func TestConformance(t *testing.T) {
	url := "embed://" + t.TempDir()
	node, err := holdfast.Open(t.Context(), url) // the node lives until the test ends
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	h := drivertest.URL(url)
	h.Stall, h.Cut, h.Flood = stall, stall, true
	h.TTL = 3 * time.Second // a busy disk may keep a renewal waiting for long
	drivertest.Run(t, h)
}

func stall(s *holdfast.Space) (resume func()) { return bridge.Driver(s).(bridge.Staller).Stall() }

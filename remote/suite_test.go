package remote_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/drivertest"
	"github.com/holdfast-io/holdfast/internal/bridge"
	_ "github.com/holdfast-io/holdfast/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func stall(s *holdfast.Space) (resume func()) { return bridge.Driver(s).(bridge.Staller).Stall() }

// harness runs the suite against a group.
func harness(g *group) drivertest.Harness {
	h := drivertest.URL(g.url())
	h.Stall, h.Cut, h.Flood = stall, stall, true
	h.TTL = 3 * time.Second // a busy disk may keep a renewal waiting for long
	return h
}

// TestConformance runs the suite that every backend passes against one node.
func TestConformance(t *testing.T) { drivertest.Run(t, harness(newGroup(t, 1, fast))) }

// TestConformanceOfThree runs it against three.
func TestConformanceOfThree(t *testing.T) { drivertest.Run(t, harness(newGroup(t, 3, fast))) }

// TestConformanceUnderFailover runs it while nodes go down and come back, one
// after the other, the leader more often than not.
func TestConformanceUnderFailover(t *testing.T) {
	g := newGroup(t, 3, steady)
	stop := g.trouble()
	t.Cleanup(stop)
	h := harness(g)
	h.TTL = 8 * time.Second // eight election timeouts
	drivertest.Run(t, h)
}

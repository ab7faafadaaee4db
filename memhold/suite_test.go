package memhold_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/drivertest"
)

// TestConformanceInFakeTime runs the suite again where no clock is late: what
// passes here passes by order, not by luck.
func TestConformanceInFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open(t) // the memory lives until the test ends
		h := drivertest.URL("mem://" + t.Name())
		h.Stall, h.Cut, h.Flood = stall, stall, true
		h.Parallel = 64
		if err := drivertest.Check(t.Context(), h, func(drivertest.Case, error, time.Duration) {}); err != nil {
			t.Error(err)
		}
	})
}

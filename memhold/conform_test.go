package memhold_test

import (
	"context"
	"testing"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/drivertest"
	"github.com/holdfast-io/holdfast/internal/bridge"
	_ "github.com/holdfast-io/holdfast/memhold"
)

// TestConformance runs the suite that every backend passes, with clients that
// share one memory as processes share a server.
func TestConformance(t *testing.T) {
	h := drivertest.URL("mem://" + t.Name())
	h.Stall = func(s *holdfast.Space) func() { return bridge.Driver(s).(bridge.Staller).Stall() }
	h.Flood = true
	open := h.Open
	keep, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keep.Close() })
	h.Open = func(ctx context.Context, opts ...holdfast.Option) (*holdfast.Space, error) { return open(ctx, opts...) }
	h.Require = []driver.Feature{driver.FeatureLostFirst}
	drivertest.Run(t, h)
}

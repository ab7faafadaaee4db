package redishold_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/drivertest"
	"github.com/holdfast-io/holdfast/internal/services"
	_ "github.com/holdfast-io/holdfast/redishold"
)

// linked is a harness in which every client reaches the server by a link of its
// own, which can be cut.
func linked(t *testing.T, rawURL string, addr string) drivertest.Harness {
	var links sync.Map // *holdfast.Space → *services.Link
	h := drivertest.URL(rawURL)
	h.Open = func(ctx context.Context, opts ...holdfast.Option) (*holdfast.Space, error) {
		link := services.Proxy(t, addr)
		s, err := holdfast.Open(ctx, link.URL(rawURL), opts...)
		if err == nil {
			links.Store(s, link)
		}
		return s, err
	}
	h.Cut = func(s *holdfast.Space) func() {
		link, _ := links.Load(s)
		link.(*services.Link).Cut()
		return link.(*services.Link).Heal
	}
	h.Stall = h.Cut
	return h
}

// TestConformance runs the suite that every backend passes.
func TestConformance(t *testing.T) {
	server := services.Redis(t)
	h := linked(t, server.URL(), server.Addr())
	h.TTL = 3 * time.Second // a busy machine holds the server up, too, which the suite does not see
	h.Require = []driver.Feature{driver.FeatureLostFirst, driver.FeatureFIFO}
	drivertest.Run(t, h)
}

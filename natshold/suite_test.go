package natshold_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/drivertest"
	"github.com/holdfast-io/holdfast/internal/services"
	_ "github.com/holdfast-io/holdfast/natshold"
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
	server := services.NATS(t)
	h := linked(t, server.URL(), server.Addr())
	h.Require = []driver.Feature{driver.FeatureManyMachines}
	h.TTL = 3 * time.Second // the server is a process of its own: the suite cannot see when it is held up
	drivertest.Run(t, h)
}

// TestConformanceByLeader runs what reads and changes single keys on a bucket that
// is not read directly, as those with several replicas are.
func TestConformanceByLeader(t *testing.T) {
	server := services.NATS(t)
	js := streams(t, connect(t, server.URL()))
	must(js.AddStream(&nats.StreamConfig{Name: "KV_leader", Subjects: []string{"$KV.leader.>"}, MaxMsgsPerSubject: 64, Discard: nats.DiscardNew}))(t)
	h := drivertest.URL(server.URL() + "/leader?create=false")
	h.Select = func(c drivertest.Case) bool {
		group, _, _ := strings.Cut(c.Name, "/")
		return slices.Contains([]string{"Counter", "KV", "Mutex", "Sequence"}, group)
	}
	drivertest.Run(t, h)
}

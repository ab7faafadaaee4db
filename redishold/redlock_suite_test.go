package redishold_test

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/drivertest"
	"github.com/holdfast-io/holdfast/internal/services"
)

// redlockURL is the URL of a majority of servers.
func redlockURL(addrs ...string) string {
	q := url.Values{"addr": addrs[1:]}
	return "redlock://" + addrs[0] + "?" + q.Encode()
}

// TestRedLockConformance runs the suite over three servers, each client by
// links of its own.
func TestRedLockConformance(t *testing.T) {
	var addrs []string
	for _, s := range services.RedisN(t, 3) {
		addrs = append(addrs, s.Addr())
	}
	var clients sync.Map // *holdfast.Space → []*services.Link
	h := drivertest.URL(redlockURL(addrs...))
	h.Open = func(ctx context.Context, opts ...holdfast.Option) (*holdfast.Space, error) {
		var links []*services.Link
		var through []string
		for _, addr := range addrs {
			link := services.Proxy(t, addr)
			links, through = append(links, link), append(through, link.Addr())
		}
		s, err := holdfast.Open(ctx, redlockURL(through...), opts...)
		if err == nil {
			clients.Store(s, links)
		}
		return s, err
	}
	h.Cut = func(s *holdfast.Space) func() {
		links, _ := clients.Load(s)
		for _, l := range links.([]*services.Link) {
			l.Cut()
		}
		return func() {
			for _, l := range links.([]*services.Link) {
				l.Heal()
			}
		}
	}
	h.Stall = h.Cut
	h.TTL, h.Parallel = 4*time.Second, 8 // three servers and a second round need more time than one
	h.Require = []driver.Feature{driver.FeatureFencing, driver.FeatureManyMachines}
	h.Select = func(c drivertest.Case) bool { return !strings.HasPrefix(c.Name, "Features/Wrapper") }
	drivertest.Run(t, h)
}

package edgeserver

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("holdfast_edge_"+name, help, labels, nil)
}

var (
	decisions  = desc("decisions_total", "Decisions of this node.", "allowed")
	over       = desc("over_admitted_total", "What all nodes together admitted above the rate, as it became known here.")
	keys       = desc("keys", "Keys that are remembered.")
	evicted    = desc("evicted_keys_total", "Idle keys that were forgotten.")
	messages   = desc("messages_total", "Messages, and counts in them that were ignored.", "kind")
	conflicts  = desc("conflicts_total", "Actors of which two were seen running.")
	divergence = desc("divergence", "By how much the total of this node and of another differ at most.")
	syncAge    = desc("sync_age_seconds", "How long ago a message of another node came.")
	peerLag    = desc("peer_lag_seconds", "How long the last message of a node was on its way.", "peer")
	peerAge    = desc("peer_age_seconds", "How long ago the last message of a node came.", "peer")
	topKeys    = desc("top_key_count", "What was taken in this window from the keys with most.", "key")
)

// collector reads the node when it is asked.
type collector struct{ c *Config }

func metrics(c *Config) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{c})
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

func (m collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{decisions, over, keys, evicted, messages, conflicts, divergence, syncAge, peerLag, peerAge, topKeys} {
		out <- d
	}
}

func (m collector) Collect(out chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	own, all := m.c.Limiter.Stats(), m.c.Node.Stats()
	counter(decisions, own.Allowed, "true")
	counter(decisions, own.Denied, "false")
	counter(over, own.Over)
	counter(evicted, all.Evicted)
	counter(conflicts, all.Conflicts)
	for kind, n := range map[string]uint64{
		"sent": all.Sent, "send_errors": all.SendErrors, "received": all.Received, "own": all.Own, "repeated": all.Repeated,
		"garbage": all.Garbage, "skewed": all.Skewed, "mismatched": all.Mismatched, "full": all.Full,
	} {
		counter(messages, n, kind)
	}
	gauge(keys, float64(m.c.Limiter.Keys()))
	gauge(divergence, float64(m.c.Node.Divergence()))
	gauge(syncAge, m.c.Node.SyncAge().Seconds())
	for _, p := range m.c.Node.Peers() {
		gauge(peerLag, p.Lag.Seconds(), label(p.Actor.Node))
		gauge(peerAge, time.Since(p.Heard).Seconds(), label(p.Actor.Node))
	}
	for key, n := range m.c.top() {
		gauge(topKeys, float64(n), strconv.QuoteToASCII(key))
	}
}

// label is a name as a label can have it, and no two names alike: one that is no UTF-8, or
// looks quoted, is quoted.
func label(name string) string {
	if utf8.ValidString(name) && !strings.HasPrefix(name, `"`) {
		return name
	}
	return strconv.QuoteToASCII(name)
}

// top are the keys with the greatest counts.
func (c *Config) top() map[string]int64 {
	if c.TopKeys <= 0 {
		return nil
	}
	all := c.Limiter.AllCounts(time.Now())
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a, b))
	})
	for _, name := range names[min(len(names), c.TopKeys):] {
		delete(all, name)
	}
	return all
}

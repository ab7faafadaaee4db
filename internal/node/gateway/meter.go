package gateway

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/server"
)

// meter counts what the node does. No metric carries a name: there would be as
// many as there are locks.
type meter struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	waiting  prometheus.Gauge
}

func newMeter(s *server.Server) *meter {
	m := &meter{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_calls_total", Help: "Calls that have ended, by service, method and gRPC code.",
		}, []string{"service", "method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_call_seconds", Help: "How long calls took, with the time they waited for a hold.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"service", "method"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_waiting_calls", Help: "Plain calls that wait for a hold.",
		}),
	}
	m.registry.MustRegister(m.calls, m.seconds, m.waiting, nodeGauges{s}, eventCounts{s})
	return m
}

// called counts a call that has ended.
func (m *meter) called(method string, code string, began time.Time) {
	service, name := splitMethod(method)
	m.calls.WithLabelValues(service, name, code).Inc()
	m.seconds.WithLabelValues(service, name).Observe(time.Since(began).Seconds())
}

// splitMethod is the service and the method of a full name.
func splitMethod(full string) (service, method string) {
	service, method, _ = strings.Cut(strings.TrimPrefix(full, "/"), "/")
	return strings.TrimPrefix(service, "holdfast.v1."), method
}

// nodeGauges tell where the node stands when they are asked.
type nodeGauges struct{ s *server.Server }

var (
	descLeading  = prometheus.NewDesc("holdfast_leading", "1 while this node leads and serves.", nil, nil)
	descTerm     = prometheus.NewDesc("holdfast_raft_term", "The Raft term of this node.", nil, nil)
	descApplied  = prometheus.NewDesc("holdfast_applied_index", "The log entry that this node has applied last.", nil, nil)
	descSnapshot = prometheus.NewDesc("holdfast_snapshot_index", "The log entry of the newest snapshot.", nil, nil)
	descRevision = prometheus.NewDesc("holdfast_revision", "The revision of the machine.", nil, nil)
	descQueue    = prometheus.NewDesc("holdfast_queued_commands", "Commands that wait to be proposed.", nil, nil)
	descFull     = prometheus.NewDesc("holdfast_disk_full", "1 while the disk of this node has less room than it reserves.", nil, nil)
	descAttached = prometheus.NewDesc("holdfast_attached_sessions", "Sessions attached to this node, and one more for each connection of our own client.", nil, nil)
)

// Describe is of prometheus.Collector.
func (n nodeGauges) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descLeading, descTerm, descApplied, descSnapshot, descRevision, descQueue, descFull, descAttached} {
		c <- d
	}
}

// Collect is of prometheus.Collector. A node that has stopped tells nothing.
func (n nodeGauges) Collect(c chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	st, err := n.s.Status(ctx)
	if err != nil {
		return
	}
	for d, v := range map[*prometheus.Desc]float64{
		descLeading: oneIf(st.Serving), descTerm: float64(st.Term), descApplied: float64(st.Applied), descSnapshot: float64(st.SnapshotIndex),
		descRevision: float64(st.Revision), descQueue: float64(st.Waiting), descFull: oneIf(st.Full), descAttached: float64(st.Streams),
	} {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
}

// eventCounts tell what happened in the group, as this node has applied it.
type eventCounts struct{ s *server.Server }

var descEvents = prometheus.NewDesc("holdfast_events_total", "Events that this node has applied since it started, by kind and verb.", []string{"kind", "verb"}, nil)

// Describe is of prometheus.Collector.
func (eventCounts) Describe(c chan<- *prometheus.Desc) { c <- descEvents }

// Collect is of prometheus.Collector.
func (n eventCounts) Collect(c chan<- prometheus.Metric) {
	for kind, verbs := range n.s.Events() {
		for verb, count := range verbs {
			k, v := core.EventKind(kind), core.Verb(verb)
			if count > 0 || ends(k, v) {
				c <- prometheus.MustNewConstMetric(descEvents, prometheus.CounterValue, float64(count), k.String(), v.String())
			}
		}
	}
}

// ends: the event tells of holds or sessions that ended without their holder. These are counted from 0 on, so
// that the first one is seen as a change.
func ends(k core.EventKind, v core.Verb) bool {
	switch k {
	case core.EventLock, core.EventRWLock, core.EventSemaphore, core.EventElection:
		return v == core.VerbExpired || v == core.VerbReclaimed || v == core.VerbRevoked
	}
	return k == core.EventSession && v == core.VerbExpired
}

// oneIf is a truth as a gauge.
func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

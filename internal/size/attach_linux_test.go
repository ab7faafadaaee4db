package size

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// BenchmarkAttach is a session that has as many holds as it may, and loses its node, or its
// connection; and what attachments of sessions leave that have ended.
func BenchmarkAttach(b *testing.B) { bench(b, attach) }

func attach(tb testing.TB, s size) figures {
	g := start(tb, s.nodes, "--max-holds", strconv.Itoa(s.items))
	link := services.Proxy(tb, g.hosts[0])
	url := g.url()
	if s.nodes == 1 { // a client of several goes to where the leader says it is
		url = "holdfast://" + link.Addr()
	}
	h, at := hold(tb, open(tb, url), s.items), g.leader()
	h.full()
	before := g.process(at, "status", "VmRSS")
	for i := range g.nodes {
		g.forgetPeak(i)
	}
	seen := figures{}
	if s.nodes == 1 {
		began := time.Now()
		link.Break()
		h.attached()
		seen["relink-s"] = time.Since(began).Seconds()
	}
	seen["outage-s"], seen["attach-s"] = g.restart(at, h)
	for i := range g.nodes {
		seen["peak/before"] = max(seen["peak/before"], g.process(i, "status", "VmHWM")/before)
	}
	done(tb, h.session.Err())
	seen["attached-left"] = g.left(s.items / 10)
	return seen
}

// restart kills a node and starts it again: how long it takes until others are answered, and
// from then on until the session is kept again.
func (g *group) restart(at int, h *holds) (outage, attached float64) {
	g.tb.Helper()
	g.nodes[at].Kill()
	began := time.Now()
	g.nodes[at].Restart()
	_ = g.space()
	answers := time.Now()
	h.attached()
	return answers.Sub(began).Seconds(), time.Since(answers).Seconds()
}

// full expects that the session may have no hold more.
func (h *holds) full() {
	h.tb.Helper()
	_, err := h.space.Mutex("more", holdfast.Under(h.session)).TryAcquire(h.tb.Context())
	if !errors.Is(err, holdfast.ErrExhausted) || !strings.Contains(err.Error(), "--max-holds") {
		h.tb.Fatalf("a hold beyond the quota: %v", err)
	}
}

// attached waits until the session is kept again.
func (h *holds) attached() {
	h.tb.Helper()
	done(h.tb, h.session.Keep(h.tb.Context()))
}

// left is how many sessions are attached after so many more have ended.
func (g *group) left(n int) float64 {
	g.tb.Helper()
	s, at := g.space(), g.leader()
	before := g.metric(at, "holdfast_attached_sessions")
	together(g.tb, n, func(ctx context.Context, i int) error {
		h, err := s.Mutex(fmt.Sprint("own/", i), holdfast.ManualRenew()).Acquire(ctx)
		if err == nil {
			err = h.Release()
		}
		return err
	})
	return g.metric(at, "holdfast_attached_sessions") - before
}

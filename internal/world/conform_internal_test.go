package world

import (
	"context"
	"flag"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/drivertest"
	"github.com/holdfast-io/holdfast/internal/bridge"
	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/remote"
)

// TestConformanceUnderFailover runs the suite of the backends against three nodes that
// crash one after the other, the leader more often than not. Time is the bubble's, so
// that a busy machine makes no session late. How much blocks allow is not judged: cluster time stands still
// while there is no leader, and so does a limiter.
func TestConformanceUnderFailover(t *testing.T) {
	least := flag.Lookup("drivertest.leased")
	was := least.Value.String()
	_ = least.Value.Set("0.01")
	defer least.Value.Set(was)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Options{Seed: 1, Nodes: 3})
		for _, n := range w.nodes {
			w.ending.Go(n.run)
		}
		w.clients.Go(w.trouble)
		ctx, cancel := context.WithCancel(t.Context())
		_ = drivertest.Check(ctx, w.harness(), func(c drivertest.Case, err error, took time.Duration) {
			if err != nil && ctx.Err() == nil {
				t.Errorf("%s, after %s: %v", c.Name, took, err)
				cancel() // the first failure is enough: the others would take their time
			}
		})
		cancel()
		w.stop()
		w.clients.Wait()
		w.unwatch()
		close(w.over)
		w.ending.Wait()
		for _, v := range w.violations {
			if !strings.HasPrefix(v, "after ") || strings.Contains(v, ": node ") { // the rest is about names of a load that is not this one
				t.Error(v)
			}
		}
		for _, name := range []string{"fault kill", "fault power", "fault stop"} {
			if w.counts[name] < 3 {
				t.Errorf("%s was seen %d times", name, w.counts[name])
			}
		}
	})
}

// leftOut are the cases that a failover in fake time cannot keep.
var leftOut = map[string]string{
	"Hold/ReleaseAtOnceByMany":      "a goroutine waits at a sync.Mutex for another one's answer: the time of a bubble stands still then",
	"Barrier/WhoLeavesDoesNotCount": "of a party that left while its leader fell the next one knows that it has gone, not whether it had passed before",
	"Limiter/Refills":               "cluster time stands still while there is no leader, and so does a limiter",
}

// trouble ends a node's life and lets it begin anew, over and over: the leader's two times
// out of three. In between the group has a leader for 3 seconds.
func (w *World) trouble() {
	rng := w.rng("trouble", 0)
	for n := 0; w.serves(3 * time.Second); n++ {
		i := w.nodes[rng.IntN(len(w.nodes))]
		if l := w.leader(); n%3 > 0 && l != nil {
			i = l.n
		}
		kind := []string{"kill", "power", "stop"}[n/3%3]
		if l := i.alive(); l != nil && l.order(end{kind, 300 * time.Millisecond}) {
			w.count("fault " + kind)
		}
	}
}

// serves waits until there has been one leader for as long as d; false: the load has
// ended.
func (w *World) serves(d time.Duration) bool {
	const step = 50 * time.Millisecond
	var last *life
	for since := time.Duration(0); since < d; since += step {
		if sleep(w.ctx, step) != nil {
			return false
		}
		if l := w.leader(); l == nil || l != last {
			last, since = l, 0
		}
	}
	return true
}

// harness opens clients, each on a machine of its own.
func (w *World) harness() drivertest.Harness {
	stall := func(s *holdfast.Space) (resume func()) { return bridge.Driver(s).(bridge.Staller).Stall() }
	number := uint64(firstClient)
	opened := make(chan uint64, 1)
	opened <- number
	return drivertest.Harness{
		Open: func(_ context.Context, opts ...holdfast.Option) (*holdfast.Space, error) {
			number := <-opened
			opened <- number + 1
			cfg := remote.Config{}
			for _, n := range w.nodes {
				cfg.Endpoints = append(cfg.Endpoints, n.client())
			}
			host.Put(&cfg, &host.Host{Dial: w.net.machine(w.ip(number)).dial})
			return remote.Open(cfg, opts...)
		},
		Stall: stall, Cut: stall, Flood: true,
		TTL:      8 * time.Second, // eight election timeouts
		Parallel: 4,
		Select:   func(c drivertest.Case) bool { return leftOut[c.Name] == "" },
	}
}

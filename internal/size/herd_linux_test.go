package size

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// BenchmarkHerd is many clients, each with a hold, that lose all nodes at once for a while.
func BenchmarkHerd(b *testing.B) { bench(b, herd) }

const herdTTL = 15 * time.Second

func herd(tb testing.TB, s size) figures {
	g := start(tb, s.nodes)
	by := g.bystander(herdTTL)
	began := time.Now()
	all := g.clients(s.clients)
	seen := figures{"connect-s": time.Since(began).Seconds()}

	killed := time.Now()
	g.each((*services.Process).Kill)
	tb.Logf("killed within %s", time.Since(killed))
	<-time.After(s.outage - time.Since(killed))
	g.each((*services.Process).Restart) // until it takes connections
	began = time.Now()
	seen["outage-s"] = began.Sub(killed).Seconds()
	back := make(chan float64, 1)
	var other sightings
	go func() {
		other = by.tells() // when the turn has ended that the outage met
		back <- time.Since(began).Seconds()
	}()
	most := g.comeBack(all, killed)
	seen["renewed-s"], seen["back-s"] = time.Since(began).Seconds(), <-back
	seen["sockets/client"], seen["left-sockets/client"] = float64(most)/float64(s.clients), float64(g.sockets())/float64(s.clients)
	seen["lost"] = lost(all) + float64(other.Lost)
	return seen
}

// comeBack waits until all holds are renewed, or must have been, and tells how many connections
// there were at most.
func (g *group) comeBack(all []*holdfast.Hold, killed time.Time) (most int) {
	for end := killed.Add(2 * herdTTL); time.Now().Before(end) && !renewed(all, killed); <-time.After(50 * glance) {
		most = max(most, g.sockets())
	}
	return most
}

// clients are programs with a hold each, and a connection each.
func (g *group) clients(n int) []*holdfast.Hold {
	g.tb.Helper()
	all := make([]*holdfast.Hold, n)
	spaces := make([]*holdfast.Space, n)
	g.tb.Cleanup(func() {
		together(g.tb, n, func(_ context.Context, i int) error { _ = spaces[i].Close(); return nil })
	})
	together(g.tb, n, func(ctx context.Context, i int) (err error) {
		if spaces[i], err = holdfast.Open(ctx, g.url()); err == nil {
			all[i], err = spaces[i].Mutex(fmt.Sprint("herd/", i), holdfast.TTL(herdTTL)).Acquire(ctx)
		}
		return err
	})
	return all
}

// renewed says whether all holds were renewed since a moment, or lost.
func renewed(all []*holdfast.Hold, since time.Time) bool {
	for _, h := range all {
		if d, ok := h.Deadline(); h.Err() == nil && (!ok || d.Before(since.Add(herdTTL))) {
			return false
		}
	}
	return true
}

func lost(all []*holdfast.Hold) (n float64) {
	for _, h := range all {
		if h.Err() != nil {
			n++
		}
	}
	return n
}

// sockets are the connections to the nodes that programs of this machine have, or are about to
// have.
func (g *group) sockets() (n int) {
	g.tb.Helper()
	const established, dialled = "01", "02"
	ports := map[string]bool{}
	for _, host := range g.hosts {
		_, port, _ := strings.Cut(host, ":")
		number, _ := strconv.Atoi(port)
		ports[fmt.Sprintf("%04X", number)] = true
	}
	table, err := os.ReadFile("/proc/net/tcp")
	done(g.tb, err)
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 3 && (f[3] == established || f[3] == dialled) {
			if _, port, _ := strings.Cut(f[2], ":"); ports[port] {
				n++
			}
		}
	}
	return n
}

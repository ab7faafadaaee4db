//go:build unix

package natslink_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/edge"
	"github.com/holdfast-io/holdfast/edge/natslink"
	"github.com/holdfast-io/holdfast/internal/services"
)

var (
	nodesMost = flag.Int("natslink.nodes", 10, "how many nodes TestNodes has at most")
	nodesRuns = flag.Int("natslink.runs", 2, "how often TestNodes measures")
	cut       = flag.Duration("natslink.cut", 2*time.Second, "how long TestCut cuts a link")
	outage    = flag.Duration("natslink.outage", 2*time.Second, "how long TestServerKilled does without a server")
)

// load is what so many nodes do together, and how long they may need to agree after it in a proof.
type load struct {
	nodes, counters, perSecond int
	within                     time.Duration
}

var loads = []load{{3, 1, 100, time.Second}, {10, 5, 500, 2 * time.Second}, {50, 20, 2000, 5 * time.Second}, {100, 100, 5000, 10 * time.Second}}

// TestNodes: nodes with a connection each agree after a second under load, on exactly
// what was counted.
func TestNodes(t *testing.T) {
	for _, l := range loads {
		if l.nodes > *nodesMost {
			continue
		}
		t.Run(fmt.Sprint(l.nodes), func(t *testing.T) {
			url := services.NATS(t).URL()
			var nodes []*edge.Node
			for i := range l.nodes {
				n, err := edge.Open(edge.Config{Actor: fmt.Sprint("node-", i), Link: link(t, url, &natslink.Options{Memory: true})})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { n.Close() })
				nodes = append(nodes, n)
			}
			var took []time.Duration
			total := uint64(0)
			for range *nodesRuns {
				total += l.run(t, nodes, time.Second)
				took = append(took, l.agree(t, nodes, total))
			}
			slices.Sort(took)
			p50, p99 := took[len(took)/2], took[len(took)*99/100]
			t.Logf("proof: edge: %d nodes, %d counters, %d operations a second: agree after p50 %s, p99 %s of %d runs",
				l.nodes, l.counters, l.perSecond, p50.Round(time.Millisecond), p99.Round(time.Millisecond), len(took))
			if p99 > l.within && *nodesMost >= 100 { // a proof, on a machine of its own
				t.Errorf("%d nodes agree after %s, not %s", l.nodes, p99, l.within)
			}
		})
	}
}

func name(i int) string { return fmt.Sprint("counter-", i) }

// run is a time under load, each node at its part of the rate, and tells how much was added.
func (l load) run(t *testing.T, nodes []*edge.Node, length time.Duration) (total uint64) {
	var wg sync.WaitGroup
	each := l.perSecond / l.nodes
	times := int(time.Duration(each) * length / time.Second)
	for i, n := range nodes {
		wg.Go(func() {
			tick := time.NewTicker(time.Second / time.Duration(each))
			defer tick.Stop()
			for k := range times {
				counter(t, n, name((i+k)%l.counters)).Add(1)
				<-tick.C
			}
		})
	}
	wg.Wait()
	return uint64(times * l.nodes)
}

// agree waits until the sum over all counters is the same everywhere.
func (l load) agree(t *testing.T, nodes []*edge.Node, total uint64) time.Duration {
	began := time.Now()
	for _, n := range nodes {
		for {
			var sum uint64
			for i := range l.counters {
				sum += n.Count(name(i))
			}
			if sum == total {
				break
			}
			if sum > total || time.Since(began) > time.Minute {
				t.Fatalf("%s has %d, not %d: %+v", n.Actor(), sum, total, n.Stats())
			}
			time.Sleep(time.Millisecond)
		}
	}
	return time.Since(began)
}

// TestClaim: a message that claims to be larger than any is refused before memory is
// taken for it.
func TestClaim(t *testing.T) {
	claim := append(binary.AppendUvarint(nil, 1<<30), "and has little"...)
	if _, err := natslink.Unpack(claim, true); err == nil || !strings.Contains(err.Error(), "larger than any") {
		t.Errorf("%v", err)
	}
}

// FuzzUnpack: no message makes a panic or takes much memory.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte("hfe"), true, "")
	f.Add([]byte(strings.Repeat("\xff", 20)), true, "00-0")
	f.Add(natslink.Packed([]byte(strings.Repeat("abc", 500))), true, "")
	f.Fuzz(func(t *testing.T, data []byte, compressed bool, parent string) {
		got, err := natslink.Unpack(data, compressed)
		if err == nil && len(got) > 16<<20 {
			t.Fatalf("%d bytes", len(got))
		}
		back, err := natslink.PackAndBack(data, parent)
		if err != nil || string(back) != string(data) {
			t.Fatalf("%q, %v", back, err)
		}
	})
}

package size

import (
	"cmp"
	"flag"
	"maps"
	"math"
	"slices"
	"testing"
	"time"
)

var (
	items   = flag.Int("size.items", 1_000_000, "how many keys there are, or holds of one session")
	clients = flag.Int("size.clients", 5000, "how many clients lose their node at once")
	waits   = flag.Int("size.waits", 32768, "how many watches a node takes; an eighth of it on one connection")
	lasts   = flag.Duration("size.lasts", 5*time.Second, "how long readers read beside a bystander")
)

// outage is how long clients have no node.
const outage = 5 * time.Second

// size is how much there is of everything.
type size struct {
	nodes, items, clients, waits int
	lasts, outage                time.Duration
}

// figures are what a trial has seen, by the names under which they are reported.
type figures map[string]float64

// trial measures one thing on nodes that it starts.
type trial func(tb testing.TB, s size) figures

// bench is a trial in full size, on one node and on a group of three.
func bench(b *testing.B, try trial) {
	for name, nodes := range map[string]int{"one": 1, "three": 3} {
		b.Run(name, func(b *testing.B) {
			var seen figures
			for b.Loop() {
				seen = try(b, size{nodes, *items, *clients, *waits, *lasts, outage})
			}
			for _, unit := range slices.Sorted(maps.Keys(seen)) {
				b.ReportMetric(seen[unit], unit)
			}
		})
	}
}

// rank is the p-th part, in 1, of a list in order of size.
func rank[T cmp.Ordered](list []T, p float64) (at T) {
	if len(list) == 0 {
		return at
	}
	slices.Sort(list)
	return list[max(int(math.Ceil(p*float64(len(list))))-1, 0)]
}

// ms is a time in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

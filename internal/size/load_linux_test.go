package size

import (
	"testing"
	"time"
)

// BenchmarkLoad is what a node writes while keys are put, and how soon it is back with all of
// them after it was killed.
func BenchmarkLoad(b *testing.B) { bench(b, load) }

func load(tb testing.TB, s size) figures {
	g := start(tb, s.nodes)
	k := &keys{tb, g.space().KV(), s.items, 500}
	k.fill()
	written := 0.0
	for i := range g.nodes {
		written = max(written, g.process(i, "io", "write_bytes"))
	}
	began := g.again()
	back := open(tb, g.url())
	_, err := back.KV().Get(tb.Context(), k.name(k.n-1))
	done(tb, err)
	took, used := time.Since(began), 0.0
	for i := range g.nodes {
		used = max(used, g.used(i).Seconds())
	}
	(&keys{tb, back.KV(), k.n, k.value}).whole(tb.Context())
	return figures{
		"written/payload":       written / float64(k.n*(k.value+len(k.name(0)))),
		"restart-s/million":     took.Seconds() / float64(k.n) * 1e6,
		"restart-cpu-s/million": used / float64(k.n) * 1e6,
	}
}

package size

import (
	"context"
	"testing"
	"time"
)

// BenchmarkLimited is what a read of a few costs where there are very many, to the same where
// there are a thousand.
func BenchmarkLimited(b *testing.B) { bench(b, limited) }

// little is how many there are for comparison: as many names as a page of a list has.
const little = 1000

func limited(tb testing.TB, s size) figures {
	small, large := readable(tb, s.nodes, little), readable(tb, s.nodes, s.items)
	seen := figures{}
	for kind := range large {
		few, many := inTurns(tb, s.lasts, small[kind], large[kind])
		seen[kind+"-ratio"], seen[kind+"-µs"] = float64(many)/float64(few), 1000*ms(many)
	}
	return seen
}

// readable is a group with so many keys, and as many holds, and what is read of them.
func readable(tb testing.TB, nodes, n int) map[string]func(context.Context) error {
	s := start(tb, nodes).space()
	k := &keys{tb, s.KV(), n, 100}
	k.fill()
	h := hold(tb, s, n)
	return map[string]func(context.Context) error{
		"page":  k.page,
		"names": func(ctx context.Context) error { return first(ctx, s) },
		"info":  func(ctx context.Context) error { _, err := h.session.TimeToLive(ctx); return err },
	}
}

// inTurns does one and then the other for a while, and tells the median times.
func inTurns(tb testing.TB, lasts time.Duration, do ...func(context.Context) error) (few, many time.Duration) {
	tb.Helper()
	took := make([][]time.Duration, 2)
	for end := time.Now().Add(lasts); time.Now().Before(end) || took[1] == nil; {
		for i := range do {
			began := time.Now()
			done(tb, do[i](tb.Context()))
			took[i] = append(took[i], time.Since(began))
		}
	}
	return rank(took[0], 0.5), rank(took[1], 0.5)
}

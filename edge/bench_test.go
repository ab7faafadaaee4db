package edge

import (
	"strconv"
	"testing"
	"time"
	"unique"
	"unsafe"

	"github.com/holdfast-io/holdfast/crdt"
	"github.com/holdfast-io/holdfast/limit"
)

func actorOf(node string) unique.Handle[crdt.Actor] {
	return unique.Make(crdt.Actor{Node: node, Incarnation: 1})
}

var wide = limit.Rate{Count: limit.MaxCount, Per: time.Hour, Algorithm: limit.FixedWindow}

// TestNoAllocations: a decision, an addition and a value of what is known allocate
// nothing.
func TestNoAllocations(t *testing.T) {
	n := open(t, Config{Actor: "a"})
	n.Close()
	c, err := n.Counter("x")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []limit.Algorithm{limit.GCRA, limit.FixedWindow, limit.SlidingWindow} {
		rate := wide
		rate.Algorithm = a
		l := newLimiter(n, "l", LimiterConfig{Rate: rate, LocalCap: 1 << 30})
		now := time.Now()
		if got := testing.AllocsPerRun(1000, func() { l.Take("k", now, 1); c.Add(1); c.Value() }); got != 0 {
			t.Errorf("%s: %v allocations", a, got)
		}
	}
}

// benchmarkTake builds each key anew, as a caller does that has read it from a request: what is measured has it in the
// processor's cache, and nothing else of a million keys.
func benchmarkTake(b *testing.B, rate limit.Rate, keys int) {
	n := open(b, Config{Actor: "a"})
	n.Close()
	l := newLimiter(n, "l", LimiterConfig{Rate: rate, MaxKeys: keys})
	now := time.Now()
	for i := range keys {
		l.Take(string(appendKey(nil, i)), now, 1)
	}
	b.ReportAllocs()
	i, text := 0, make([]byte, 0, 16)
	for b.Loop() {
		text = appendKey(text[:0], i)
		l.Take(unsafe.String(&text[0], len(text)), now, 1)
		i = (i + 7919) % keys
	}
}

// appendKey is the address 10.x.x.x of a number.
func appendKey(to []byte, i int) []byte {
	to = append(to, "10"...)
	for shift := 16; shift >= 0; shift -= 8 {
		to = append(append(to, '.'), digits[i>>shift&255]...)
	}
	return to
}

var digits = func() (d [256]string) {
	for i := range d {
		d[i] = strconv.Itoa(i)
	}
	return d
}()

func BenchmarkTake(b *testing.B) {
	sliding, bucket, denied := wide, wide, wide
	sliding.Algorithm, bucket.Algorithm = limit.SlidingWindow, limit.GCRA
	denied.Count = 1
	b.Run("hot", func(b *testing.B) { benchmarkTake(b, wide, 1) })
	b.Run("sliding", func(b *testing.B) { benchmarkTake(b, sliding, 1) })
	b.Run("gcra", func(b *testing.B) { benchmarkTake(b, bucket, 1) })
	b.Run("allow", benchmarkAllow)
	b.Run("denied", func(b *testing.B) { benchmarkTake(b, denied, 1) })
	b.Run("keys=1000000", func(b *testing.B) { benchmarkTake(b, wide, 1_000_000) })
}

// benchmarkAllow is a decision by the node's clock.
func benchmarkAllow(b *testing.B) {
	n := open(b, Config{Actor: "a"})
	n.Close()
	l, ctx := newLimiter(n, "l", LimiterConfig{Rate: wide}), b.Context()
	b.ReportAllocs()
	for b.Loop() {
		l.Allow(ctx, "k")
	}
}

func BenchmarkCounter(b *testing.B) {
	n := open(b, Config{Actor: "a"})
	n.Close()
	c, _ := n.Counter("x")
	b.Run("add", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Add(1)
		}
	})
	b.Run("value", func(b *testing.B) {
		for b.Loop() {
			c.Value()
		}
	})
}

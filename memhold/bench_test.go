package memhold_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfast-io/holdfast/memhold"
)

// BenchmarkPair takes a free mutex and gives it back. The goal: at most 10 µs
// and 15 allocations, all layers together.
func BenchmarkPair(b *testing.B) {
	s := memhold.Open()
	defer s.Close()
	m := s.Mutex("jobs/nightly")
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		h, err := m.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPairParallel does so on many names at once.
func BenchmarkPairParallel(b *testing.B) {
	s := memhold.Open()
	defer s.Close()
	ctx := context.Background()
	b.ReportAllocs()
	n := 0
	b.RunParallel(func(pb *testing.PB) {
		n++
		m := s.Mutex(fmt.Sprint("jobs/", n))
		for pb.Next() {
			h, err := m.Acquire(ctx)
			if err != nil {
				b.Error(err)
				return
			}
			if err := h.Release(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkHandOver passes one mutex between waiting goroutines.
func BenchmarkHandOver(b *testing.B) {
	s := memhold.Open()
	defer s.Close()
	m := s.Mutex("m")
	ctx := context.Background()
	b.ReportAllocs()
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			h, err := m.Acquire(ctx)
			if err != nil {
				b.Error(err)
				return
			}
			if err := h.Release(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkCounterAdd(b *testing.B) {
	s := memhold.Open()
	defer s.Close()
	c := s.Counter("orders")
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Add(ctx, 1); err != nil {
			b.Fatal(err)
		}
	}
}

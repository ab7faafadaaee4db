package pghold_test

import (
	"testing"
	"time"
)

// BenchmarkPair is Acquire and Release of a free mutex, beside the bare
// functions of PostgreSQL on the same server in the same run.
func BenchmarkPair(b *testing.B) {
	url := database(b)
	s, bare := open(b, url), connect(b, url)
	m := s.Mutex("m")
	pair := func() {
		h, err := m.Acquire(b.Context())
		check(b, err)
		check(b, h.Release())
	}
	beside(b, pair, func() {
		_, err := bare.Exec(b.Context(), "select pg_advisory_lock($1)", 1)
		check(b, err)
		_, err = bare.Exec(b.Context(), "select pg_advisory_unlock($1)", 1)
		check(b, err)
	})
}

// BenchmarkCounter is Add, beside a bare UPDATE.
func BenchmarkCounter(b *testing.B) {
	url := database(b)
	s, bare := open(b, url), connect(b, url)
	_, err := bare.Exec(b.Context(), "create table c (n bigint); insert into c values (0)")
	check(b, err)
	c := s.Counter("c")
	add := func() {
		_, err := c.Add(b.Context(), 1)
		check(b, err)
	}
	beside(b, add, func() {
		var n int64
		check(b, bare.QueryRow(b.Context(), "update c set n = n + $1 returning n", 1).Scan(&n))
	})
}

// BenchmarkParallelPairs is Acquire and Release of free mutexes by many.
func BenchmarkParallelPairs(b *testing.B) {
	s := open(b, database(b))
	check(b, s.Ping(b.Context()))
	b.RunParallel(func(pb *testing.PB) {
		m := s.Mutex("m-" + time.Now().String())
		for pb.Next() {
			h, err := m.Acquire(b.Context())
			check(b, err)
			check(b, h.Release())
		}
	})
}

// beside runs both in turns and reports how many times as long ours takes.
func beside(b *testing.B, ours, bare func()) {
	ours()
	bare()
	var mine, theirs time.Duration
	for b.Loop() {
		start := time.Now()
		ours()
		mid := time.Now()
		bare()
		mine, theirs = mine+mid.Sub(start), theirs+time.Since(mid)
	}
	b.ReportMetric(float64(mine)/float64(theirs), "ratio")
	b.ReportMetric(float64(mine.Nanoseconds())/float64(b.N), "ours-ns/op")
	b.ReportMetric(float64(theirs.Nanoseconds())/float64(b.N), "bare-ns/op")
}

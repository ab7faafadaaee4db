package pghold_test

import (
	"strconv"
	"sync"
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

// BenchmarkManyCallers is Acquire and Release of free mutexes by 64 callers of one
// program, each with a name of its own, beside as many that share one bare connection.
func BenchmarkManyCallers(b *testing.B) {
	const callers, pairs = 64, 32
	url := database(b)
	s, bare := open(b, url), connect(b, url)
	var turn sync.Mutex
	one := func(sql string, n int) {
		turn.Lock()
		defer turn.Unlock()
		_, err := bare.Exec(b.Context(), sql, n)
		check(b, err)
	}
	all := func(pair func(n int)) {
		var work sync.WaitGroup
		for n := range callers {
			work.Go(func() {
				for range pairs {
					pair(n)
				}
			})
		}
		work.Wait()
	}
	beside(b, func() {
		all(func(n int) {
			h, err := s.Mutex(strconv.Itoa(n)).Acquire(b.Context())
			check(b, err)
			check(b, h.Release())
		})
	}, func() {
		all(func(n int) {
			one("select pg_advisory_lock($1)", n)
			one("select pg_advisory_unlock($1)", n)
		})
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

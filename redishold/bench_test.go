package redishold_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/redishold"
)

// bare frees a lock as the simplest libraries do.
const bare = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

// space uses the same client as the bare commands beside it.
func space(b *testing.B) (*holdfast.Space, rueidis.Client) {
	rc := admin(b, services.SharedRedis(b).URL())
	d, err := redishold.New(rc, nil)
	if err != nil {
		b.Fatal(err)
	}
	s, err := holdfast.New(d)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return s, rc
}

// ratio runs ours and then theirs as often, and reports how much longer ours
// took.
func ratio(b *testing.B, ours, theirs func() error) {
	n := 0
	for b.Loop() {
		if err := ours(); err != nil {
			b.Fatal(err)
		}
		n++
	}
	took := b.Elapsed()
	start := time.Now()
	for range n {
		if err := theirs(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(took)/float64(time.Since(start)), "x-bare")
}

// BenchmarkMutex is Acquire and Release of a free mutex, against SET NX PX and a
// script that deletes.
func BenchmarkMutex(b *testing.B) {
	s, rc := space(b)
	m, del := s.Mutex(unique(b)), rueidis.NewLuaScript(bare)
	key := unique(b)
	ratio(b, func() error {
		h, err := m.Acquire(b.Context())
		if err != nil {
			return err
		}
		return h.Release()
	}, func() error {
		if err := rc.Do(b.Context(), rc.B().Set().Key(key).Value("id").Nx().PxMilliseconds(30000).Build()).Error(); err != nil {
			return err
		}
		return del.Exec(b.Context(), rc, []string{key}, []string{"id"}).Error()
	})
}

// BenchmarkCounter is Add, which counts once however often it is sent, against
// INCR, which does not.
func BenchmarkCounter(b *testing.B) {
	s, rc := space(b)
	c, key := s.Counter(unique(b)), unique(b)
	ratio(b, func() error { return second(c.Add(b.Context(), 1)) }, func() error {
		return rc.Do(b.Context(), rc.B().Incr().Key(key).Build()).Error()
	})
}

package redishold_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// meanwhile does something again and again until the result is called or the test
// ends.
func meanwhile(t testing.TB, f func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			f(ctx)
			time.Sleep(time.Millisecond)
		}
	}()
	end = func() {
		cancel()
		<-ended
	}
	t.Cleanup(end)
	return end
}

// bystander takes and gives back a mutex of its own, again and again. The result ends
// that, and tells how long each pair took, in order of length.
func bystander(t *testing.T, s *holdfast.Space) func() []time.Duration {
	t.Helper()
	var took []time.Duration
	m := s.Mutex("bystander")
	end := meanwhile(t, func(ctx context.Context) {
		start := time.Now()
		h, err := m.Acquire(ctx)
		if err == nil {
			err = h.Release()
		}
		if err != nil && ctx.Err() == nil {
			t.Errorf("the bystander: %v", err)
		}
		took = append(took, time.Since(start))
	})
	return func() []time.Duration {
		end()
		slices.Sort(took)
		return took
	}
}

// watched logs how long others waited and the longest scripts took while f ran. Those
// are the figures of docs/backends.md; a busy machine has others, so that none fails.
func watched(t *testing.T, server *services.RedisServer, s *holdfast.Space, f func()) {
	t.Helper()
	rc := admin(t, server.URL())
	do(t, rc, "CONFIG", "SET", "slowlog-log-slower-than", "1000")
	do(t, rc, "CONFIG", "SET", "slowlog-max-len", "10000")
	do(t, rc, "SLOWLOG", "RESET")
	others := bystander(t, s)
	start := time.Now()
	f()
	took := others()
	n := len(took)
	longest, median := scriptsOver(t, rc)
	t.Logf("in %v: %d pairs of a bystander, p50 %v, p99 %v, max %v; scripts over 1 ms: median %d µs, longest %v",
		time.Since(start).Round(time.Millisecond), n, took[n/2], took[n*99/100], took[n-1], median, longest)
}

// scriptsOver are the scripts in a server's slow log in µs: the longest ten, and the
// median.
func scriptsOver(t *testing.T, rc rueidis.Client) (longest []int64, median int64) {
	t.Helper()
	entries, err := rc.Do(context.Background(), rc.B().Arbitrary("SLOWLOG", "GET", "-1").Build()).ToArray()
	if err != nil {
		t.Fatal(err)
	}
	took := []int64{0}
	for _, e := range entries {
		fields, _ := e.ToArray()
		words, _ := fields[3].AsStrSlice()
		if us, err := fields[2].AsInt64(); err == nil && words[0] == "EVALSHA" {
			took = append(took, us)
		}
	}
	slices.Sort(took)
	slices.Reverse(took)
	return took[:min(len(took), 10)], took[len(took)/2]
}

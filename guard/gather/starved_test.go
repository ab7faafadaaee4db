package gather_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
	"github.com/holdfast-io/holdfast/internal/backends"
	"github.com/holdfast-io/holdfast/limit"
)

// A lock that comes and goes does not keep a wait from looking at a limiter when that refills.
func TestWait_LockBesideALimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := backends.Open(t, "memory")
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		_, err := a.Limiter("fast", limit.Rate{Algorithm: limit.TokenBucket, Count: 1, Per: time.Second}).AllowN(ctx, "k", 1)
		ok(t, err)
		var coming sync.WaitGroup
		coming.Go(func() {
			for ctx.Err() == nil {
				h, err := a.Mutex("x").Acquire(ctx)
				time.Sleep(90 * time.Millisecond)
				if err == nil {
					_ = h.Release()
				}
				time.Sleep(90 * time.Millisecond)
			}
		})
		c := guard.All(guard.LockFree("x"), guard.LimitAvailable("fast", "k", 1))
		began := time.Now()
		r, err := gather.New(gather.Config{Space: b}).Wait(ctx, &c, gather.WaitOptions{Recheck: time.Hour})
		if err != nil || r.Outcome != guard.Passed || time.Since(began) > 3*time.Second {
			t.Errorf("after %s: %v, %v", time.Since(began), r, err)
		}
		cancel()
		coming.Wait()
	})
}

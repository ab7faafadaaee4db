package pghold_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
)

// crowd is several programs, each with some callers that take one mutex again as soon
// as they have given it back.
type crowd struct {
	programs []*holdfast.Space
	callers  int
	grants   atomic.Int64
}

func newCrowd(t testing.TB, url string, programs, callers int) *crowd {
	c := &crowd{callers: callers}
	for range programs {
		c.programs = append(c.programs, openPool(t, url, nil))
	}
	return c
}

func (c *crowd) String() string { return fmt.Sprintf("%d × %d", len(c.programs), c.callers) }

// run has the crowd take turns until ctx ends.
func (c *crowd) run(ctx context.Context, t testing.TB, work *sync.WaitGroup) {
	for _, s := range c.programs {
		for range c.callers {
			work.Go(func() { takeTurns(ctx, t, s.Mutex(c.String()), &c.grants) })
		}
	}
}

func takeTurns(ctx context.Context, t testing.TB, m *holdfast.Mutex, grants *atomic.Int64) {
	for ctx.Err() == nil {
		h, err := m.Acquire(ctx)
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("acquire: %v", err)
			}
			return
		}
		grants.Add(1)
		if err := h.Release(); err != nil {
			t.Errorf("release: %v", err)
		}
	}
}

// TestHandOverOfManyWaiters: two programs with several waiters each hand a mutex over
// about as fast as two with one each, at the same time on the same machine. It goes on
// until that is seen: a busy machine may favour one of them for a while.
func TestHandOverOfManyWaiters(t *testing.T) {
	url := database(t)
	one, two, eight := newCrowd(t, url, 2, 1), newCrowd(t, url, 2, 2), newCrowd(t, url, 2, 8)
	var work sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer work.Wait()
	defer cancel()
	for _, c := range []*crowd{one, two, eight} {
		c.run(ctx, t, &work)
	}
	var from, got [3]int64
	for i, c := range []*crowd{one, two, eight} {
		c.warm()
		from[i] = c.grants.Load()
	}
	for range 10 {
		time.Sleep(time.Second)
		for i, c := range []*crowd{one, two, eight} {
			got[i] = c.grants.Load() - from[i]
		}
		if min(got[1], got[2]) >= got[0]/2 {
			return
		}
	}
	t.Errorf("grants in the same time: %d of %v, %d of %v, %d of %v", got[0], one, got[1], two, got[2], eight)
}

// warm waits until every connection is made: a hundred grants need them all.
func (c *crowd) warm() {
	for want := c.grants.Load() + 100; c.grants.Load() < want; {
		time.Sleep(time.Millisecond)
	}
}

// BenchmarkHandOver is one grant of a mutex that several programs take in turns.
func BenchmarkHandOver(b *testing.B) {
	url := database(b)
	for _, n := range [][2]int{{2, 1}, {2, 2}, {2, 8}, {8, 1}, {1, 8}} {
		c := newCrowd(b, url, n[0], n[1])
		b.Run(c.String(), func(b *testing.B) {
			var work sync.WaitGroup
			ctx, cancel := context.WithCancel(b.Context())
			c.run(ctx, b, &work)
			c.warm()
			before := c.grants.Load()
			for b.Loop() {
				for want := c.grants.Load() + 1; c.grants.Load() < want; {
					time.Sleep(10 * time.Microsecond)
				}
			}
			b.ReportMetric(float64(c.grants.Load()-before)/b.Elapsed().Seconds(), "grants/s")
			cancel()
			work.Wait()
		})
	}
}

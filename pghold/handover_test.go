package pghold_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

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

// traffic is what the connections of a crowd's programs did.
type traffic struct{ dials, writes atomic.Int64 }

type countedConn struct {
	net.Conn
	n *traffic
}

func (c countedConn) Write(b []byte) (int, error) {
	c.n.writes.Add(1)
	return c.Conn.Write(b)
}

// openCounted is a program whose connections are counted.
func openCounted(t testing.TB, url string, n *traffic) *holdfast.Space {
	cfg, err := pgxpool.ParseConfig(url)
	check(t, err)
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		n.dials.Add(1)
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return countedConn{c, n}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	check(t, err)
	return openOn(t, pool, nil)
}

// TestHandOverOfManyWaiters: programs with several waiters each hand a mutex over with
// the connections that they have, and with a request or so more than those with one
// waiter each. How fast that is, BenchmarkHandOver tells.
func TestHandOverOfManyWaiters(t *testing.T) {
	url := database(t)
	for _, callers := range []int{2, 8} {
		n, c := &traffic{}, &crowd{callers: callers}
		for range 2 {
			c.programs = append(c.programs, openCounted(t, url, n))
		}
		var work sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		c.run(ctx, t, &work)
		c.warm()
		grants, dials, writes := c.grants.Load(), n.dials.Load(), n.writes.Load()
		for c.grants.Load() < grants+1000 {
			time.Sleep(time.Millisecond)
		}
		grants, dials, writes = c.grants.Load()-grants, n.dials.Load()-dials, n.writes.Load()-writes
		cancel()
		work.Wait()
		t.Logf("%v: %d grants, %d connections made, %.2f writes a grant", c, grants, dials, float64(writes)/float64(grants))
		if dials > 8 || writes > 13*grants/4 {
			t.Errorf("%v: %d grants took %d new connections and %d writes", c, grants, dials, writes)
		}
	}
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

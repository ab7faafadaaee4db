package pghold_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast"
)

// crowd is several programs, each with some callers that take one mutex again as soon
// as they have given it back.
type crowd struct {
	programs []*holdfast.Space
	callers  int
	grants   counted
}

// counted is a number that can be waited for.
type counted struct {
	mu   sync.Mutex
	n    int64
	want int64
	met  chan struct{} // closed when n is want; nil: no test waits
}

func (c *counted) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n++; c.met != nil && c.n == c.want {
		close(c.met)
		c.met = nil
	}
}

func (c *counted) load() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// more waits for so many more.
func (c *counted) more(n int64) {
	c.mu.Lock()
	met := make(chan struct{})
	c.met, c.want = met, c.n+n
	c.mu.Unlock()
	<-met
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

func takeTurns(ctx context.Context, t testing.TB, m *holdfast.Mutex, grants *counted) {
	for ctx.Err() == nil {
		h, err := m.Acquire(ctx)
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("acquire: %v", err)
			}
			return
		}
		grants.add()
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

// openCounted is a program with connections that are counted.
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

// mostConns is what two programs make once, however late: four of the pool and eight that wait, each.
const mostConns = 2 * (4 + 8)

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
		grants, dials, writes := c.grants.load(), n.dials.Load(), n.writes.Load()
		c.grants.more(1000)
		grants, dials, writes = c.grants.load()-grants, n.dials.Load()-dials, n.writes.Load()-writes
		cancel()
		work.Wait()
		t.Logf("%v: %d grants, %d connections made, %.2f writes a grant", c, grants, dials, float64(writes)/float64(grants))
		if dials > mostConns || writes > 13*grants/4 {
			t.Errorf("%v: %d grants took %d new connections and %d writes", c, grants, dials, writes)
		}
	}
}

// warm waits until most connections are made: a hundred grants need them.
func (c *crowd) warm() {
	c.grants.more(100)
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
			before := c.grants.load()
			for b.Loop() {
				c.grants.more(1)
			}
			b.ReportMetric(float64(c.grants.load()-before)/b.Elapsed().Seconds(), "grants/s")
			cancel()
			work.Wait()
		})
	}
}

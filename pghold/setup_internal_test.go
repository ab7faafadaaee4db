package pghold

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// A round trip takes 100 ms, and a caller has time for three, and for what a busy machine adds. It takes six to set up the
// home link, and five for one to wait on, and more than either to make the schema.
const (
	tripHalf  = 50 * time.Millisecond
	shortTime = 450 * time.Millisecond
)

// TestCallersShortOfTime: where a set-up takes longer than any caller has, it is done in the end, and callers are served.
// None of it is cancelled in the server.
func TestCallersShortOfTime(t *testing.T) {
	pg := services.PostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	way := services.Proxy(t, pg.Addr())
	way.Delay(tripHalf)
	c := newTestClient(t, way.URL(url), time.Minute)
	servedInTheEnd(t, c)
	other := newTestClient(t, url, time.Minute)
	g, err := other.Acquire(t.Context(), mutexRequest("m"))
	if err != nil {
		t.Fatal(err)
	}
	soon(t, "no connection to wait on is made", func() bool {
		if g := inShortTime(t, c); g != nil {
			t.Fatal("it was granted twice")
		}
		return spares(c) > 0
	})
	if err := g.Handle.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	servedInTheEnd(t, c)
	if log := serverLog(t, other); strings.Contains(log, "STATEMENT:  set session") || strings.Contains(log, "STATEMENT:  "+skipTokens) {
		t.Errorf("a set-up was cancelled; the server's log:\n%s", log)
	}
}

// servedInTheEnd has callers in turn until one of them is granted the mutex.
func servedInTheEnd(t *testing.T, c *client) {
	t.Helper()
	soon(t, "nobody is granted a free mutex", func() bool {
		h := inShortTime(t, c)
		if h == nil {
			return false
		}
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		return true
	})
}

// inShortTime is an Acquire of one caller; nil: it had not enough time.
func inShortTime(t *testing.T, c *client) driver.Handle {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), shortTime)
	defer cancel()
	g, err := c.Acquire(ctx, mutexRequest("m"))
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return g.Handle
}

func soon(t *testing.T, missing string, look func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !look(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(missing)
		}
	}
}

func spares(c *client) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.spare)
}

// dialGate lets connections be made when the test says so, and counts them.
type dialGate struct {
	shut  atomic.Bool
	came  chan struct{} // has one for each that finds it shut
	open  chan error    // what becomes of it: nil, or why it fails
	dials atomic.Int32
}

func (d *dialGate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d.dials.Add(1)
	if d.shut.Load() {
		d.came <- struct{}{}
		select {
		case err := <-d.open:
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// opens lets one connection through the gate, or fail.
func (d *dialGate) opens(t *testing.T, err error) {
	t.Helper()
	select {
	case d.open <- err:
	case <-time.After(20 * time.Second):
		t.Fatal("no connection is being made")
	}
}

// gated is a client with one link for waits. Its schema is made; the gate is shut from now on.
func gated(t *testing.T, scope Scope) (*client, *dialGate) {
	t.Helper()
	pg := services.SharedPostgreSQL(t)
	cfg, err := pgxpool.ParseConfig(pg.URL(pg.CreateDatabase(t)))
	if err != nil {
		t.Fatal(err)
	}
	d := &dialGate{came: make(chan struct{}, 8), open: make(chan error)}
	cfg.ConnConfig.DialFunc = d.dial
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	c := clientOf(t, cfg)
	c.opts.Scope, c.opts.Waits = scope, 1
	c.mode = c.opts.execMode()
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	if err := c.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.shut.Store(true)
	d.dials.Store(0)
	return c, d
}

// leaves asks for a link, and leaves while it is dialled.
func leaves(t *testing.T, d *dialGate, ask func(ctx context.Context) (*pgLink, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	got := fetching(ctx, ask)
	<-d.came
	cancel()
	if a := <-got; !errors.Is(a.err, context.Canceled) {
		t.Fatalf("a caller that has left got %v, %v", a.l, a.err)
	}
}

func fetching(ctx context.Context, ask func(ctx context.Context) (*pgLink, error)) <-chan dialled {
	got := make(chan dialled, 1)
	go func() {
		l, err := ask(ctx)
		got <- dialled{l, err}
	}()
	return got
}

var scopes = []Scope{SessionScope, TransactionScope}

// TestDialOutlivesItsCaller: a connection that is made for a caller that leaves is the next one's.
func TestDialOutlivesItsCaller(t *testing.T) {
	for _, scope := range scopes {
		t.Run(string(scope), func(t *testing.T) {
			c, d := gated(t, scope)
			for name, ask := range map[string]func(ctx context.Context) (*pgLink, error){
				"home": c.atHome,
				"wait": func(ctx context.Context) (*pgLink, error) { return c.waitLink(ctx, true) },
			} {
				d.dials.Store(0)
				leaves(t, d, ask)
				next := fetching(t.Context(), ask)
				d.opens(t, nil)
				if a := <-next; a.err != nil || a.l == nil || !a.l.alive() || d.dials.Load() != 1 {
					t.Errorf("%s: the next caller got %v, %v after %d dials; want one", name, a.l, a.err, d.dials.Load())
				}
			}
		})
	}
}

// TestUnclaimedLinkIsKept: a connection to wait on that nobody waits for when it is made is kept for the next caller, and
// one of transaction scope, which would have its transaction open for nothing, until it has been idle.
func TestUnclaimedLinkIsKept(t *testing.T) {
	for _, scope := range scopes {
		t.Run(string(scope), func(t *testing.T) {
			t.Parallel()
			c, d := gated(t, scope)
			c.opts.Keepalive = 4 * time.Second // a busy machine comes back to it before
			ask := func(ctx context.Context) (*pgLink, error) { return c.waitLink(ctx, true) }
			leaves(t, d, ask)
			d.opens(t, nil)
			soon(t, "the link is not kept", func() bool { return spares(c) == 1 })
			l, err := ask(t.Context())
			if err != nil || l == nil || d.dials.Load() != 1 {
				t.Fatalf("the next caller got %v, %v after %d dials; want one", l, err, d.dials.Load())
			}
			c.mu.Lock()
			c.keep(l)
			c.mu.Unlock()
			if scope == TransactionScope {
				soon(t, "an idle transaction stays", func() bool { return spares(c) == 0 && !l.alive() })
			}
		})
	}
}

// TestDialFailsForAll: callers that wait for a connection are told why there is none, and the next one has another made.
func TestDialFailsForAll(t *testing.T) {
	c, d := gated(t, SessionScope)
	ask := func(ctx context.Context) (*pgLink, error) { return c.waitLink(ctx, true) }
	first := fetching(t.Context(), ask)
	<-d.came
	if l, err := ask(t.Context()); l != nil || err != nil {
		t.Fatalf("beyond Options.Waits: got %v, %v; want none", l, err)
	}
	d.opens(t, errors.New("refused by the test"))
	if a := <-first; !errors.Is(a.err, driver.ErrUnavailable) {
		t.Errorf("got %v; want ErrUnavailable", a.err)
	}
	second := fetching(t.Context(), ask)
	<-d.came
	d.opens(t, nil)
	if a := <-second; a.err != nil {
		t.Error(a.err)
	}
}

// TestCloseEndsSetUp: Close does not wait for a connection that is being made, and callers that do are told.
func TestCloseEndsSetUp(t *testing.T) {
	c, d := gated(t, SessionScope)
	home, wait := fetching(t.Context(), c.atHome), fetching(t.Context(), func(ctx context.Context) (*pgLink, error) { return c.waitLink(ctx, true) })
	<-d.came
	<-d.came
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, got := range []<-chan dialled{home, wait} {
		if a := <-got; !errors.Is(a.err, driver.ErrClosed) {
			t.Errorf("got %v; want ErrClosed", a.err)
		}
	}
}

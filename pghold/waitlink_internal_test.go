package pghold

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// newTestClient is a client whose waits in the server last slice.
func newTestClient(t *testing.T, url string, slice time.Duration) *client {
	t.Helper()
	c := openClient(t, url)
	c.slice = slice
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// openClient is a client that the test closes itself.
func openClient(t *testing.T, url string) *client {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return clientOf(t, cfg)
}

// clientOf is one with a configuration of the test's own.
func clientOf(t *testing.T, cfg *pgxpool.Config) *client {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	o, err := (*Options)(nil).settled()
	if err != nil {
		t.Fatal(err)
	}
	return newClient(pool, false, o)
}

// home is the link of a client that asks for the first time.
func home(t *testing.T, c *client) *pgLink {
	t.Helper()
	if err := c.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := c.atHome(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mutexRequest(name string) *driver.Request {
	return &driver.Request{Wants: []driver.Want{{Name: name, Kind: driver.Mutex}}, Lost: func(error) {}}
}

// TestSlices: a wait that outlasts many lock timeouts goes on and is granted.
func TestSlices(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	a, b := newTestClient(t, url, time.Minute), newTestClient(t, url, 10*time.Millisecond)
	g, err := a.Acquire(t.Context(), mutexRequest("m"))
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		g   driver.Grant
		err error
	}
	got := make(chan result, 1)
	waits := make(chan struct{})
	go func() {
		r := mutexRequest("m")
		r.Waiting = func(int) { close(waits) }
		g, err := b.Acquire(context.Background(), r)
		got <- result{g, err}
	}()
	<-waits
	select {
	case r := <-got:
		t.Fatalf("a wait longer than its lock timeout returned %+v", r)
	case <-time.After(150 * time.Millisecond):
	}
	if err := g.Handle.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.err != nil || r.g.Token <= g.Token {
		t.Fatalf("the waiter got %+v after %d", r, g.Token)
	}
}

// TestLostRowGoesBehindItsOwn: a waiter whose row was lost with its connection queues
// behind those of its own program that came meanwhile, and does not wait for them while
// they wait for it. There is one connection to wait on, so only one of them is in the
// server.
func TestLostRowGoesBehindItsOwn(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	a, b := newTestClient(t, url, time.Minute), newTestClient(t, url, time.Minute)
	b.opts.Waits = 1
	g, err := a.Acquire(t.Context(), mutexRequest("m"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	errs := make(chan error)
	for range 3 {
		waits := make(chan struct{})
		go func() {
			r := mutexRequest("m")
			r.Waiting = func(int) { close(waits) } // a second call would panic
			g, err := b.Acquire(ctx, r)
			if err == nil {
				err = g.Handle.Release(ctx)
			}
			errs <- err
		}()
		<-waits
		if l := b.living(); l != nil {
			l.fail(errUnused)
		}
	}
	home(t, b)
	waits := make(chan struct{})
	go func() {
		r := mutexRequest("m")
		r.Waiting = func(int) { close(waits) }
		g, err := b.Acquire(ctx, r)
		if err == nil {
			err = g.Handle.Release(ctx)
		}
		errs <- err
	}()
	<-waits
	if _, err := a.pool.Exec(ctx, "select holdfast_v10.sweep()"); err != nil {
		t.Fatal(err)
	}
	if err := g.Handle.Release(ctx); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Errorf("a waiter: %v", err)
		}
	}
}

// TestWaitsForTheFirstOfAProgram: a claim waits for one that has a ticket, which of each
// program only the first have, and for no claim of a program that has ended.
func TestWaitsForTheFirstOfAProgram(t *testing.T) {
	c := quickClients(t, 1)[0]
	home(t, c)
	conn := stranger(t, c)
	for id, nonce := range []int64{101, 101, 102, 101, 102, 999, 103} { // nobody has 999
		exec(t, conn, `insert into holdfast.claim (space, key, id, token, name, kind, mode, weight, nonce, lease, owner, meta, modified)
			values (1, 7, $1, 0, 'm', 1, 0, 1, $2, gen_random_uuid(), '', '', $1)`, id+1, nonce)
	}
	other := stranger(t, c)
	exec(t, other, "select pg_advisory_lock(101), pg_advisory_lock(102), pg_advisory_lock(103)")
	for id, want := range map[int64]int64{7: 3, 5: 3, 4: 3, 3: 1, 2: 1} {
		var got int64
		err := conn.QueryRow(t.Context(), "select id from holdfast_v10.before(1::smallint, 7, 0::smallint, $1, 0)", id).Scan(&got)
		if err != nil || got != want {
			t.Errorf("the claim %d waits for %d, %v; want %d", id, got, err, want)
		}
	}
}

// TestGrantedAsTheTimeWasUp: of a lock that the server grants in the moment in which
// lock_timeout ends the wait, the connection knows that it has it, and as what.
func TestGrantedAsTheTimeWasUp(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	c := newTestClient(t, pg.URL(pg.CreateDatabase(t)), time.Minute)
	l := home(t, c)
	j := l.start(time.Minute, func(ctx context.Context) error {
		for mode, lock := range []string{"pg_advisory_lock", "pg_advisory_lock_shared"} {
			if _, err := l.conn.Exec(ctx, "select "+lock+"(7)"); err != nil {
				return err
			}
			var has, other bool
			err := l.conn.QueryRow(ctx, "select holdfast_v10.has(1::smallint, 7, $1::smallint), holdfast_v10.has(1::smallint, 7, (1 - $1)::smallint) or holdfast_v10.has(1::smallint, 8, $1)", mode).
				Scan(&has, &other)
			if err != nil {
				return err
			}
			if !has || other {
				t.Errorf("after %s: has %t, and another %t", lock, has, other)
			}
			if _, err := l.conn.Exec(ctx, "select pg_advisory_unlock_all()"); err != nil {
				return err
			}
		}
		return nil
	})
	if <-j.done; j.err != nil {
		t.Fatal(j.err)
	}
}

// TestDecodeEvent: what is not ours is an error, not an event.
func TestDecodeEvent(t *testing.T) {
	if _, err := decodeEvent("hello", false); err == nil {
		t.Error("any text is an event")
	}
}

func FuzzDecodeEvent(f *testing.F) {
	f.Add(`{"k": "kv", "v": "put", "n": "a", "r": 7, "d": 1, "kv": {"k": "a", "x": "YQ==", "m": 7}, "was": null}`)
	f.Add(`{"k": "lock", "v": "acquired", "n": "m", "t": 5, "l": "00000000-0000-0000-0000-000000000001", "x": null}`)
	f.Add("@12")
	f.Fuzz(func(t *testing.T, body string) {
		ev, err := decodeEvent(body, true)
		if (ev == nil) == (err == nil) {
			t.Fatalf("%q gives %v and %v", body, ev, err)
		}
		var what string
		var a, b int64
		if scanWords(body, &what, &a, &b) && what == "" {
			t.Fatalf("%q has an empty word", body)
		}
	})
}

package pghold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
)

// newTestClient is a client whose waits in the server last slice.
func newTestClient(t *testing.T, url string, slice time.Duration) *client {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	o, err := (*Options)(nil).settled()
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(pool, false, o)
	c.slice = slice
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	if err := c.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// clients are several of one database.
func clients(t *testing.T, n int) []*client {
	t.Helper()
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	list := make([]*client, n)
	for i := range list {
		list[i] = newTestClient(t, url, time.Minute)
	}
	return list
}

// stranger is a connection of its own to the client's database.
func stranger(t *testing.T, c *client) *pgx.Conn {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), c.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func mutexRequest(name string) *driver.Request {
	return &driver.Request{Wants: []driver.Want{{Name: name, Kind: driver.Mutex}}, Lost: func(error) {}}
}

func tryRequest(name string, kind driver.ResourceKind) *driver.Request {
	return &driver.Request{Wants: []driver.Want{{Name: name, Kind: kind, Weight: 1, Limit: 2}}, Try: true, Lost: func(error) {}}
}

// take acquires, and fails the test if it cannot.
func take(t *testing.T, c *client, r *driver.Request) *claim {
	t.Helper()
	g, err := c.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return g.Handle.(*claim)
}

// takeLater acquires in the background, and returns when it waits.
func takeLater(t *testing.T, c *client, name string) <-chan *claim {
	t.Helper()
	waits, got := make(chan struct{}), make(chan *claim, 1)
	r := mutexRequest(name)
	r.Waiting = func(int) { close(waits) }
	go func() {
		g, err := c.Acquire(t.Context(), r)
		if err != nil {
			t.Error(err)
		}
		cl, _ := g.Handle.(*claim)
		got <- cl
	}()
	<-waits
	return got
}

func free(t *testing.T, cl *claim) {
	t.Helper()
	if err := cl.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// within looks until it sees what it wants.
func within(t *testing.T, missing string, look func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !look(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(missing)
		}
	}
}

// held: some connection has the lock.
func held(t *testing.T, c *client, k Key) (yes bool) {
	t.Helper()
	err := c.pool.QueryRow(t.Context(), "select exists (select from holdfast.locks($1, $2) where granted)", k.space(), k.n).Scan(&yes)
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

// rows are those that describe a name.
func rows(t *testing.T, c *client, name string) (n int) {
	t.Helper()
	if err := c.pool.QueryRow(t.Context(), "select count(*) from holdfast.claim where name = $1", name).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestHeir: "the next one is granted 50 ms later" (package comment): a lock whose holder
// did not give it back is kept from the next one for a moment, whether that one waited
// for it or found it free; and so it is if the first heir goes.
func TestHeir(t *testing.T) {
	c := clients(t, 2)
	for _, waits := range []bool{false, true} {
		dead := take(t, c[0], mutexRequest("m"))
		within(t, "a hold that lasts has no row", func() bool { return rows(t, c[1], "m") == 1 })
		var next <-chan *claim
		if waits {
			next = takeLater(t, c[1], "m")
		}
		dead.l.die(errUnused)
		var heir *claim
		if waits {
			heir = <-next
		} else {
			within(t, "the lock is not free", func() bool { return !held(t, c[1], dead.key) })
			heir = take(t, c[1], mutexRequest("m"))
		}
		if heir == nil || !heir.heir {
			t.Fatalf("waiting %t: the grant after a dead holder comes at once", waits)
		}
		free(t, heir)
		next1 := take(t, c[1], mutexRequest("m"))
		if next1.heir {
			t.Errorf("waiting %t: the grant after a release is kept back", waits)
		}
		free(t, next1)
	}
	c[1].mourning = time.Hour
	dead := take(t, c[0], mutexRequest("m"))
	within(t, "a hold that lasts has no row", func() bool { return rows(t, c[1], "m") == 1 })
	dead.l.die(errUnused)
	within(t, "the lock is not free", func() bool { return !held(t, c[1], dead.key) })
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := c[1].Acquire(ctx, mutexRequest("m"))
		result <- err
	}()
	within(t, "nobody inherits", func() bool { return held(t, c[1], dead.key) })
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Fatalf("a grant that is kept back: %v", err)
	}
	if !held(t, c[0], dead.key) {
		t.Error("an heir that goes gives back before the one before has had its time")
	}
}

// TestRowFollows: a hold that is over soon has no row; one that lasts has, and it goes
// before the lock does.
func TestRowFollows(t *testing.T) {
	c := clients(t, 1)[0]
	conn := stranger(t, c)
	exec(t, conn, "create table seen (n int)")
	exec(t, conn, `create function see() returns trigger language plpgsql as $$ begin insert into seen values (1); return null; end $$`)
	exec(t, conn, "create trigger see after insert on holdfast.claim for each row execute function see()")
	count := func() (n int) {
		if err := conn.QueryRow(t.Context(), "select count(*) from seen").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	c.describeAfter = time.Hour
	for range 20 {
		free(t, take(t, c, mutexRequest("m")))
	}
	if n := count(); n != 0 {
		t.Errorf("20 short holds wrote %d rows", n)
	}
	c = clients(t, 1)[0]
	cl := take(t, c, mutexRequest("m"))
	within(t, "a hold that lasts has no row", func() bool { return rows(t, c, "m") == 1 })
	free(t, cl)
	if n := rows(t, c, "m"); n != 0 {
		t.Errorf("a release left %d rows", n)
	}
}

// TestSlices: a wait that outlasts many lock timeouts goes on and is granted.
func TestSlices(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	a, b := newTestClient(t, url, time.Minute), newTestClient(t, url, 10*time.Millisecond)
	cl := take(t, a, mutexRequest("m"))
	got := takeLater(t, b, "m")
	select {
	case <-got:
		t.Fatal("a wait longer than its lock timeout returned")
	case <-time.After(150 * time.Millisecond):
	}
	free(t, cl)
	if next := <-got; next == nil || next.token <= cl.token {
		t.Fatalf("the waiter got %+v after %d", next, cl.token)
	}
}

// TestWaitsLeaveNoErrors: a wait that goes on for many slices puts no ERROR into the
// server's log.
func TestWaitsLeaveNoErrors(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o777); err != nil { // the server has a user of its own
			t.Fatal(err)
		}
	}
	pg := services.PostgreSQL(t, services.Setting("logging_collector", "on"), services.Setting("log_directory", dir), services.Setting("log_filename", "log"),
		services.Setting("log_file_mode", "0644"))
	url := pg.URL(pg.CreateDatabase(t))
	a, b := newTestClient(t, url, time.Minute), newTestClient(t, url, 10*time.Millisecond)
	cl := take(t, a, mutexRequest("m"))
	got := takeLater(t, b, "m")
	select {
	case <-got:
		t.Fatal("a wait longer than its lock timeout returned")
	case <-time.After(150 * time.Millisecond): // many slices
	}
	free(t, cl)
	free(t, <-got)
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil || len(log) == 0 {
		t.Fatalf("the log has %d bytes, %v", len(log), err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "ERROR") {
			t.Error(line)
		}
	}
}

// TestGrantedAsTheTimeIsUp: a lock that the server grants in the moment in which a wait
// is cancelled, or its time is up, is a hold.
func TestGrantedAsTheTimeIsUp(t *testing.T) {
	c := clients(t, 1)[0]
	conn := stranger(t, c)
	for _, condition := range []string{"query_canceled", "lock_not_available"} {
		exec(t, conn, fmt.Sprintf(`create or replace function holdfast.lock(s smallint, k bigint, m smallint) returns void language plpgsql as
$$ begin perform holdfast.try_lock(s, k, m); raise %s; end $$`, condition))
		var token int64
		if err := conn.QueryRow(t.Context(), "select tok from holdfast.wait(1::smallint, 42, 0::smallint)").Scan(&token); err != nil || token <= 0 {
			t.Errorf("%s: the token is %d, %v", condition, token, err)
		}
		exec(t, conn, "select pg_advisory_unlock_all()")
	}
}

// TestBatch: requests that go out together do not affect each other: one that fails is
// refused, and leaves no lock.
func TestBatch(t *testing.T) {
	c := clients(t, 1)[0]
	free(t, take(t, c, mutexRequest("warm")))
	bad := mustKey(t, "bad")
	exec(t, stranger(t, c), fmt.Sprintf(`create or replace function holdfast.try_lock(s smallint, k bigint, m smallint) returns boolean language plpgsql as
$$ begin
  if s = %d and k = %d then perform pg_advisory_lock_shared(4711); raise 'not this one'; end if;
  return case s when 1 then pg_try_advisory_lock(k) else pg_try_advisory_lock((k >> 32)::int, ((k << 32) >> 32)::int) end;
end $$`, bad.space(), bad.n))
	l := c.living()
	block := make(chan struct{})
	l.start(time.Minute, func(context.Context) error { <-block; return nil })
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			name := fmt.Sprintf("n%d", i)
			if i == 10 {
				name = "bad"
			}
			g, err := c.Acquire(t.Context(), mutexRequest(name))
			if (err != nil) != (name == "bad") {
				t.Errorf("%s: %v", name, err)
			}
			if err == nil {
				if err := g.Handle.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	within(t, "they do not queue up", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.queue) == 20 })
	close(block)
	all.Wait()
	if held(t, c, bad) {
		t.Error("the request that failed left its lock")
	}
	if !l.alive() {
		t.Error("the request that failed ended the connection")
	}
}

func mustKey(t *testing.T, name string) Key {
	t.Helper()
	k, err := ParseKey(name, true)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestTogether: two requests about one name do not go out at once: the connection would
// be granted it twice.
func TestTogether(t *testing.T) {
	about := func(n int64) *job { return &job{ask: &request{cl: &claim{key: Single(n)}}} }
	for _, c := range []struct {
		queue []*job
		n     int
	}{
		{[]*job{about(1)}, 1}, {[]*job{about(1), about(2), about(3)}, 3}, {[]*job{about(1), about(2), about(1)}, 2},
		{[]*job{{}, about(1)}, 1}, {[]*job{about(1), {}, about(2)}, 1},
	} {
		if n := together(c.queue); n != c.n {
			t.Errorf("%d of %d go out together; want %d", n, len(c.queue), c.n)
		}
	}
}

// TestEngaged: a waiter without a connection that tries on the home link is not
// given one meanwhile: it would be granted twice.
func TestEngaged(t *testing.T) {
	c := clients(t, 1)[0]
	free(t, take(t, c, mutexRequest("warm")))
	cl := &claim{c: c, r: mutexRequest("m"), key: mustKey(t, "m"), released: make(chan struct{})}
	w := c.join(cl)
	defer c.leave(w)
	if g := c.engage(w, given{}); g.l != nil {
		t.Fatal("a connection out of nowhere")
	}
	before := &claim{c: c, key: cl.key, l: &link{waits: true, claims: map[*claim]struct{}{}}}
	before.l.claims[before] = struct{}{}
	if c.next(before) != nil {
		t.Error("a waiter that tries is given a connection")
	}
	c.disengage(w)
	if c.next(before) != w {
		t.Error("a waiter that tries no more is not given a connection")
	}
}

// TestForcedBeforeItIsKnown: a hold that others see, and whose end they decide,
// before its own program has heard of the grant, ends all the same.
func TestForcedBeforeItIsKnown(t *testing.T) {
	c := clients(t, 2)
	full := tryRequest("s", driver.Semaphore)
	full.Wants[0].Weight = 2
	holder := take(t, c[1], full)
	waits, told := make(chan struct{}), make(chan error, 1)
	r := tryRequest("s", driver.Semaphore)
	r.Try, r.Waiting, r.Lost = false, func(int) { close(waits) }, func(cause error) { told <- cause }
	got := make(chan driver.Grant, 1)
	go func() {
		g, err := c[0].Acquire(context.Background(), r)
		if err != nil {
			t.Error(err)
		}
		got <- g
	}()
	<-waits
	deaf := make(chan struct{})
	l := c[0].living()
	l.start(time.Minute, func(context.Context) error { <-deaf; return nil })
	free(t, holder)
	var token uint64
	within(t, "the waiter is not granted", func() bool {
		i, err := c[1].Inspect(t.Context(), &driver.InspectRequest{Name: "s"})
		if err != nil {
			t.Fatal(err)
		}
		if len(i.Resources) > 0 && len(i.Resources[0].Holders) > 0 {
			token = i.Resources[0].Holders[0].Token
		}
		return token > 0
	})
	if _, err := c[1].Force(t.Context(), &driver.ForceRequest{Name: "s", Token: token}); err != nil {
		t.Fatal(err)
	}
	close(deaf)
	if g := <-got; g.Token != token {
		t.Fatalf("the waiter holds with %d; forced was %d", g.Token, token)
	}
	select {
	case <-told:
	case <-time.After(20 * time.Second):
		t.Fatal("the holder is not told that its hold was taken by force")
	}
	full.Try = false
	free(t, take(t, c[1], full))
}

// TestDecodeEvent: what is not ours is an error, not an event.
func TestDecodeEvent(t *testing.T) {
	if _, err := decodeEvent("hello", false); err == nil {
		t.Error("any text is an event")
	}
}

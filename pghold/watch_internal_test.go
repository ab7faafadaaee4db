package pghold

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
)

// fastPathLocksOf is how many fast-path locks others than conn have, or wait for.
func fastPathLocksOf(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	err := conn.QueryRow(t.Context(), `select count(*) from generate_series(0, 31) i, holdfast_v10.locks(1::smallint, 5209599041173340544 + i) l
where l.pid <> pg_backend_pid()`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// impatient is a client whose connection waits for a lock for a tenth of a second.
func impatient(t *testing.T) (*client, *pgx.Conn) {
	t.Helper()
	c := quickClients(t, 1)[0]
	c.slice = 200 * time.Millisecond
	free(t, takeQuickly(t, c, "m"))
	return c, stranger(t, c)
}

// TestWatchThatFailsOpensTheFastPath: a subscription that fails half way leaves
// nothing behind, and nor does the one that comes after it.
func TestWatchThatFailsOpensTheFastPath(t *testing.T) {
	c, conn := impatient(t)
	exec(t, conn, "select pg_advisory_lock($1)", int64(fastPathLock+20))
	other := c.hub.add() // another watcher that is about to subscribe, so that this is not the last watch
	if verb, err := firstEvent(t, c); err == nil {
		t.Fatalf("a fast-path lock cannot be had, and the watch tells %q", verb)
	}
	exec(t, conn, "select pg_advisory_unlock($1)", int64(fastPathLock+20))
	within(t, "the fast path stays closed after a watch that failed", func() bool { return fastPathLocksOf(t, conn) == 0 })
	c.hub.remove(other)
	if verb, err := firstEvent(t, c); err != nil || verb != driver.VerbReady {
		t.Fatalf("the next watch tells %q, %v", verb, err)
	}
	within(t, "the fast path stays closed after the watch", func() bool { return fastPathLocksOf(t, conn) == 0 })
	free(t, takeQuickly(t, c, "m"))
}

// TestWatchEndsAfterAll: the end of a subscription that fails is tried again.
func TestWatchEndsAfterAll(t *testing.T) {
	c, conn := impatient(t)
	waits := func() (yes bool) {
		err := conn.QueryRow(t.Context(), "select exists (select from pg_locks where not granted and pid = $1)", c.living().pid).Scan(&yes)
		if err != nil {
			t.Fatal(err)
		}
		return yes
	}
	for ev, err := range c.Watch(t.Context(), &driver.WatchRequest{}) {
		if err != nil || ev.Verb != driver.VerbReady {
			t.Fatalf("the watch tells %q, %v", ev.Verb, err)
		}
		exec(t, conn, "begin")
		exec(t, conn, "select from holdfast.watcher for update") // it cannot be forgotten
		break
	}
	within(t, "the subscription is not ended", waits)
	within(t, "the end of the subscription does not fail", func() bool { return !waits() })
	exec(t, conn, "commit")
	within(t, "the fast path stays closed", func() bool { return fastPathLocksOf(t, conn) == 0 })
	free(t, takeQuickly(t, c, "m"))
}

// TestWatchClosesTheFastPath: also those that the end of a subscription opened which
// then failed.
func TestWatchClosesTheFastPath(t *testing.T) {
	c, conn := impatient(t)
	for ev, err := range c.Watch(t.Context(), &driver.WatchRequest{}) {
		if err != nil || ev.Verb != driver.VerbReady {
			t.Fatalf("the watch tells %q, %v", ev.Verb, err)
		}
		l := c.living()
		j := l.start(time.Minute, func(ctx context.Context) error {
			_, err := l.conn.Exec(ctx, "select pg_advisory_unlock_shared($1)", int64(fastPathLock+20))
			return err
		})
		if <-j.done; j.err != nil {
			t.Fatal(j.err)
		}
		if verb, err := firstEvent(t, c); err != nil || verb != driver.VerbReady {
			t.Fatalf("the next watch tells %q, %v", verb, err)
		}
		if n := fastPathLocksOf(t, conn); n != fastPathLocks {
			t.Errorf("%d of %d fast-path locks are shared", n, fastPathLocks)
		}
		break
	}
	within(t, "the fast path stays closed after the watch", func() bool { return fastPathLocksOf(t, conn) == 0 })
}

// firstEvent is what a watch tells first.
func firstEvent(t *testing.T, c *client) (string, error) {
	t.Helper()
	for ev, err := range c.Watch(t.Context(), &driver.WatchRequest{}) {
		return ev.Verb, err
	}
	t.Fatal("the watch tells nothing")
	return "", nil
}

// TestWatchTellsNothingOfBefore: what others of the program that watch already hear before a watch has begun
// is not told by it: its reader reads that.
func TestWatchTellsNothingOfBefore(t *testing.T) {
	c, _ := impatient(t)
	put := func(key string) driver.Revision {
		t.Helper()
		reply, err := c.Txn(t.Context(), &driver.TxnRequest{ID: newID(), Then: []driver.Op{{Kind: driver.OpPut, Key: key}}})
		if err != nil {
			t.Fatal(err)
		}
		return reply.Revision
	}
	for _, err := range c.Watch(t.Context(), &driver.WatchRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
		var told []driver.Event
		f := &follower{c: c, r: &driver.WatchRequest{}, w: c.hub.add(), yield: func(ev driver.Event, _ error) bool { told = append(told, ev); return true }}
		defer c.hub.remove(f.w)
		heard := func(n int) func() bool {
			return func() bool {
				f.w.mu.Lock()
				defer f.w.mu.Unlock()
				return len(f.w.list) == n
			}
		}
		put("before")
		within(t, "a put is not heard", heard(1))
		if err := f.subscribe(t.Context(), driver.VerbReady); err != nil {
			t.Fatal(err)
		}
		after := put("after")
		within(t, "a put is not heard", heard(2))
		if err := f.drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(told) != 2 || told[0].Revision != after || told[1].Name != "after" || told[1].Revision != after {
			t.Errorf("a watch from %d on tells %+v", after, told)
		}
		return
	}
}

package pghold

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
)

// seen reports whether pg_locks has an advisory lock (bigint form) of the database.
func seen(t *testing.T, conn *pgx.Conn, key int64, granted bool, mode string) (yes bool) {
	t.Helper()
	err := conn.QueryRow(t.Context(), "select exists (select from holdfast_v10.locks(1::smallint, $1) l where l.granted = $2 and l.mode = $3)",
		key, granted, mode).Scan(&yes)
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

// acquiring starts an Acquire.
func acquiring(t *testing.T, c *client, r *driver.Request) <-chan error {
	got := make(chan error, 1)
	ctx := t.Context()
	go func() {
		g, err := c.Acquire(ctx, r)
		if err == nil {
			err = g.Handle.Release(ctx)
		}
		got <- err
	}()
	return got
}

// outcomeOf is the end of a call that should end soon.
func outcomeOf(t *testing.T, got <-chan error) error {
	t.Helper()
	select {
	case err := <-got:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the call does not end")
		return nil
	}
}

func countDown(c *client, ctx context.Context, name string, by int64) (int64, error) {
	r, err := c.CountDown(ctx, &driver.CountDownRequest{ID: newID(), Name: name, Count: 100, By: by})
	return r.Left, err
}

// TestQuickLatch: CountDown makes no latch of a name that is held as a mutex, with
// a row or without, by its own program or another one; once it is free it does.
func TestQuickLatch(t *testing.T) {
	c := quickClients(t, 2)
	for i, other := range c {
		name := fmt.Sprint("m", i)
		cl := takeQuickly(t, c[0], name)
		if _, err := countDown(other, t.Context(), name, 1); !errors.Is(err, driver.ErrConflict) {
			t.Fatalf("a mutex that is held is counted down: %v", err)
		}
		free(t, cl)
		if left, err := countDown(other, t.Context(), name, 1); err != nil || left != 99 {
			t.Fatalf("a name that is free is counted down to %d, %v", left, err)
		}
		within(t, "a latch is taken as a mutex", func() bool {
			g, err := c[0].Acquire(t.Context(), tryRequest(name, driver.Mutex))
			if err == nil {
				free(t, g.Handle.(*rowClaim))
			}
			return errors.Is(err, driver.ErrConflict)
		})
	}
}

// TestLatchIsMadeByMany: a client that makes a latch at the same time as others is in
// nobody's way.
func TestLatchIsMadeByMany(t *testing.T) {
	c := quickClients(t, 2)
	const callers = 8
	for i := range 5 {
		name := fmt.Sprint("l", i)
		errs := make(chan error, callers)
		for n := range callers {
			go func() {
				_, err := countDown(c[n%2], t.Context(), name, 1)
				errs <- err
			}()
		}
		for range callers {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if left, err := countDown(c[0], t.Context(), name, 0); err != nil || left != 100-callers {
			t.Errorf("%d are left, %v", left, err)
		}
	}
}

// TestNewLatchIsGuarded: for a while no client that has not heard of a new latch takes
// its name quickly.
func TestNewLatchIsGuarded(t *testing.T) {
	c := quickClients(t, 1)[0]
	n := 0
	within(t, "no latch is guarded when it was just made", func() (guarded bool) {
		n++
		key := mustKey(t, fmt.Sprint("l", n))
		if _, err := countDown(c, t.Context(), fmt.Sprint("l", n), 1); err != nil {
			t.Fatal(err)
		}
		l := c.living()
		j := l.start(time.Minute, func(ctx context.Context) error {
			made := l.waitersLocks[key]
			err := l.dropWaitersLocks(ctx)
			if _, guarded = l.waitersLocks[key]; !guarded && time.Since(made) < linger {
				t.Error("the guard of a latch that was just made is given back")
			}
			return err
		})
		if <-j.done; j.err != nil {
			t.Fatal(j.err)
		}
		return guarded || t.Failed()
	})
}

// TestGuardComesBeforeRows: a client that makes a semaphore of a name that its own program
// has as a lock locks it for waiters before it waits for rows: else another one could take
// the name after that.
func TestGuardComesBeforeRows(t *testing.T) {
	c := quickClients(t, 1)[0]
	cl := takeQuickly(t, c, "m")
	conn := stranger(t, c)
	exec(t, conn, "select pg_advisory_lock($1)", int64(fastPathLock)) // nobody can close the fast path, which is where rows are waited for
	got := acquiring(t, c, tryRequest("m", driver.Semaphore))
	within(t, "the name is not guarded", func() bool { return seen(t, conn, waitersLockOf(cl.key), true, "ShareLock") })
	exec(t, conn, "select pg_advisory_unlock($1)", int64(fastPathLock))
	if err := outcomeOf(t, got); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("a mutex that is held is a semaphore: %v", err)
	}
	free(t, cl)
}

// TestGuardThatDidNotCome: a waiters' lock that could not be had is asked for again.
func TestGuardThatDidNotCome(t *testing.T) {
	c, conn := impatient(t)
	for what, ask := range map[string]func() error{
		"semaphore": func() error { return outcomeOf(t, acquiring(t, c, tryRequest("semaphore", driver.Semaphore))) },
		"latch":     func() error { _, err := countDown(c, t.Context(), "latch", 1); return err },
	} {
		key := mustKey(t, what)
		guard := waitersLockOf(key)
		l := c.living()
		l.join(key) // once there, it stays
		defer l.quit(key)
		exec(t, conn, "select pg_advisory_lock($1)", guard)
		if err := ask(); err == nil {
			t.Fatalf("a %s is made without its guard", what)
		}
		exec(t, conn, "select pg_advisory_unlock($1)", guard)
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		if !seen(t, conn, guard, true, "ShareLock") {
			t.Errorf("a %s is made without its guard, which could not be had before", what)
		}
	}
}

// TestGuardStays: a program needs the waiters' lock of a semaphore from before it asks for
// it until it has given it back.
func TestGuardStays(t *testing.T) {
	c := quickClients(t, 2)
	full := tryRequest("s", driver.Semaphore)
	full.Wants[0].Weight = 2
	held := take(t, c[1], full)
	needed := func(c *client) bool { return len(c.idleKeys(c.living(), []Key{held.key})) == 0 }
	waits := make(chan bool, 1)
	r := tryRequest("s", driver.Semaphore)
	r.Try, r.Waiting = false, func(int) { waits <- needed(c[0]) }
	got := acquiring(t, c[0], r)
	if !<-waits {
		t.Error("the guard of a semaphore that is waited for is not needed")
	}
	if !needed(c[1]) {
		t.Error("the guard of a semaphore that is held is not needed")
	}
	free(t, held)
	if err := outcomeOf(t, got); err != nil {
		t.Fatal(err)
	}
	if needed(c[0]) || needed(c[1]) {
		t.Error("the guard of a semaphore that nobody holds is needed")
	}
}

// TestKindOfAStoppedProgram: what a program holds without a row is a mutex also if
// it has been stopped, and writes none.
func TestKindOfAStoppedProgram(t *testing.T) {
	c := quickClients(t, 2)
	c[0].recordHoldsAfter = time.Hour
	cl := takeQuickly(t, c[0], "m")
	if _, err := c[1].Acquire(t.Context(), tryRequest("m", driver.Semaphore)); !errors.Is(err, driver.ErrConflict) {
		t.Fatalf("a mutex that is held is a semaphore: %v", err)
	}
	if _, err := countDown(c[1], t.Context(), "m", 1); !errors.Is(err, driver.ErrConflict) {
		t.Fatalf("a mutex that is held is a latch: %v", err)
	}
	free(t, cl)
	exec(t, stranger(t, c[0]), "select holdfast_v10.lock(2::smallint, $1, 0::smallint)", cl.key.n) // by a program that does not know us
	free(t, take(t, c[1], tryRequest("m", driver.Semaphore)))
}

const arriveAlone = `select holdfast_v10.arrive(2::smallint, $1, 'm', 1::smallint, 0::smallint, $2, gen_random_uuid(), '', '', null, true, false, true, 0)`

// TestMakeWaitsForArrivals: a lock whose row is not committed yet is held too.
func TestMakeWaitsForArrivals(t *testing.T) {
	c := quickClients(t, 1)[0]
	if err := c.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, look := stranger(t, c), stranger(t, c)
	key, nonce := mustKey(t, "m"), int64(7)
	exec(t, conn, "select pg_advisory_lock($1)", nonce)
	for what, start := range map[string]func() <-chan error{
		"semaphore": func() <-chan error { return acquiring(t, c, tryRequest("m", driver.Semaphore)) },
		"latch": func() <-chan error {
			got := make(chan error, 1)
			go func() { _, err := countDown(c, context.Background(), "m", 1); got <- err }()
			return got
		},
	} {
		exec(t, conn, "begin")
		exec(t, conn, arriveAlone, key.n, nonce)
		got := start()
		within(t, "a "+what+" is made beside a lock", func() bool {
			return len(got) > 0 || seen(t, look, 5209599041173340519, false, "ExclusiveLock")
		})
		exec(t, conn, "commit")
		if err := outcomeOf(t, got); !errors.Is(err, driver.ErrConflict) {
			t.Errorf("a %s of a name that is held: %v", what, err)
		}
		exec(t, conn, "select holdfast_v10.unlock(2::smallint, $1, 0::smallint)", key.n)
		exec(t, conn, "delete from holdfast.claim")
	}
}

// TestMakersDoNotDeadlock: a client that makes a semaphore where somebody is about to make
// it does not wait for a transaction that waits for it.
func TestMakersDoNotDeadlock(t *testing.T) {
	c := quickClients(t, 1)[0]
	if err := c.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, look := stranger(t, c), stranger(t, c)
	exec(t, conn, "begin")
	exec(t, conn, "select holdfast_v10.establish(2::smallint, $1, 's', 3::smallint, 2, 0, false)", mustKey(t, "s").n)
	got := acquiring(t, c, tryRequest("s", driver.Semaphore))
	within(t, "nobody waits for who makes a semaphore", func() (waits bool) {
		err := look.QueryRow(t.Context(), `select exists (
  select from pg_locks l join pg_stat_activity a using (pid) where not l.granted and a.datname = current_database())`).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
		return waits
	})
	exec(t, conn, "select holdfast_v10.watched()") // as gather does when it grants
	exec(t, conn, "commit")
	if err := outcomeOf(t, got); err != nil {
		t.Error(err)
	}
}

// TestArrivalLearnsTheKind: a lock that is free is not granted if somebody made a
// semaphore of the name after the arrival looked what it is.
func TestArrivalLearnsTheKind(t *testing.T) {
	c := quickClients(t, 2)
	if err := c[0].begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := stranger(t, c[0])
	const stop = 99
	exec(t, conn, "alter function holdfast_v10.try_lock rename to try_lock_now")
	exec(t, conn, fmt.Sprintf(`create function holdfast_v10.try_lock(s smallint, k bigint, m smallint) returns boolean language plpgsql as $$
begin
  perform pg_advisory_xact_lock(%d);
  return holdfast_v10.try_lock_now(s, k, m);
end $$`, stop))
	exec(t, conn, "select pg_advisory_lock($1)", stop)
	got := acquiring(t, c[0], tryRequest("m", driver.Mutex))
	within(t, "nobody arrives", func() bool { return seen(t, conn, stop, false, "ExclusiveLock") })
	held := take(t, c[1], tryRequest("m", driver.Semaphore))
	exec(t, conn, "select pg_advisory_unlock($1)", stop)
	if err := outcomeOf(t, got); !errors.Is(err, driver.ErrConflict) {
		t.Errorf("a semaphore is granted as a mutex: %v", err)
	}
	var locked bool
	if err := conn.QueryRow(t.Context(), "select exists (select from holdfast_v10.locks(2::smallint, $1))", held.key.n).Scan(&locked); err != nil || locked {
		t.Errorf("the lock that was refused is had: %t, %v", locked, err)
	}
	free(t, held)
}

// TestWaiterLearnsTheKind: a waiter that began in the moment in which somebody made
// a semaphore of the name does not get it as a lock.
func TestWaiterLearnsTheKind(t *testing.T) {
	c := quickClients(t, 1)[0]
	if err := c.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := stranger(t, c)
	for _, kind := range []driver.ResourceKind{driver.Mutex, driver.RWMutex} {
		name := kind.String()
		key := mustKey(t, name)
		exec(t, conn, "begin")
		exec(t, conn, "select holdfast_v10.free(2::smallint, $1)", key.n)
		exec(t, conn, "insert into holdfast.resource (space, key, name, kind, lim, made) values (2, $1, $2, 3, 2, 1)", key.n, name)
		waits := make(chan struct{})
		r := tryRequest(name, kind)
		r.Try, r.Waiting = false, func(int) { close(waits) }
		got := acquiring(t, c, r)
		<-waits
		exec(t, conn, "commit")
		if err := outcomeOf(t, got); !errors.Is(err, driver.ErrConflict) {
			t.Errorf("a semaphore is granted as a %s: %v", kind, err)
		}
		var rows int
		within(t, "the waiter's row stays", func() bool {
			if err := conn.QueryRow(t.Context(), "select count(*) from holdfast.claim").Scan(&rows); err != nil {
				t.Fatal(err)
			}
			return rows == 0
		})
	}
}

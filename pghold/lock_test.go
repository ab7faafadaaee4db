package pghold_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pghold"
)

// TestAliases: "lock" and "d9bf1eb7,ffffffff" are one lock, within a Space and
// between two.
func TestAliases(t *testing.T) {
	url := database(t)
	a, b := open(t, url), open(t, url)
	h := must(a.Mutex("lock").Acquire(t.Context()))(t)
	for _, s := range []*holdfast.Space{a, b} {
		_, err := s.Mutex("d9bf1eb7,ffffffff").TryAcquire(t.Context())
		refused(t, err, holdfast.ErrHeld)
	}
	got := waiting(t, a, "d9bf1eb7,ffffffff")
	check(t, h.Release())
	check(t, granted(t, got).Release())
	_, err := a.AcquireAll(t.Context(), a.Mutex("lock").Want(), a.Mutex("D9BF1EB7,FFFFFFFF").Want())
	if err == nil {
		t.Error("a lock was taken twice in one AcquireAll")
	}
}

// TestForeignPrograms: the locks are PostgreSQL's own, so that a program that
// takes the key itself excludes us and is excluded.
func TestForeignPrograms(t *testing.T) {
	url := database(t)
	s, other := open(t, url), connect(t, url)
	for name, key := range map[string]string{"lock": "-641786185, -1", "00000003ffffffff": "17179869183", "parallel_test": "-5836566728442972554"} {
		var got bool
		h := must(s.Mutex(name).Acquire(t.Context()))(t)
		if scan(t, other, &got, "select pg_try_advisory_lock("+key+")"); got {
			t.Fatalf("%s: a foreign program got the lock that we hold", name)
		}
		check(t, h.Release())
		if scan(t, other, &got, "select pg_try_advisory_lock("+key+")"); !got {
			t.Fatalf("%s: a foreign program did not get the lock that we released", name)
		}
		_, err := s.Mutex(name).TryAcquire(t.Context())
		refused(t, err, holdfast.ErrHeld)
		e, _ := errors.AsType[*holdfast.Error](err)
		if want := fmt.Sprintf("PostgreSQL process %d", other.PgConn().PID()); len(e.Holders) != 1 || e.Holders[0].Owner != want {
			t.Errorf("the foreign holder is told as %+v; want %s", e.Holders, want)
		}
		wait := waiting(t, s, name)
		scan(t, other, &got, "select pg_advisory_unlock("+key+")")
		check(t, granted(t, wait).Release())
	}
}

// TestForeignWriterIsNotStarved: a reader beside a reader of its own process
// waits behind a foreign writer, although PostgreSQL would grant the connection
// at once what it already has.
func TestForeignWriterIsNotStarved(t *testing.T) {
	url := database(t)
	s, other, look := open(t, url), connect(t, url), connect(t, url)
	first := must(s.RWMutex("lock").Reader().Acquire(t.Context()))(t)
	wrote := make(chan error, 1)
	go func() {
		_, err := other.Exec(context.Background(), "select pg_advisory_lock(-641786185, -1)")
		wrote <- err
	}()
	eventually(t, "the writer does not wait", func() bool {
		var n int
		scan(t, look, &n, "select count(*) from pg_locks where locktype = 'advisory' and not granted and pid = $1", other.PgConn().PID())
		return n == 1
	})
	_, err := s.RWMutex("lock").Reader().TryAcquire(t.Context())
	refused(t, err, holdfast.ErrHeld)
	check(t, first.Release())
	check(t, <-wrote)
}

// TestTokenIsDrawnAfterTheGrant: a waiter's token is greater than every token
// drawn while it waited.
func TestTokenIsDrawnAfterTheGrant(t *testing.T) {
	url := database(t)
	a, b := open(t, url), open(t, url)
	h := must(a.Mutex("m").Acquire(t.Context()))(t)
	wait := waiting(t, b, "m")
	between := must(a.Mutex("n").Acquire(t.Context()))(t)
	check(t, h.Release())
	if got := granted(t, wait); got.Token() <= between.Token() {
		t.Errorf("the waiter has the token %d; %d was drawn while it waited", got.Token(), between.Token())
	}
}

// TestOrderOverProcesses: a waiter that came second to a process goes before one that came
// third to another, although one of each waits in the server.
func TestOrderOverProcesses(t *testing.T) {
	url := database(t)
	a, b := open(t, url), open(t, url)
	for round := range 5 {
		h := must(a.Mutex("m").Acquire(t.Context()))(t)
		line := []<-chan *holdfast.Hold{waiting(t, a, "m"), waiting(t, a, "m"), waiting(t, a, "m"), waiting(t, b, "m"), waiting(t, a, "m")}
		for i, next := range line {
			check(t, h.Release())
			h = granted(t, next)
			for _, later := range line[i+1:] {
				if len(later) > 0 {
					t.Fatalf("round %d: somebody overtook number %d", round, i+1)
				}
			}
		}
		check(t, h.Release())
	}
}

// TestOnlyTheNextWaitsForTheLock: the others wait for the one before them, so that
// the server wakes nobody out of turn.
func TestOnlyTheNextWaitsForTheLock(t *testing.T) {
	url := database(t)
	look := connect(t, url)
	h := must(open(t, url).Mutex("lock").Acquire(t.Context()))(t)
	var line []<-chan *holdfast.Hold
	for range 4 {
		line = append(line, waiting(t, open(t, url), "lock"))
	}
	for left := len(line); left > 0; left-- {
		eventually(t, "not everybody waits for somebody else", func() bool {
			var waiting, forIt, distinct int
			scan(t, look, &waiting, "select count(*) from pg_locks where locktype = 'advisory' and not granted")
			scan(t, look, &distinct, "select count(distinct (classid, objid)) from pg_locks where locktype = 'advisory' and not granted")
			scan(t, look, &forIt, "select count(*) from holdfast_v10.locks(2::smallint, (-641786185::bigint << 32) | 4294967295) where not granted")
			return waiting == left && distinct == left && forIt == 1
		})
		check(t, h.Release())
		h = granted(t, line[len(line)-left])
	}
	check(t, h.Release())
}

// TestThousandHolds: a thousand holds take at most four connections.
func TestThousandHolds(t *testing.T) {
	url := database(t)
	s, look := open(t, url+"&application_name=holdfast"), connect(t, url)
	var all sync.WaitGroup
	holds := make([]*holdfast.Hold, 1000)
	for w := range 8 {
		all.Go(func() {
			for i := w; i < len(holds); i += 8 {
				h, err := s.Mutex(names("n", 1000)[i]).Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				holds[i] = h
			}
		})
	}
	all.Wait()
	if n := connections(t, look); n > 4 {
		t.Errorf("1,000 holds take %d connections", n)
	}
	for _, h := range holds {
		check(t, h.Err())
		check(t, h.Release())
	}
}

// TestManyWaitersSmallPool: 200 waiters on one lock with a pool of 10 all get
// their turn, and one of them at a time waits in the server.
func TestManyWaitersSmallPool(t *testing.T) {
	url := database(t)
	s, look := openPool(t, url+"&pool_max_conns=10", nil), connect(t, url)
	h := must(s.Mutex("m").Acquire(t.Context()))(t)
	var all sync.WaitGroup
	inside := 0
	for range 200 {
		all.Go(func() {
			err := s.Mutex("m").Do(t.Context(), func(context.Context, *holdfast.Hold) error {
				inside++ // the race detector and the sum tell if two are inside
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "200 do not wait", func() bool { return len(must(s.Inspect(t.Context(), "m"))(t).Waiters) == 200 })
	if n := connections(t, look); n > 4 {
		t.Errorf("200 waiters take %d connections", n)
	}
	check(t, h.Release())
	all.Wait()
	if inside != 200 {
		t.Errorf("%d were inside", inside)
	}
}

// TestMoreWaitsThanConnections: waits beyond Options.Waits get their turn too,
// and a lock that is free needs none.
func TestMoreWaitsThanConnections(t *testing.T) {
	url := database(t)
	a, b := open(t, url), openPool(t, url, &pghold.Options{Waits: 1})
	var holds []*holdfast.Hold
	var waits []<-chan *holdfast.Hold
	for _, name := range names("w", 5) {
		holds = append(holds, must(a.Mutex(name).Acquire(t.Context()))(t))
		waits = append(waits, waiting(t, b, name))
	}
	check(t, must(b.Mutex("free").Acquire(t.Context()))(t).Release())
	for i := range holds { // the last first: the first one has the connection
		k := len(holds) - 1 - i
		check(t, holds[k].Release())
		defer granted(t, waits[k]).Release()
	}
}

// TestCancelKeepsTheConnection: a cancelled wait costs neither the connection it
// waited on nor what others hold.
func TestCancelKeepsTheConnection(t *testing.T) {
	url := database(t)
	a, b, look := open(t, url), open(t, url), connect(t, url)
	h := must(a.Mutex("m").Acquire(t.Context()))(t)
	mine := must(b.Mutex("n").Acquire(t.Context()))(t)
	pids := func() (list []int32) {
		scan(t, look, &list, "select array_agg(pid order by pid) from pg_stat_activity where application_name = 'holdfast' and datname = current_database()")
		return list
	}
	var before []int32
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		waits := make(chan struct{})
		go func() {
			_, err := b.Mutex("m", holdfast.OnWait(func(int) { close(waits) })).Acquire(ctx)
			done <- err
		}()
		<-waits
		eventually(t, "nobody waits in the server", func() bool {
			var n int
			scan(t, look, &n, "select count(*) from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())")
			return n == 1
		})
		cancel()
		refused(t, <-done, context.Canceled)
		eventually(t, "the cancelled wait stays", func() bool { return len(must(a.Inspect(t.Context(), "m"))(t).Waiters) == 0 })
		if before == nil {
			before = pids()
		}
		if after := pids(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Fatalf("the connections were %v and are %v", before, after)
		}
	}
	check(t, mine.Err())
	check(t, mine.Release())
	check(t, h.Err())
}

// TestLockTx: a lock of the caller's transaction is the lock of the Mutex, and
// ends with the transaction.
func TestLockTx(t *testing.T) {
	url := database(t)
	s, conn := open(t, url), connect(t, url)
	db := must(sql.Open("pgx", url))(t)
	defer db.Close()
	begins := map[string]func() (tx any, end func() error){
		"pgx": func() (any, func() error) {
			tx := must(conn.Begin(t.Context()))(t)
			return tx, func() error { return tx.Commit(t.Context()) }
		},
		"database/sql": func() (any, func() error) {
			tx := must(db.BeginTx(t.Context(), nil))(t)
			return tx, tx.Rollback
		},
	}
	for kind, begin := range begins {
		t.Run(kind, func(t *testing.T) {
			for _, name := range []string{"lock", "a name that is hashed"} {
				tx, end := begin()
				check(t, pghold.LockTx(t.Context(), tx, name))
				_, err := s.Mutex(name).TryAcquire(t.Context())
				refused(t, err, holdfast.ErrHeld)
				check(t, end())
				h := must(s.Mutex(name).TryAcquire(t.Context()))(t)
				tx, end = begin()
				if got := must(pghold.TryLockTx(t.Context(), tx, name))(t); got {
					t.Error("TryLockTx got a lock that is held")
				}
				short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				refused(t, pghold.LockTx(short, tx, name), context.DeadlineExceeded)
				cancel()
				check(t, h.Release())
				if got := must(pghold.TryLockTx(t.Context(), tx, name))(t); !got {
					t.Error("after a wait in vain the transaction does not get the free lock")
				}
				check(t, end())
			}
		})
	}
	pool := must(pgxpool.New(t.Context(), url))(t)
	defer pool.Close()
	for _, tx := range []any{"no transaction", pool, conn, db} { // a lock of these would end at once
		refused(t, pghold.LockTx(t.Context(), tx, "lock"), fs.ErrInvalid)
		_, err := pghold.TryLockTx(t.Context(), tx, "lock")
		refused(t, err, fs.ErrInvalid)
	}
}

// TestLockTxFarDeadline: a deadline beyond the longest lock_timeout is as none.
func TestLockTxFarDeadline(t *testing.T) {
	tx := must(connect(t, database(t)).Begin(t.Context()))(t)
	far, cancel := context.WithTimeout(t.Context(), 1000*time.Hour)
	defer cancel()
	check(t, pghold.LockTx(far, tx, "lock"))
	check(t, tx.Commit(t.Context()))
}

// TestDeadlock: two transactions that wait for each other get ErrDeadlock, one of
// them, with the word.
func TestDeadlock(t *testing.T) {
	url := database(t)
	pool := must(pgxpool.New(t.Context(), url))(t)
	defer pool.Close()
	txs := []pgx.Tx{must(pool.Begin(t.Context()))(t), must(pool.Begin(t.Context()))(t)}
	order := [][]string{{"x", "y"}, {"y", "x"}}
	for i, tx := range txs {
		check(t, pghold.LockTx(t.Context(), tx, order[i][0]))
	}
	errs := make(chan error, 2)
	for i, tx := range txs {
		go func() {
			errs <- pghold.LockTx(t.Context(), tx, order[i][1])
			_ = tx.Rollback(context.Background())
		}()
	}
	err := errors.Join(<-errs, <-errs)
	refused(t, err, holdfast.ErrDeadlock)
	if e, ok := errors.AsType[*holdfast.Error](err); !ok || !containsAll(e.Error(), "deadlock", "one order", "lock in transaction") {
		t.Errorf("the text does not say what happened and what to do: %v", err)
	}
}

package pghold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/pghold"
)

// refuseDeletes has the server refuse to delete claims, with a SQLSTATE, until the
// function that it returns is called.
func refuseDeletes(t testing.TB, conn *pgx.Conn, code string) func() {
	t.Helper()
	_, err := conn.Exec(t.Context(), fmt.Sprintf(`create or replace function public.refuse() returns trigger language plpgsql as
$$ begin raise exception 'not now' using errcode = '%s'; end $$;
create trigger refuse before delete on holdfast.claim for each row execute function public.refuse()`, code))
	check(t, err)
	return func() {
		t.Helper()
		_, err := conn.Exec(context.Background(), "drop trigger refuse on holdfast.claim")
		check(t, err)
	}
}

// claims are the rows that describe holders and waiters.
func claims(t testing.TB, conn *pgx.Conn) (n int) {
	t.Helper()
	scan(t, conn, &n, "select count(*) from holdfast.claim")
	return n
}

// TestRefusedRelease: a Release that the server refuses for a while is sent again
// until it is answered.
func TestRefusedRelease(t *testing.T) {
	for _, code := range []string{"25006", "57014", "53200"} {
		t.Run(code, func(t *testing.T) {
			url := database(t)
			a, b, look := open(t, url), open(t, url), connect(t, url)
			holds := []*holdfast.Hold{
				must(a.Mutex("m").Acquire(t.Context()))(t),
				must(a.RWMutex("r").Reader().Acquire(t.Context()))(t),
				must(a.Semaphore("s", 1).Acquire(t.Context(), 1))(t),
				must(a.Election("e").Campaign(t.Context(), nil))(t).Hold,
			}
			eventually(t, "the holds have no rows", func() bool { return claims(t, look) == len(holds) })
			accept := refuseDeletes(t, look, code)
			released := make(chan error, len(holds))
			for _, h := range holds {
				go func() { released <- h.Release() }()
			}
			time.Sleep(100 * time.Millisecond) // time for the first attempts to be refused
			accept()
			within, end := context.WithTimeout(t.Context(), patience)
			defer end()
			must(b.Mutex("m").Acquire(within))(t)
			must(b.RWMutex("r").Writer().Acquire(within))(t)
			must(b.Semaphore("s", 1).Acquire(within, 1))(t)
			must(b.Election("e").Campaign(within, nil))(t)
			for range holds {
				check(t, <-released)
			}
		})
	}
}

// TestRefusedCleanUp: a wait that is given up while the server refuses to forget it
// leaves nothing in the end: the name is granted to the next.
func TestRefusedCleanUp(t *testing.T) {
	url := database(t)
	a, b, look := open(t, url), open(t, url), connect(t, url)
	sem, mutex := must(a.Semaphore("s", 1).Acquire(t.Context(), 1))(t), must(a.Mutex("m").Acquire(t.Context()))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	waits := make(chan struct{}, 2)
	told := holdfast.OnWait(func(int) { waits <- struct{}{} })
	go func() { _, err := b.Semaphore("s", 1, told).Acquire(ctx, 1); ended <- err }()
	go func() { _, err := b.Mutex("m", told).Acquire(ctx); ended <- err }()
	<-waits
	<-waits
	accept := refuseDeletes(t, look, "25006")
	cancel()
	refused(t, <-ended, context.Canceled)
	refused(t, <-ended, context.Canceled)
	time.Sleep(100 * time.Millisecond) // time for the first attempt to be refused
	accept()
	check(t, sem.Release())
	check(t, mutex.Release())
	within, end := context.WithTimeout(t.Context(), patience)
	defer end()
	must(a.Semaphore("s", 1).Acquire(within, 1))(t)
	must(a.Mutex("m").Acquire(within))(t)
	eventually(t, "the wait left a row", func() bool { return claims(t, look) == 2 })
}

// TestIdleSessionTimeout: connections of the pool that the server ends when they are
// idle are not the caller's concern, and an Add counts once.
func TestIdleSessionTimeout(t *testing.T) {
	url := database(t)
	look := connect(t, url)
	must(open(t, url).Counter("c").Load(t.Context()))(t) // the schema is made
	var name string
	scan(t, look, &name, "select current_database()")
	_, err := look.Exec(t.Context(), "alter database "+name+" set idle_session_timeout = '500ms'") // pgx looks at what was idle for a second
	check(t, err)
	s := openPool(t, url+"&application_name=idle", nil)
	c := s.Counter("c")
	for range 4 {
		must(c.Add(t.Context(), 1))(t)
		must(s.KV().Put(t.Context(), "k", nil))(t)
		eventually(t, "the server ends no connection that is idle", func() (ended bool) {
			scan(t, look, &ended, "select not exists (select from pg_stat_activity where application_name = 'idle')")
			return ended
		})
	}
	if n := must(c.Load(t.Context()))(t); n != 4 {
		t.Errorf("4 Adds counted %d", n)
	}
}

// TestEncoding: a database that cannot keep every name is refused, with the setting
// named, and not as something to try again.
func TestEncoding(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	look := connect(t, pg.URL(pg.CreateDatabase(t)))
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		name := fmt.Sprintf("encoded_%s_%d", strings.ToLower(encoding), time.Now().UnixNano())
		_, err := look.Exec(t.Context(), fmt.Sprintf("create database %s encoding '%s' template template0 lc_collate 'C' lc_ctype 'C'", name, encoding))
		check(t, err)
		s := open(t, pg.URL(name))
		_, acquired := s.Mutex("m").Acquire(t.Context())
		for _, err := range []error{acquired, s.Ping(t.Context())} {
			refused(t, err, errors.ErrUnsupported)
			if !containsAll(err.Error(), "server_encoding", encoding, "UTF8") {
				t.Errorf("the text does not name the setting: %v", err)
			}
		}
	}
}

// TestSchemaIsASCII: any server can read it, whatever its encoding.
func TestSchemaIsASCII(t *testing.T) {
	for i, r := range pghold.Schema {
		if r > 127 {
			t.Fatalf("%q at %d", r, i)
		}
	}
}

// TestFullLockTable: an acquire that the server has no room for is refused, and ends
// nothing else: not the holds of the program, nor its semaphores, nor its waits.
func TestFullLockTable(t *testing.T) {
	pg := services.PostgreSQL(t, services.Setting("max_locks_per_transaction", "10"), services.Setting("max_connections", "20"))
	url := pg.URL(pg.CreateDatabase(t))
	pool := must(pgxpool.New(t.Context(), url))(t)
	t.Cleanup(pool.Close)
	s := must(holdfast.New(must(pghold.New(pool, nil))(t)))(t)
	defer func() { check(t, s.Close()) }()
	var holds []*holdfast.Hold
	var full error
	for i := 0; full == nil; i++ {
		if i > 20000 {
			t.Fatal("the table of locks does not fill")
		}
		h, err := s.Mutex(fmt.Sprintf("a long name, number %d", i)).Acquire(t.Context())
		if full = err; err == nil {
			holds = append(holds, h)
		}
	}
	refused(t, full, holdfast.ErrUnavailable)
	if !containsAll(full.Error(), "max_locks_per_transaction") {
		t.Errorf("the setting is not named: %v", full)
	}
	for i := range 50 {
		if h, err := s.Mutex(fmt.Sprintf("one more, number %d", i)).TryAcquire(t.Context()); err == nil {
			holds = append(holds, h)
		}
	}
	for i, h := range holds {
		if h.Err() != nil {
			t.Fatalf("hold %d of %d is lost: %v", i, len(holds), h.Err())
		}
	}
	t.Logf("%d holds", len(holds))
	for _, h := range holds[len(holds)/2:] {
		check(t, h.Release())
	}
	must(s.Mutex("there is room again").Acquire(t.Context()))(t)
}

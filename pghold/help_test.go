package pghold_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/pghold"
)

// patience bounds what should happen soon.
const patience = 20 * time.Second

// database is the URL of an empty database on the shared server.
func database(t testing.TB) string {
	pg := services.SharedPostgreSQL(t)
	return pg.URL(pg.CreateDatabase(t))
}

// open opens a Space that closes with the test.
func open(t testing.TB, url string, opts ...holdfast.Option) *holdfast.Space {
	t.Helper()
	s, err := holdfast.Open(t.Context(), url, opts...)
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

// openPool opens a Space on a pool of the test's own, with options.
func openPool(t testing.TB, url string, o *pghold.Options) *holdfast.Space {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	check(t, err)
	return openOn(t, pool, o)
}

// openOn is a Space on a pool, which it closes.
func openOn(t testing.TB, pool *pgxpool.Pool, o *pghold.Options) *holdfast.Space {
	t.Helper()
	t.Cleanup(pool.Close)
	d, err := pghold.New(pool, o)
	check(t, err)
	s, err := holdfast.New(d)
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

// connect is a connection that knows nothing of Holdfast.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must keeps what it gives as long as the test: a hold that nobody can reach is given back.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		t.Cleanup(func() { runtime.KeepAlive(v) })
		return v
	}
}

func refused(t testing.TB, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got %v; want %v", err, kind)
	}
}

// eventually looks until it sees what it wants.
func eventually(t testing.TB, missing string, look func() bool) {
	t.Helper()
	end := time.Now().Add(patience)
	for !look() {
		if time.Now().After(end) {
			t.Fatal(missing)
		}
		time.Sleep(time.Millisecond)
	}
}

// waiting starts an Acquire and returns when it waits.
func waiting(t testing.TB, s *holdfast.Space, name string) <-chan *holdfast.Hold {
	t.Helper()
	waits, got := make(chan struct{}), make(chan *holdfast.Hold, 1)
	go func() {
		h, err := s.Mutex(name, holdfast.OnWait(func(int) { close(waits) })).Acquire(context.Background())
		if err != nil && !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("waiting for %s: %v", name, err)
		}
		got <- h
	}()
	select {
	case <-waits:
	case <-time.After(patience):
		t.Fatalf("an Acquire of %s does not wait", name)
	}
	return got
}

func granted(t testing.TB, got <-chan *holdfast.Hold) *holdfast.Hold {
	t.Helper()
	select {
	case h := <-got:
		return h
	case <-time.After(patience):
		t.Fatal("nobody was granted")
		return nil
	}
}

// scan runs a query with one row.
func scan(t testing.TB, conn *pgx.Conn, to any, sql string, args ...any) {
	t.Helper()
	check(t, conn.QueryRow(context.Background(), sql, args...).Scan(to))
}

// connections are those of Spaces to the database, but for their pools'.
func connections(t testing.TB, conn *pgx.Conn) (n int) {
	t.Helper()
	scan(t, conn, &n, "select count(*) from pg_stat_activity where application_name = 'holdfast' and datname = current_database()")
	return n
}

// holderOf is the server process that holds the advisory lock of a name.
func holderOf(t testing.TB, conn *pgx.Conn, name string) (pid int) {
	t.Helper()
	k, err := pghold.ParseKey(name, true)
	check(t, err)
	n, single := k.Single()
	sub := 2
	if single {
		sub = 1
	}
	scan(t, conn, &pid, `select coalesce(max(pid), 0) from pg_locks where locktype = 'advisory' and granted and objsubid = $1
and database = (select oid from pg_database where datname = current_database())
and classid = (($2::bigint >> 32) & 4294967295)::oid and objid = ($2::bigint & 4294967295)::oid`, sub, n)
	return pid
}

func names(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s%04d", prefix, i)
	}
	return list
}

func containsAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

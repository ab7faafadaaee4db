//go:build unix

package services_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/internal/services"
)

func TestPostgreSQLAnswers(t *testing.T) {
	t.Parallel()
	s := services.SharedPostgreSQL(t)
	conn := pgConn(t, s.URL("postgres"))
	const who = "SELECT current_user || '@' || host(inet_server_addr()) || ':' || inet_server_port()"
	if got := one[string](t, conn, who); got != "holdfast@"+s.Addr() {
		t.Errorf("connected to %s, want holdfast@%s", got, s.Addr())
	}
}

func TestPostgreSQLSettings(t *testing.T) {
	t.Parallel()
	quick := services.SharedPostgreSQL(t)
	safe := services.PostgreSQL(t, services.Durable(), services.Setting("max_connections", "17"))
	for _, test := range []struct {
		server     *services.PostgreSQLServer
		name, want string
	}{
		{quick, "max_connections", "100"}, {quick, "fsync", "off"}, {quick, "synchronous_commit", "on"},
		{safe, "max_connections", "17"}, {safe, "fsync", "on"}, {safe, "full_page_writes", "on"},
	} {
		if got := one[string](t, pgConn(t, test.server.URL("postgres")), "SHOW "+test.name); got != test.want {
			t.Errorf("%s = %s, want %s", test.name, got, test.want)
		}
	}
}

func TestPostgreSQLDatabasesAreApart(t *testing.T) {
	t.Parallel()
	s := services.SharedPostgreSQL(t)
	var name string
	t.Run("use", func(t *testing.T) {
		name = s.CreateDatabase(t)
		a, b := pgConn(t, s.URL(name)), pgConn(t, s.URL(s.CreateDatabase(t)))
		for _, conn := range []*pgx.Conn{a, b} {
			if !one[bool](t, conn, "SELECT pg_try_advisory_lock(42)") {
				t.Error("lock 42 of another database is in the way")
			}
		}
	})
	conn := pgConn(t, s.URL("postgres"))
	if one[bool](t, conn, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = '"+name+"')") {
		t.Errorf("database %s outlives its test", name)
	}
}

func TestPostgreSQLStopFreezesOpenConnections(t *testing.T) {
	t.Parallel()
	s := services.PostgreSQL(t)
	conn := pgConn(t, s.URL("postgres"))
	one[int](t, conn, "SELECT 1")
	s.Stop()
	answer := result(func() (int, error) { return pgOne[int](context.Background(), conn, "SELECT 2") })
	silent(t, answer)
	s.Cont()
	if got := arrives(t, answer); got != 2 {
		t.Errorf("SELECT 2 = %d", got)
	}
}

func TestPostgreSQLKillAndRestart(t *testing.T) {
	t.Parallel()
	s := services.PostgreSQL(t)
	conn := pgConn(t, s.URL("postgres"))
	created, err := conn.Exec(t.Context(), "CREATE TABLE t AS SELECT 7 AS n")
	must(t, created, err)
	pids := []int{s.Pid(), one[int](t, conn, "SELECT pg_backend_pid()")}
	s.Kill()
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d of %v lives after Kill", pid, pids)
		}
	}
	s.Restart()
	if got := one[int](t, pgConn(t, s.URL("postgres")), "SELECT n FROM t"); got != 7 {
		t.Errorf("n = %d after restart", got)
	}
}

func TestPgBouncerModes(t *testing.T) {
	t.Parallel()
	pg := services.SharedPostgreSQL(t)
	database := pg.CreateDatabase(t)
	for _, mode := range []services.PoolMode{services.SessionPooling, services.TransactionPooling, services.StatementPooling} {
		t.Run(string(mode), func(t *testing.T) {
			b := services.PgBouncer(t, pg, mode, services.Setting("default_pool_size", "1"))
			first, second := pgConn(t, b.URL(database)), pgConn(t, b.URL(database))
			backend := one[int](t, first, "SELECT pg_backend_pid()")
			other := result(func() (int, error) { return pgOne[int](context.Background(), second, "SELECT pg_backend_pid()") })
			if mode == services.SessionPooling {
				silent(t, other)
				first.Close(t.Context())
			}
			if got := arrives(t, other); got != backend {
				t.Errorf("backend %d, then %d; want one for both", backend, got)
			}
		})
	}
}

func TestPgBouncerStopKillRestart(t *testing.T) {
	t.Parallel()
	pg := services.SharedPostgreSQL(t)
	b := services.PgBouncer(t, pg, services.TransactionPooling)
	conn := pgConn(t, b.URL("postgres"))
	one[int](t, conn, "SELECT 1")
	b.Stop()
	answer := result(func() (int, error) { return pgOne[int](context.Background(), conn, "SELECT 2") })
	silent(t, answer)
	b.Cont()
	arrives(t, answer)
	for _, end := range []func(){b.Kill, func() {}} {
		pid := b.Pid()
		end()
		b.Restart()
		if got := one[int](t, pgConn(t, b.URL("postgres")), "SELECT 3"); got != 3 || alive(pid) {
			t.Errorf("SELECT 3 = %d after restart, old pid alive: %v", got, alive(pid))
		}
	}
}

//go:build unix

package services

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/internal/services/programs"
)

// databaseLimit is how long creating or dropping a database may take.
const databaseLimit = 30 * time.Second

// A PostgreSQLServer is a running PostgreSQL. Its superuser is "holdfast" and
// has no password.
type PostgreSQLServer struct{ Process }

// PostgreSQL starts a PostgreSQL server with an empty cluster for this test.
// It listens on a loopback port and on a socket in its own directory. Options:
// [Durable], [Setting].
func PostgreSQL(t testing.TB, opts ...Option) *PostgreSQLServer {
	t.Helper()
	o := collect(opts)
	path, running, err := locate(t.Context(), programs.PostgreSQL, opts)
	if err := errors.Join(err, o.check(true)); err != nil {
		t.Fatalf("services: postgresql: %v", err)
	}
	if running != "" {
		return &PostgreSQLServer{foreign(t, programs.PostgreSQL.Variable, running)}
	}
	return &PostgreSQLServer{begin(t, func() (*unit, error) { return launchPostgreSQL(path, o) })}
}

// SharedPostgreSQL returns the PostgreSQL that all tests of the package share.
// Each test works in a database of its own ([PostgreSQLServer.CreateDatabase]).
// It needs [Main].
func SharedPostgreSQL(t testing.TB) *PostgreSQLServer {
	t.Helper()
	return &PostgreSQLServer{borrow(t, &shared.postgresql, programs.PostgreSQL.Variable, func() (*unit, error) {
		path, err := programs.PostgreSQL.Ensure(t.Context())
		if err != nil {
			return nil, err
		}
		return launchPostgreSQL(path, options{})
	})}
}

// URL returns the address of one of the server's databases. The database
// "postgres" is always there.
func (s *PostgreSQLServer) URL(database string) string { return atDatabase(s.url, database) }

// CreateDatabase makes an empty database with a name of its own and returns
// the name. Tests on one server do not disturb each other when each has its own
// database: tables, sequences, advisory locks and notifications are kept per
// database. On a shared server it is dropped when t ends.
func (s *PostgreSQLServer) CreateDatabase(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test_%016x", rand.Uint64())
	if err := s.admin(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatalf("services: %v", err)
	}
	if s.refusal != "" {
		t.Cleanup(func() {
			if err := s.admin(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
				t.Errorf("services: %v", err)
			}
		})
	}
	return name
}

func (s *PostgreSQLServer) admin(ctx context.Context, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, databaseLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

func launchPostgreSQL(path string, o options) (*unit, error) {
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	place, err := newSite("postgres", as)
	if err != nil {
		return nil, err
	}
	cluster := filepath.Join(place.dir, clusterName)
	if err := copyCluster(filepath.Dir(path), cluster, as); err != nil {
		return nil, errors.Join(err, place.close())
	}
	args := append([]string{path, "-D", cluster, "-k", place.dir, "-p", strconv.Itoa(place.port)}, postgresSettings(o)...)
	u := &unit{
		name:    "postgres",
		place:   place,
		url:     postgresURL(place),
		command: func() *exec.Cmd { return &exec.Cmd{Path: path, Args: args, SysProcAttr: attributes(as)} },
		ready:   func(pid int) error { return postgresReady(cluster, pid) },
		quit:    syscall.SIGINT,
		drop:    syscall.SIGQUIT,
		leave:   func() { freeSharedMemory(cluster) },
	}
	return u.start()
}

func postgresSettings(o options) []string {
	settings := []setting{
		{"listen_addresses", "127.0.0.1"},
		{"dynamic_shared_memory_type", "mmap"}, // files in the cluster, which go with it
	}
	if !o.durable {
		settings = append(settings, setting{"fsync", "off"}, setting{"full_page_writes", "off"})
	}
	var args []string
	for _, s := range append(settings, o.settings...) {
		args = append(args, "-c", s.name+"="+s.value)
	}
	return args
}

// postgresReady reads the status that the server writes for pg_ctl: its pid in
// the first line, "ready" in the eighth.
func postgresReady(cluster string, pid int) error {
	status, err := os.ReadFile(filepath.Join(cluster, "postmaster.pid"))
	if err != nil {
		return err
	}
	lines := bytes.Split(status, []byte("\n"))
	if len(lines) < 8 || string(lines[0]) != strconv.Itoa(pid) || string(bytes.TrimSpace(lines[7])) != "ready" {
		return fmt.Errorf("status is %q", status)
	}
	return nil
}

func postgresURL(place *site) *url.URL {
	return &url.URL{Scheme: "postgres", User: url.User(superuser), Host: place.addr(), RawQuery: "sslmode=disable"}
}

func atDatabase(server *url.URL, database string) string {
	u := *server
	u.Path = "/" + database
	return u.String()
}

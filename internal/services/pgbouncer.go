//go:build unix

package services

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services/programs"
)

// A PoolMode says for how long PgBouncer gives a client a server connection.
type PoolMode string

// The pool modes of PgBouncer.
const (
	SessionPooling     PoolMode = "session"     // until the client disconnects
	TransactionPooling PoolMode = "transaction" // until the transaction ends
	StatementPooling   PoolMode = "statement"   // until the statement ends
)

// A PgBouncerServer is a running PgBouncer in front of a PostgreSQL.
type PgBouncerServer struct{ Process }

// PgBouncer starts a PgBouncer for this test that pools connections to all
// databases of pg. It lets in everybody, as the user of pg's URL. Options:
// [Setting].
func PgBouncer(t testing.TB, pg *PostgreSQLServer, mode PoolMode, opts ...Option) *PgBouncerServer {
	t.Helper()
	o := collect(opts)
	path, err := programs.PgBouncer.Ensure(t.Context())
	if err := errors.Join(err, o.check(false)); err != nil {
		t.Fatalf("services: pgbouncer: %v", err)
	}
	return &PgBouncerServer{begin(t, func() (*unit, error) { return launchPgBouncer(path, pg, mode, o) })}
}

// URL returns the address of a database behind PgBouncer. The database
// "pgbouncer" is its own console.
func (s *PgBouncerServer) URL(database string) string { return atDatabase(s.url, database) }

func launchPgBouncer(path string, pg *PostgreSQLServer, mode PoolMode, o options) (*unit, error) {
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	place, err := newSite("pgbouncer", as)
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(place.dir, "pgbouncer.ini")
	if err := os.WriteFile(conf, pgBouncerConf(place, pg, mode, o), 0o644); err != nil {
		return nil, errors.Join(err, place.close())
	}
	u := &unit{
		name:  "pgbouncer",
		place: place,
		url:   postgresURL(place),
		command: func() *exec.Cmd {
			return &exec.Cmd{Path: path, Args: []string{path, conf}, SysProcAttr: attributes(as)}
		},
		ready: func(int) error { return pgBouncerReady(place) },
		quit:  syscall.SIGTERM,
		drop:  syscall.SIGKILL,
	}
	return u.start()
}

func pgBouncerConf(place *site, pg *PostgreSQLServer, mode PoolMode, o options) []byte {
	var conf strings.Builder
	fmt.Fprintf(&conf, "[databases]\n* = %s\n", pgBouncerTarget(pg.url))
	fmt.Fprintf(&conf, "[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir = %s\n", place.port, place.dir)
	fmt.Fprintf(&conf, "auth_type = any\npool_mode = %s\nmax_client_conn = 1000\n", mode)
	for _, s := range o.settings {
		fmt.Fprintf(&conf, "%s = %s\n", s.name, s.value)
	}
	return []byte(conf.String())
}

func pgBouncerTarget(pg *url.URL) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	target := fmt.Sprintf("host=%s port=%s user=%s", quote(pg.Hostname()), quote(pg.Port()), quote(pg.User.Username()))
	if password, set := pg.User.Password(); set {
		target += " password=" + quote(password)
	}
	return target
}

// pgBouncerReady connects to the socket in the server's own directory, where
// no other server can answer. PgBouncer opens it after its port.
func pgBouncerReady(place *site) error {
	conn, err := net.Dial("unix", filepath.Join(place.dir, fmt.Sprintf(".s.PGSQL.%d", place.port)))
	if err != nil {
		return err
	}
	return conn.Close()
}

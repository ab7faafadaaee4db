package pghold

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/holdfast-io/holdfast/driver"
)

// defaultSlice is how long one wait in the server lasts before it is begun anew: an
// endless one would keep the server from clearing up old rows.
const defaultSlice = 10 * time.Second

// lockTimeout is how long a wait in the server goes on, in milliseconds, before
// it waits for nobody else, and how long the wait for one may last: together a
// slice.
func (c *client) lockTimeout() int64 { return (c.slice / 2).Milliseconds() }

// answerTimeout is how long a statement that is to be answered at once waits for a lock, in
// milliseconds: of a table that another program has locked as a whole, say (VACUUM FULL, ALTER TABLE). It
// is refused then, since a statement that takes as long as Options.Timeout costs the connection, and so
// all that it holds. One statement may wait for three.
func (c *client) answerTimeout() int64 {
	return max(min(c.lockTimeout(), c.opts.Timeout.Milliseconds()/4), 1)
}

// setup makes a connection fit to hold: nothing but its end ends what it holds,
// the server notices within half a minute that the client's machine is gone, and
// a crash does not forget, and repeat, a token that was handed out.
const setup = `set %[1]s statement_timeout = 0; set %[1]s idle_in_transaction_session_timeout = 0; set %[1]s lock_timeout = %[2]d;
set %[1]s tcp_keepalives_idle = 10; set %[1]s tcp_keepalives_interval = 5; set %[1]s tcp_keepalives_count = 3;
select pg_catalog.set_config(name, '0', %[4]t) from pg_catalog.pg_settings where name in ('idle_session_timeout', 'transaction_timeout');
select pg_catalog.set_config('synchronous_commit', 'local', %[4]t) where pg_catalog.current_setting('synchronous_commit') = 'off';
select pg_catalog.%[5]s(%[3]d)`

// dial opens a link, with its goroutine.
func (c *client) dial(ctx context.Context, waits bool) (*pgLink, error) {
	l := &pgLink{
		c: c, nonce: int64(rand.Uint64()), waits: waits, down: make(chan struct{}), bell: make(chan struct{}, 1),
		held: map[Key]tally{}, known: map[string]*pgconn.StatementDescription{}, easy: map[Key]*cachedLockArgs{}, waitersLocks: map[Key]time.Time{},
		holdSessions: map[driver.Spec]*driver.Session{}, sessions: map[*driver.Session]struct{}{}, claims: map[*rowClaim]struct{}{},
		gatherings: map[Key]*gathering{}, releases: map[Key]*releases{},
	}
	conn, err := c.connect(ctx, l.heard, &l.received)
	if err != nil {
		return nil, err
	}
	l.conn = conn
	if err := l.prepare(ctx); err != nil {
		c.hangUp(conn)
		return nil, failed(ctx, err)
	}
	l.life, l.kill = context.WithCancel(context.Background())
	if !c.adopt(l) {
		l.kill()
		c.hangUp(conn)
		return nil, errClosed
	}
	return l, nil
}

// connect opens a connection as the pool would. heard is told of notifications
// by the next reader; received counts what comes.
func (c *client) connect(caller context.Context, heard func(*pgconn.Notification), received *atomic.Uint64) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(caller, max(c.config.ConnectTimeout, c.opts.Timeout))
	defer cancel()
	pool, cfg := c.pool.Config(), c.config.Copy()
	cfg.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { heard(n) }
	frontend := cfg.BuildFrontend
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend { return frontend(counted{r, received}, w) }
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "holdfast"
	}
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, cfg); err != nil {
			return nil, unreachable(err)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, failed(caller, err)
	}
	if pool.AfterConnect != nil {
		if err := pool.AfterConnect(ctx, conn); err != nil {
			c.hangUp(conn)
			return nil, unreachable(err)
		}
	}
	return conn, nil
}

// counted counts the pieces that are read.
type counted struct {
	io.Reader
	n *atomic.Uint64
}

func (r counted) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.n.Add(1)
	}
	return n, err
}

func (c *client) hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.Timeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// prepare looks whether the connection can hold, and takes its nonce.
func (l *pgLink) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.c.opts.Timeout)
	defer cancel()
	if l.c.opts.Scope == TransactionScope {
		return l.begin(ctx)
	}
	if err := l.c.direct(ctx, l.conn); err != nil {
		return err
	}
	_, err := l.conn.Exec(ctx, fmt.Sprintf(setup, "session", l.c.answerTimeout(), l.nonce, false, "pg_advisory_lock"), pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return err
	}
	err = l.conn.QueryRow(ctx, skipTokens+", pg_catalog.pg_backend_pid()").Scan(nil, &l.pid)
	l.calls = l.pid == l.conn.PgConn().PID()
	return err
}

// skipTokens draws more tokens than a crash of the server can forget. A sequence is
// written ahead for 32, and only the caller that has that written waits for it: a quick grant
// of another connection may have been answered before. All connections end with
// the server, and none has a quick grant before it came here.
const skipTokens = "select (select pg_catalog.max(pg_catalog.nextval('holdfast.token')) from pg_catalog.generate_series(1, 4096))"

// begin opens the transaction that a link of transaction scope lives in.
func (l *pgLink) begin(ctx context.Context) error {
	_, err := l.conn.Exec(ctx, "begin; "+fmt.Sprintf(setup, "local", l.c.lockTimeout(), l.nonce, true, "pg_advisory_xact_lock"), pgx.QueryExecModeSimpleProtocol)
	if err == nil && !l.waits {
		_, err = l.conn.Exec(ctx, closeFastPath, pgx.QueryExecModeSimpleProtocol)
	}
	return err
}

// errPooled is why session scope is refused.
var errPooled = refuse(errors.ErrUnsupported, "a connection pooler hands the server's connections from one transaction to another (PgBouncer with pool_mode = transaction), "+
	"so a session's locks would be lost or left behind; use the scope %q (pghold.TransactionScope, or holdfast_scope=transaction in the URL), or connect to PostgreSQL itself", TransactionScope)

// direct refuses a connection with a server side that changes between transactions. A
// pooler gives itself away by a process id that is not the server's.
func (c *client) direct(ctx context.Context, conn *pgx.Conn) error {
	if c.isDirect.Load() {
		return nil
	}
	pid, err := backend(ctx, conn)
	if err != nil {
		return err
	}
	if pid != conn.PgConn().PID() {
		if err := c.keepsServer(ctx, conn); err != nil {
			return err
		}
	}
	c.isDirect.Store(true)
	return nil
}

func backend(ctx context.Context, conn *pgx.Conn) (pid uint32, err error) {
	err = conn.QueryRow(ctx, "select pg_catalog.pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	return pid, err
}

// keepsServer looks whether a second connection gets the first one's server, or
// the first one another, which happens only if it is given back in between.
func (c *client) keepsServer(ctx context.Context, first *pgx.Conn) error {
	second, err := c.connect(ctx, func(*pgconn.Notification) {}, new(atomic.Uint64))
	if err != nil {
		return err
	}
	defer c.hangUp(second)
	for range 3 {
		before, err := backend(ctx, first)
		if err != nil {
			return err
		}
		tx, err := second.Begin(ctx)
		if err != nil {
			return err
		}
		other, err := backend(ctx, second)
		if err != nil {
			return err
		}
		after, err := backend(ctx, first)
		if err != nil {
			return err
		}
		if err := tx.Rollback(ctx); err != nil {
			return err
		}
		if other == before || after != before {
			return errPooled
		}
	}
	return nil
}

package pghold

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/driver"
)

// Scope is what a lock of PostgreSQL hangs on.
type Scope string

const (
	// SessionScope: the connection. Many holds share one.
	SessionScope Scope = "session"
	// TransactionScope: a transaction that is open as long as the hold, on a
	// connection of its own. It works through PgBouncer's transaction pooling,
	// where session scope cannot; there are no watches and no ForceRelease.
	TransactionScope Scope = "transaction"
)

// Options are the settings of a backend. The zero value has the defaults.
type Options struct {
	// Scope is SessionScope by default.
	Scope Scope
	// NoHashing makes a lock name that would have to be hashed an error; see
	// [ParseKey].
	NoHashing bool
	// Keepalive is how often an idle connection that holds something is asked
	// for a sign of life, to notice a cut that no packet tells of; 0: 5 seconds.
	// A cut is noticed after at most Keepalive + Timeout.
	Keepalive time.Duration
	// Timeout is how long an answer may take before the connection counts as
	// lost, with all that it holds; 0: 5 seconds.
	Timeout time.Duration
	// Waits is how many connections may wait for locks at a time; 0: 8. A lock
	// that was waited for stays on its connection, so this also bounds how many
	// connections hold such locks. Waits beyond it ask from time to time.
	Waits int
}

const (
	defaultKeepalive = 5 * time.Second
	defaultTimeout   = 5 * time.Second
	defaultWaits     = 8
)

// settled fills the defaults in, or says what is wrong.
func (o *Options) settled() (Options, error) {
	var s Options
	if o != nil {
		s = *o
	}
	for _, d := range []*time.Duration{&s.Keepalive, &s.Timeout} {
		if *d < 0 || *d > 0 && *d < time.Millisecond {
			return s, refuse(fs.ErrInvalid, "Keepalive and Timeout are at least a millisecond, not %s", *d)
		}
	}
	if s.Waits < 0 {
		return s, refuse(fs.ErrInvalid, "Waits is at least 1, not %d", s.Waits)
	}
	switch s.Scope {
	case "":
		s.Scope = SessionScope
	case SessionScope, TransactionScope:
	default:
		return s, refuse(fs.ErrInvalid, "the scope is %q or %q, not %q", SessionScope, TransactionScope, s.Scope)
	}
	s.Keepalive = orDefault(s.Keepalive, defaultKeepalive)
	s.Timeout = orDefault(s.Timeout, defaultTimeout)
	s.Waits = orDefault(s.Waits, defaultWaits)
	return s, nil
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// New returns a driver that uses the caller's pool, for [holdfast.New]. The
// pool serves counters, keys and questions and is never closed; locks are held
// on connections of their own, made with the pool's configuration: one for all
// that is free when it is asked for, and up to Options.Waits for waits. A
// *net.TCPConn or *net.UnixConn that the pool's DialFunc returns for these is
// taken over: keep no reference to it. New does no I/O.
func New(pool *pgxpool.Pool, o *Options) (driver.Driver, error) {
	if pool == nil {
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "the pool is nil")
	}
	opts, err := o.settled()
	if err != nil {
		return nil, err
	}
	if m := pool.Config().ConnConfig.DefaultQueryExecMode; opts.Scope == TransactionScope && m != pgx.QueryExecModeExec && m != pgx.QueryExecModeSimpleProtocol {
		return nil, driver.Errorf("open", "", fs.ErrInvalid, "the transaction scope is for connection poolers, which do not keep prepared statements: "+
			"set DefaultQueryExecMode of the pool's ConnConfig to pgx.QueryExecModeExec (default_query_exec_mode=exec)")
	}
	return newClient(pool, false, opts), nil
}

func init() {
	driver.Register("postgres", openURL)
	driver.Register("postgresql", openURL)
}

// openURL opens a URL as PostgreSQL knows them. Of the parameters scope,
// hashing, keepalive, timeout and waits, with the prefix holdfast_, are ours.
func openURL(_ context.Context, u *url.URL) (driver.Driver, error) {
	bad := func(err error) error {
		return driver.Errorf("open", driver.Redacted(u), fs.ErrInvalid, "%v", err)
	}
	opts, rest, err := fromURL(u)
	if err != nil {
		return nil, bad(err)
	}
	if opts, err = opts.settled(); err != nil {
		return nil, bad(err)
	}
	cfg, err := pgxpool.ParseConfig(rest)
	if err != nil {
		return nil, bad(fmt.Errorf("not a connection string of PostgreSQL: %w", withoutURL(err)))
	}
	if u.Query().Get("pool_max_conns") == "" {
		cfg.MaxConns = 8
	}
	if opts.Scope == TransactionScope {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = opts.Timeout
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, bad(withoutURL(err))
	}
	return newClient(pool, true, opts), nil
}

// withoutURL keeps the cause and drops what may quote the password.
func withoutURL(err error) error {
	for {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok || inner.Unwrap() == nil {
			return err
		}
		err = inner.Unwrap()
	}
}

// fromURL takes our parameters off the URL.
func fromURL(u *url.URL) (o Options, rest string, err error) {
	q := u.Query()
	take := func(name string, set func(string) error) {
		v := q.Get("holdfast_" + name)
		if v == "" || err != nil {
			return
		}
		if e := set(v); e != nil {
			err = fmt.Errorf("holdfast_%s: %w", name, e)
		}
	}
	span := func(d *time.Duration) func(string) error {
		return func(s string) (err error) { *d, err = time.ParseDuration(s); return err }
	}
	take("scope", func(s string) error { o.Scope = Scope(s); return nil })
	take("hashing", func(s string) error {
		on, err := strconv.ParseBool(s)
		o.NoHashing = !on
		return err
	})
	take("keepalive", span(&o.Keepalive))
	take("timeout", span(&o.Timeout))
	take("waits", func(s string) (err error) { o.Waits, err = strconv.Atoi(s); return err })
	stripped := *u
	stripped.RawQuery = withoutOurs(u.RawQuery)
	return o, stripped.String(), err
}

// ours are the parameters that PostgreSQL does not get.
var ours = []string{"scope", "hashing", "keepalive", "timeout", "waits"}

// withoutOurs leaves the others as they are written: PostgreSQL reads a "+" as
// one, and not as a space.
func withoutOurs(query string) string {
	parts := slices.DeleteFunc(strings.Split(query, "&"), func(part string) bool {
		name, _, _ := strings.Cut(part, "=")
		name, found := strings.CutPrefix(name, "holdfast_")
		return found && slices.Contains(ours, name)
	})
	return strings.Join(parts, "&")
}

// execMode is how queries go out: without prepared statements where a pooler may
// change the server's connection between two of them.
func (o *Options) execMode() pgx.QueryExecMode {
	if o.Scope == TransactionScope {
		return pgx.QueryExecModeExec
	}
	return pgx.QueryExecModeCacheStatement
}

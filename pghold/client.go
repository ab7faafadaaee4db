package pghold

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
	"github.com/holdfast-io/holdfast/internal/limits"
)

// client is one Space's driver.
type client struct {
	driver.Base
	pool             *pgxpool.Pool
	own              bool // close the pool at the end
	opts             Options
	config           *pgx.ConnConfig
	mode             pgx.QueryExecMode
	slice            time.Duration // how long one wait in the server lasts
	graceAfterCrash  time.Duration
	recordHoldsAfter time.Duration // how old a hold without a row is when it gets one, at least; at most it is twice that

	made     atomic.Bool // the schema is there
	making   shared[struct{}]
	isDirect atomic.Bool // there is no pooler that swaps connections
	fault    func(op, name string, err error)

	life context.Context // ends with Close
	kill context.CancelFunc
	work sync.WaitGroup

	homing   shared[*pgLink]
	revising shared[struct{}]
	removing chan struct{} // has one while what is left of a session is removed
	tidying  atomic.Bool   // what has ended is being removed
	rates    limits.Rates

	mu       sync.Mutex
	closed   bool
	home     *pgLink // of all that is free when it is asked for, and of sessions
	links    map[*pgLink]struct{}
	spare    []*pgLink      // made for waits, idle
	waits    int            // links made for waits, or being made
	dialling int            // of these, those being made
	wanting  []chan dialled // callers that wait for one: no more than are being made
	queues   map[Key]*waitQueue
	tokens   map[driver.Token]*rowClaim
	early    []driver.Token // tokens that were forced before anybody here held with them
	hub      hub
}

var _ driver.Driver = (*client)(nil)

func newClient(pool *pgxpool.Pool, own bool, opts Options) *client {
	c := &client{
		pool: pool, own: own, opts: opts, config: pool.Config().ConnConfig, mode: opts.execMode(), slice: defaultSlice, recordHoldsAfter: recordHoldsAfter, graceAfterCrash: graceAfterCrash,
		removing: make(chan struct{}, 1), fault: func(string, string, error) {},
		links: map[*pgLink]struct{}{}, queues: map[Key]*waitQueue{}, tokens: map[driver.Token]*rowClaim{},
		hub: hub{watchers: map[*rowWatch]struct{}{}},
	}
	c.life, c.kill = context.WithCancel(context.Background())
	return c
}

// features of session scope; lost-first is not among them, since a server whose
// backend was killed grants to the next before anybody can tell the holder.
var features = []driver.Feature{
	driver.FeatureFencing, driver.FeatureFIFO, driver.FeatureShared, driver.FeatureWeighted, driver.FeatureForce,
	driver.FeatureAll, driver.FeatureCounter, driver.FeatureSequence, driver.FeatureKV, driver.FeatureTxn,
	driver.FeatureWatch, driver.FeatureElection, driver.FeatureLatch, driver.FeatureSession, driver.FeatureManyMachines, driver.FeatureSweep,
	driver.FeatureLimit,
}

// Info says what PostgreSQL can do.
func (c *client) Info() driver.Info {
	i := driver.Info{Scheme: "postgres", Features: map[driver.Feature]bool{}, MaxName: 512, Canonical: c.canonical}
	for _, f := range features {
		i.Features[f] = true
	}
	if c.opts.Scope == TransactionScope {
		delete(i.Features, driver.FeatureForce)
		delete(i.Features, driver.FeatureWatch)
	}
	return i
}

func (c *client) key(name string) (Key, error) {
	k, err := ParseKey(name, !c.opts.NoHashing)
	if e, ok := errors.AsType[*driver.Error](err); ok {
		e.Op = ""
	}
	return k, err
}

func (c *client) canonical(name string) string {
	k, err := ParseKey(name, !c.opts.NoHashing)
	if err != nil {
		return name
	}
	return k.String()
}

// OnFault sets what is told about background failures.
func (c *client) OnFault(f func(op, name string, err error)) { c.fault = f }

// begin starts every call.
func (c *client) begin(ctx context.Context) error {
	if c.life.Err() != nil {
		return errClosed
	}
	if ctx.Err() != nil {
		return gaveup.Error(ctx, driver.NotDone)
	}
	return c.ready(ctx)
}

// maxBroken is how many connections of the pool in a row may turn out to be broken
// since they were last used.
const maxBroken = 16

// ask begins a call and runs it on a connection of the pool. run has to be such
// that it may be repeated: after a restart of the server every connection of
// the pool is broken, which is not the caller's concern.
func (c *client) ask(ctx context.Context, run func(ctx context.Context, q querier) error) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	ctx, cancel := c.within(ctx)
	defer cancel()
	broke := c.repeat(ctx, run)
	if errors.Is(broke, errNoRevision) {
		if broke = c.reviseAgain(ctx); broke == nil {
			broke = c.repeat(ctx, run)
		}
	}
	err := failed(ctx, broke)
	if err != nil && c.life.Err() != nil {
		return &driver.Error{Kind: driver.ErrClosed, Outcome: outcome(broke), Err: err}
	}
	return err
}

// repeat runs until a connection of the pool is not broken. The last run may be known
// to have done nothing: what an earlier one has done is not known by that.
func (c *client) repeat(ctx context.Context, run func(ctx context.Context, q querier) error) error {
	err, perhaps := run(ctx, c.pool), false
	for n := 0; n < maxBroken && ctx.Err() == nil && broken(err); n++ {
		perhaps = perhaps || outcome(err) != driver.NotDone
		err = run(ctx, c.pool)
	}
	if _, ours := errors.AsType[*driver.Error](err); err != nil && perhaps && !ours {
		return unsure{err}
	}
	return err
}

// unsure is the error of a run after another that may have been done.
type unsure struct{ error }

func (e unsure) Unwrap() error { return e.error }

// broken: the connection ended instead of an answer.
func broken(err error) bool {
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	_, ours := errors.AsType[*driver.Error](err)
	if err == nil || connecting || ours {
		return false
	}
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		return isFatal(pe)
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, pgconn.ErrConnClosed)
}

// within ends ctx with the client.
func (c *client) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// args puts the way in which queries go out before their arguments.
func (c *client) args(list ...any) []any { return append([]any{c.mode}, list...) }

// Ping asks the server for a sign of life, and whether its database can be used. It
// needs no schema.
func (c *client) Ping(ctx context.Context) error {
	if c.life.Err() != nil {
		return errClosed
	}
	if ctx.Err() != nil {
		return gaveup.Error(ctx, driver.NotDone)
	}
	return failed(ctx, c.repeat(ctx, func(ctx context.Context, q querier) error {
		var encoding string
		err := q.QueryRow(ctx, "select pg_catalog.current_setting('server_encoding')", pgx.QueryExecModeExec).Scan(&encoding)
		return firstOf(err, fitEncoding(encoding))
	}))
}

// spawn runs f in the background; Close waits for it.
func (c *client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}

// adopt takes a new link in and starts it; false: the client is closed.
func (c *client) adopt(l *pgLink) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.links[l] = struct{}{}
	c.work.Go(l.loop)
	return true
}

// atHome is the link for all that is free, and of sessions.
func (c *client) atHome(ctx context.Context) (*pgLink, error) {
	if l := c.living(); l != nil {
		return l, nil
	}
	return c.homing.do(ctx, c, c.dialHome)
}

// dialHome makes the home link, unless there is one.
func (c *client) dialHome(ctx context.Context) (*pgLink, error) {
	if l := c.living(); l != nil {
		return l, nil
	}
	l, err := c.dial(ctx, false)
	if err != nil {
		return nil, err
	}
	if c.opts.Scope == SessionScope {
		if err := l.listenTo(ctx, "holdfast"); err != nil {
			l.fail(err)
			return nil, failed(ctx, err)
		}
	}
	c.mu.Lock()
	c.home = l
	c.mu.Unlock()
	c.spawn(func() { c.keepHouse(l) })
	return l, nil
}

func (c *client) living() *pgLink {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.home != nil && c.home.alive() {
		return c.home
	}
	return nil
}

// listenTo subscribes the link to a channel.
func (l *pgLink) listenTo(ctx context.Context, channel string) error {
	j := l.start(l.c.opts.Timeout, func(ctx context.Context) error {
		_, err := l.conn.Exec(ctx, "listen "+channel)
		return err
	})
	if !j.wait(ctx) {
		return gaveup.Error(ctx, driver.Unknown)
	}
	return j.err
}

// lost tells every holder by a link that it is gone.
func (c *client) lost(l *pgLink, err error) {
	why := lostBecause(err)
	if errors.Is(err, driver.ErrClosed) {
		why = driver.ErrClosed
	}
	c.mu.Lock()
	delete(c.links, l)
	if l.waits {
		c.waits--
	}
	c.spare = slices.DeleteFunc(c.spare, func(s *pgLink) bool { return s == l })
	sessions, claims := slices.AppendSeq(slices.Collect(maps.Values(l.holdSessions)), maps.Keys(l.sessions)), slices.Collect(maps.Keys(l.claims))
	clear(l.claims)
	for _, cl := range claims {
		delete(c.tokens, cl.token)
	}
	wasHome := c.home == l
	if wasHome {
		c.home = nil
	}
	c.mu.Unlock()
	for _, session := range sessions {
		if err != errUnused { // else nothing hangs on it
			c.endSession(session, why)
		}
	}
	for _, cl := range claims {
		cl.told(why)
	}
	if wasHome {
		c.hub.broken()
	}
}

// Close gives back everything in order, as far as ctx allows, and ends every
// connection: the server frees what is left, and is waited for. The pool may take 15 s to
// give up a connection that does not answer: when ctx has ended that goes on in the background.
func (c *client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	links := slices.Collect(maps.Keys(c.links))
	c.mu.Unlock()
	c.kill()
	soon, cancel := context.WithTimeout(ctx, c.opts.Timeout/5)
	said := c.bye(soon, links)
	for _, l := range links {
		l.fail(errClosed)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer cancel()
		c.hangUpAll(soon, said, links)
	}()
	select {
	case <-over:
	case <-ctx.Done():
	}
	return nil
}

// hangUpAll returns when every connection has ended. If the others were told what is free, it waits until the server
// has ended them, too, as far as ctx allows.
func (c *client) hangUpAll(ctx context.Context, said bool, links []*pgLink) {
	c.work.Wait()
	if said {
		c.awaitEnd(ctx, links)
	}
	if c.own {
		c.pool.Close()
	}
}

// bye tells the others what is free now; without it they find out by
// themselves. true: the server has answered.
func (c *client) bye(ctx context.Context, links []*pgLink) bool {
	if len(links) == 0 || !c.made.Load() {
		return false
	}
	_, err := c.pool.Exec(ctx, "select holdfast_v10.end_program($1)", c.args(nonces(links))...)
	return err == nil
}

func nonces(links []*pgLink) (list []int64) {
	for _, l := range links {
		list = append(list, l.nonce)
	}
	return list
}

// awaitEnd returns when the server has ended the connections, as far as ctx allows, and tells whether it has: a wait of one of
// them may be granted when the hold of another ends, and is held until then.
func (c *client) awaitEnd(ctx context.Context, links []*pgLink) bool {
	for pause := time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 20*time.Millisecond) {
		var left bool
		err := c.pool.QueryRow(ctx, "select coalesce(bool_or(holdfast_v10.alive(n, 0)), false) from unnest($1::bigint[]) n", c.args(nonces(links))...).Scan(&left)
		if err != nil || !left {
			return err == nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return false
}

package pghold

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// In transaction scope a lock is held by a transaction of its own. What
// describes the claim is written outside of it, so that others see it.

// enough is when a claim stops to wait for a connection; nil: never. A try may find all of them
// in use for a moment, by other tries say, but must not wait until a hold is released.
func (c *client) enough(cl *rowClaim) <-chan time.Time {
	if c.opts.Scope != TransactionScope || !cl.r.Try {
		return nil
	}
	return time.After(c.opts.Timeout)
}

func (c *client) noneFree() error {
	return refuse(driver.ErrExhausted, "all %d connections for locks are in use, each by a lock that is held or waited for: release some, or raise Options.Waits (holdfast_waits in the URL)", c.opts.Waits)
}

// notServed is the error of a try that has waited for enough behind another call for the same name, which waits for a
// connection, or for the server.
func (c *client) notServed() error {
	c.mu.Lock()
	full := c.waits-c.idleWaits() >= c.opts.Waits
	c.mu.Unlock()
	if full {
		return c.noneFree()
	}
	e := refuse(driver.ErrUnavailable, "the server has not answered another call of this program for the name within %s: see that it runs and can be reached", c.opts.Timeout)
	e.RetryAfter = time.Second
	return e
}

// txLink is a connection for one hold; there are Options.Waits of them.
func (c *client) txLink(ctx context.Context, enough <-chan time.Time) (*pgLink, error) {
	for {
		l, err := c.waitLink(ctx, true)
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-time.After(pollPause):
		case <-enough:
			return nil, c.noneFree()
		case <-ctx.Done():
			return nil, gaveup.Error(ctx, driver.NotDone)
		}
	}
}

// inTx runs one step in the link's transaction. A caller that goes takes the
// link with it.
func (c *client) inTx(ctx context.Context, l *pgLink, run func(ctx context.Context) error) error {
	j := l.start(c.slice+c.opts.Timeout, run)
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		l.fail(errUnused)
		<-j.done
		return gaveup.Error(ctx, driver.NotDone)
	}
}

// enqueueInTx is enqueueRow: the transaction is kept only if it has the lock.
func (c *client) enqueueInTx(ctx context.Context, cl *rowClaim, enough <-chan time.Time) (answer, error) {
	l, err := c.txLink(ctx, enough)
	if err != nil {
		return answer{}, err
	}
	session := c.sessionOn(l, cl.r)
	a, err := c.tryInTx(ctx, l, cl, session)
	if err != nil || a.state != "granted" {
		c.dropLink(ctx, cl, l)
	}
	return a, err
}

// dropLink ends a transaction that has no lock, or the lock of a request that is not granted.
func (c *client) dropLink(ctx context.Context, cl *rowClaim, l *pgLink) {
	l.fail(errUnused)
	if ctx.Err() == nil {
		return
	}
	c.withdraw(cl, func() bool {
		ctx, cancel := context.WithTimeout(c.life, c.opts.Timeout)
		defer cancel()
		return c.awaitEnd(ctx, []*pgLink{l})
	})
}

func (c *client) tryInTx(ctx context.Context, l *pgLink, cl *rowClaim, session *driver.Session) (answer, error) {
	sql, args := cl.lockSQL("pg_try_advisory_xact_lock")
	var got bool
	err := c.inTx(ctx, l, func(ctx context.Context) error { return l.conn.QueryRow(ctx, sql, c.args(args...)...).Scan(&got) })
	if err != nil {
		return answer{}, failed(ctx, err)
	}
	a, err := c.enlist(ctx, cl, session, got)
	if err != nil || !got || a.state != "queued" {
		return a, err
	}
	state, err := c.settleInTx(ctx, l, cl, session)
	switch {
	case err != nil:
		c.forget(cl)
	case state == "granted":
		a.state = state
	case cl.r.Try:
		c.forget(cl)
		a.state = "held"
	}
	return a, err
}

// enlist writes the claim's row; got: its transaction has the lock already. The
// row lives by the home link, since it outlives transactions that wait.
func (c *client) enlist(ctx context.Context, cl *rowClaim, session *driver.Session, got bool) (answer, error) {
	home, err := c.atHome(ctx)
	if err != nil {
		return answer{}, err
	}
	var a answer
	err = c.arriveAtHome(ctx, home, cl, func(ctx context.Context, q querier) error {
		return q.QueryRow(ctx, arriveSQL, c.args(cl.key.space(), cl.key.n, cl.name, int16(cl.kind), int16(cl.mode), home.nonce,
			uuid(session.ID), session.Spec.Owner, []byte(session.Spec.Meta), cl.r.Value, false, false, got || !cl.r.Try, int64(0))...).
			Scan(&a.state, &a.token, &a.id, &a.position, &a.pid, &a.unsure)
	}, func() {
		if a.id != nil {
			c.dropClaim(cl, *a.id)
		}
	})
	if err != nil {
		return answer{}, err
	}
	if a.state == "queued" {
		cl.id = *a.id
	}
	return a, nil
}

// turnInTx is turn: one wait for the lock, in a transaction that is kept only if
// it gets it and nobody goes first.
func (c *client) turnInTx(ctx context.Context, cl *rowClaim) (string, error) {
	l, err := c.txLink(ctx, nil)
	if err != nil {
		return "", failed(ctx, err)
	}
	session := c.sessionOn(l, cl.r)
	got := false
	err = c.inTx(ctx, l, func(ctx context.Context) error {
		return l.conn.QueryRow(ctx, "select holdfast_v10.lock_tx_in_time($1, $2, $3)", c.args(cl.key.space(), cl.key.n, int16(cl.mode))...).Scan(&got)
	})
	state := "blocked"
	if got {
		state, err = c.settleInTx(ctx, l, cl, session)
	}
	if err != nil || state != "granted" {
		c.dropLink(ctx, cl, l)
	}
	return state, failed(ctx, err)
}

// settleInTx makes the claim the holder; the link has the lock.
func (c *client) settleInTx(ctx context.Context, l *pgLink, cl *rowClaim, session *driver.Session) (state string, err error) {
	var token *int64
	err = c.ask(ctx, func(ctx context.Context, q querier) error {
		var pid uint32
		return q.QueryRow(ctx, "select state, tok, pid from holdfast_v10.settle($1, $2, $3, $4, $5, $6::text::uuid, false)",
			c.args(cl.key.space(), cl.key.n, int16(cl.mode), cl.id, l.nonce, uuid(session.ID))...).Scan(&state, &token, &pid)
	})
	if err == nil && cl.isGranted(&state) {
		c.hold(l, cl, cl.id, *token, session)
	}
	return state, err
}

// endTx gives the lock back with its transaction; the connection is not used
// again.
func (cl *rowClaim) endTx() error {
	ctx, cancel := context.WithTimeout(context.Background(), cl.c.opts.Timeout)
	defer cancel()
	_, told := cl.c.pool.Exec(ctx, "select holdfast_v10.drop_claim($1, $2, $3, null)", cl.c.args(cl.key.space(), cl.key.n, cl.id)...)
	if isRemoved(told) { // the row has gone with its table; or only the functions have, and it is an ended claim's when the transaction is over
		told = nil
	}
	err := cl.c.inTx(ctx, cl.l, func(ctx context.Context) error {
		_, err := cl.l.conn.Exec(ctx, "rollback", pgx.QueryExecModeSimpleProtocol)
		return err
	})
	return failed(ctx, firstOf(err, told))
}

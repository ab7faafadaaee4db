package pghold

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
)

// lockInTx takes a lock of the server for as long as a transaction of its own.
// What describes the claim is written outside of it, so that others see it.
func (c *client) lockInTx(ctx context.Context, cl *claim) error {
	ctx, cancel := c.untilOver(ctx, cl.r.Lease)
	defer cancel()
	l, err := c.txLink(ctx)
	if err != nil {
		return c.whyNot(ctx, cl, err)
	}
	lease := c.leaseOn(l, cl.r)
	state, err := c.knockInTx(ctx, l, cl, lease)
	for err == nil && state == "queued" {
		state, err = c.waitInTx(ctx, l, cl, lease)
	}
	if state == "granted" && err == nil {
		return nil
	}
	if ctx.Err() != nil {
		c.forget(cl)
	}
	l.die(errUnused)
	if err == nil {
		err = c.heldError(ctx, cl)
	}
	return c.whyNot(ctx, cl, err)
}

// txLink is a connection for one hold; there are Options.Waits of them.
func (c *client) txLink(ctx context.Context) (*link, error) {
	for {
		l, err := c.waitLink(ctx)
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-time.After(pollPause):
		case <-ctx.Done():
			return nil, stopped(ctx, driver.NotDone)
		}
	}
}

// inTx runs one step in the link's transaction. A caller that goes takes the
// link with it.
func (c *client) inTx(ctx context.Context, l *link, run func(ctx context.Context) error) error {
	j := l.start(c.slice+c.opts.Timeout, run)
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		l.die(errUnused)
		<-j.done
		return stopped(ctx, driver.NotDone)
	}
}

// knockInTx tries, and joins the queue if that fails.
func (c *client) knockInTx(ctx context.Context, l *link, cl *claim, lease *driver.Lease) (string, error) {
	sql, args := cl.waitSQL("pg_try_advisory_xact_lock")
	var got bool
	err := c.inTx(ctx, l, func(ctx context.Context) error { return l.conn.QueryRow(ctx, sql, c.args(args...)...).Scan(&got) })
	if err != nil {
		return "", failed(ctx, err)
	}
	state, err := c.enlist(ctx, cl, lease, got)
	if err != nil || !got || state != "queued" {
		return state, err
	}
	state, err = c.settleInTx(ctx, l, cl, lease)
	switch {
	case err != nil || state == "granted":
		return state, err
	case cl.r.Try:
		c.forget(cl)
		return "held", nil
	}
	return "queued", c.renew(ctx, l)
}

// enlist writes the claim's row; got: its transaction has the lock already. The
// row lives by the home link, since a wait that begins anew must not look dead.
func (c *client) enlist(ctx context.Context, cl *claim, lease *driver.Lease, got bool) (string, error) {
	home, err := c.atHome(ctx)
	if err != nil {
		return "", err
	}
	var a answer
	err = c.onHome(ctx, home, func(ctx context.Context, q querier) error {
		return q.QueryRow(ctx, arriveSQL, c.args(cl.key.space(), cl.key.n, cl.name, int16(cl.kind), int16(cl.mode), home.nonce,
			uuid(lease.ID), lease.Spec.Owner, []byte(lease.Spec.Meta), cl.r.Value, false, false, got || !cl.r.Try)...).
			Scan(&a.state, &a.token, &a.id, &a.position, &a.pid)
	}, func() {
		if a.id != nil {
			c.forget(&claim{name: cl.name, key: cl.key, id: *a.id})
		}
	})
	switch {
	case err != nil:
		return "", err
	case a.state == "kind":
		return "", otherKind(driver.ResourceKind(a.position))
	case a.state == "queued":
		cl.id = *a.id
		if !got && cl.r.Waiting != nil {
			cl.r.Waiting(a.position)
		}
	}
	return a.state, nil
}

// waitInTx waits for the lock in the link's transaction.
func (c *client) waitInTx(ctx context.Context, l *link, cl *claim, lease *driver.Lease) (string, error) {
	sql, args := cl.waitSQL("pg_advisory_xact_lock")
	err := c.inTx(ctx, l, func(ctx context.Context) error {
		_, err := l.conn.Exec(ctx, sql, c.args(args...)...)
		return err
	})
	if err == nil {
		state, err := c.settleInTx(ctx, l, cl, lease)
		if err != nil || state == "granted" {
			return state, err
		}
		if state == "gone" {
			return "", unreachable(errors.New("the wait was taken for dead"))
		}
	} else if code(err) != "55P03" {
		return "", failed(ctx, err)
	}
	return "queued", c.renew(ctx, l)
}

// renew begins the link's transaction anew, without its locks, and lets others
// go first.
func (c *client) renew(ctx context.Context, l *link) error {
	err := c.inTx(ctx, l, func(ctx context.Context) error {
		if _, err := l.conn.Exec(ctx, "rollback", pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		return l.begin(ctx)
	})
	select {
	case <-time.After(yieldPause):
	case <-ctx.Done():
	}
	return failed(ctx, err)
}

// settleInTx makes the claim the holder; the link has the lock.
func (c *client) settleInTx(ctx context.Context, l *link, cl *claim, lease *driver.Lease) (state string, err error) {
	var token *int64
	err = c.ask(ctx, func(ctx context.Context, q querier) error {
		var pid uint32
		return q.QueryRow(ctx, "select state, tok, pid from holdfast.settle($1, $2, $3, $4, $5, $6::text::uuid, false)",
			c.args(cl.key.space(), cl.key.n, int16(cl.mode), cl.id, l.nonce, uuid(lease.ID))...).Scan(&state, &token, &pid)
	})
	if err == nil && state == "granted" {
		c.hold(l, cl, cl.id, *token, lease)
	}
	return state, err
}

// endTx gives the lock back with its transaction; the connection is not used
// again.
func (cl *claim) endTx() error {
	ctx, cancel := context.WithTimeout(context.Background(), cl.c.opts.Timeout)
	defer cancel()
	_, told := cl.c.pool.Exec(ctx, "select holdfast.drop_claim($1, $2, $3, null)", cl.c.args(cl.key.space(), cl.key.n, cl.id)...)
	err := cl.c.inTx(ctx, cl.l, func(ctx context.Context) error {
		_, err := cl.l.conn.Exec(ctx, "rollback", pgx.QueryExecModeSimpleProtocol)
		return err
	})
	return failed(ctx, firstOf(err, told))
}

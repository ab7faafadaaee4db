package pghold

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
)

// In transaction scope a lock is held by a transaction of its own. What
// describes the claim is written outside of it, so that others see it.

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

// lockInTx takes a lock in a transaction that is kept only if it gets it.
func (c *client) lockInTx(ctx context.Context, cl *claim) error {
	ctx, cancel := c.untilOver(ctx, cl.r.Lease)
	defer cancel()
	for {
		granted, err := c.turnInTx(ctx, cl, "select holdfast.try_in_tx($1, $2, $3)")
		switch {
		case granted:
			return nil
		case ctx.Err() != nil:
			return c.whyStopped(ctx, cl.r.Lease)
		case err != nil:
			return err
		case cl.r.Try:
			return c.heldError(ctx, cl)
		}
		if granted, err = c.waitInTx(ctx, cl); granted || err != nil {
			return err
		}
	}
}

// waitInTx waits in line with a row, and in the server. false: start again.
func (c *client) waitInTx(ctx context.Context, cl *claim) (bool, error) {
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	w := c.join(cl)
	defer c.leave(w)
	tell := c.tellLater(w, refuse)
	defer tell.stop()
	tell.told = cl.r.Waiting == nil
	if !tell.told {
		tell.told = true
		tell.describe()
		cl.r.Waiting(max(tell.position(0), 1))
	}
	var since time.Time // of the first failure in a row
	for {
		granted, err := c.turnInTx(ctx, cl, "select holdfast.wait_in_tx($1, $2, $3)")
		if granted {
			return true, nil
		}
		if ctx.Err() != nil {
			c.forget(cl)
			if e, ok := errors.AsType[*driver.Error](context.Cause(ctx)); ok {
				return false, e
			}
			return false, c.whyStopped(ctx, cl.r.Lease)
		}
		if err == nil {
			since = time.Time{}
			continue
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) > c.opts.Timeout || !errors.Is(err, driver.ErrUnavailable) {
			c.forget(cl)
			return false, err
		}
		select {
		case <-time.After(faultPause):
		case <-ctx.Done():
		}
	}
}

// turnInTx is one attempt, in a transaction of its own.
func (c *client) turnInTx(ctx context.Context, cl *claim, sql string) (bool, error) {
	l, err := c.txLink(ctx)
	if err != nil {
		return false, err
	}
	var got bool
	err = c.inTx(ctx, l, func(ctx context.Context) error {
		return l.conn.QueryRow(ctx, sql, c.args(cl.key.space(), cl.key.n, int16(cl.mode))...).Scan(&got)
	})
	if err == nil && got {
		got, err = c.grantInTx(ctx, l, cl)
	}
	if err != nil || !got {
		l.die(errUnused)
	}
	return got, failed(ctx, err)
}

// grantInTx describes the hold and draws its token, outside of its transaction, so that
// others see it and a crash does not forget it.
func (c *client) grantInTx(ctx context.Context, l *link, cl *claim) (bool, error) {
	lease := c.leaseOn(l, cl.r)
	waited := cl.endRow()
	var token int64
	var dead bool
	j := c.onPool(l, func(ctx context.Context, q querier) error {
		return q.QueryRow(ctx, "select tok, dead from holdfast.grant_in_tx($1, $2, $3, $4, $5, $6, $7::text::uuid, $8, $9)",
			c.args(cl.key.space(), cl.key.n, cl.name, int16(cl.kind), int16(cl.mode), l.nonce, uuid(lease.ID), lease.Spec.Owner, []byte(lease.Spec.Meta))...).Scan(&token, &dead)
	})
	<-j.done
	if waited {
		c.removeRow(cl.name, cl.key, cl.id)
	}
	switch {
	case j.err != nil:
		return false, j.err
	case token < 0:
		return false, c.kindError(ctx, cl)
	}
	cl.id = token
	c.hold(l, cl, token, lease)
	if dead {
		cl.heir = true
	}
	return true, nil
}

// txLink is a connection for one hold; there are Options.Waits of them.
func (c *client) txLink(ctx context.Context) (*link, error) {
	for {
		c.mu.Lock()
		room := c.waits < c.opts.Waits
		if room {
			c.waits++
		}
		c.mu.Unlock()
		if room {
			l, err := c.dial(ctx, true)
			if err != nil {
				c.mu.Lock()
				c.waits--
				c.mu.Unlock()
			}
			return l, err
		}
		select {
		case <-time.After(pollPause):
		case <-ctx.Done():
			return nil, stopped(ctx, driver.NotDone)
		}
	}
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

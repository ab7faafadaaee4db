package pghold

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// lock takes a lock of the server, and lets the one who died with it notice.
func (c *client) lock(ctx context.Context, cl *claim) error {
	var err error
	if cl.since = time.Now(); c.opts.Scope == TransactionScope {
		err = c.lockInTx(ctx, cl)
	} else {
		err = c.lockInSession(ctx, cl)
	}
	if err != nil {
		return err
	}
	if !cl.heir && !c.told.Load() {
		c.describeLater(cl)
		return nil
	}
	return c.settle(ctx, cl)
}

// settle is what a grant has to wait for at times: an event for those who watch, and the
// one who died with the lock.
func (c *client) settle(ctx context.Context, cl *claim) error {
	if c.opts.Scope == SessionScope && c.told.Load() {
		if err := c.describe([]*claim{cl}, true); err != nil {
			c.describeLater(cl)
		}
	} else {
		c.describeLater(cl)
	}
	if !cl.heir {
		return nil
	}
	ctx, cancel := c.untilOver(ctx, cl.r.Lease)
	defer cancel()
	select {
	case <-time.After(time.Until(cl.since.Add(c.mourning))):
		return nil
	case <-ctx.Done():
		c.spawn(func() { c.giveUp(cl) })
		return c.whyStopped(ctx, cl.r.Lease)
	}
}

// giveUp gives back what was granted to a caller that has gone: not before the one
// who died with it has had its time, since the next one is no heir.
func (c *client) giveUp(cl *claim) {
	if cl.heir {
		select {
		case <-time.After(time.Until(cl.since.Add(c.mourning))):
		case <-c.life.Done():
		}
	}
	c.giveBack(cl)
}

// mourning is how long a grant is kept from its caller if the holder before has
// not given the name back. The server frees what a connection had before its
// program can know that the connection has ended.
const mourning = 50 * time.Millisecond

// lockInSession tries, unless others here wait already, and then waits.
func (c *client) lockInSession(ctx context.Context, cl *claim) error {
	hot := !cl.r.Try && c.isHot(cl.key)
	if !hot {
		granted, err := c.try(ctx, cl)
		if granted || err != nil {
			return err
		}
		if cl.r.Try {
			return c.heldError(ctx, cl)
		}
	}
	return c.wait(ctx, cl, hot)
}

// try asks the home link. A link that has died since it was last used is not
// the caller's concern: nothing has happened on it that lasts.
func (c *client) try(ctx context.Context, cl *claim) (bool, error) {
	for attempt, again := 0, false; ; attempt++ {
		l, err := c.atHome(ctx)
		if err != nil {
			return false, err
		}
		q := &request{cl: cl, lease: c.leaseOn(l, cl.r), again: again}
		j := l.ask(q)
		if !j.wait(ctx) {
			c.spawn(func() { c.undo(j, cl) })
			return false, stopped(ctx, driver.NotDone)
		}
		switch {
		case j.err != nil && attempt == 0 && !l.alive() && ctx.Err() == nil:
		case j.err != nil:
			return false, failed(ctx, j.err)
		case q.mine && cl.mode == driver.Shared && !again:
			if again, err = c.mayShare(ctx, cl.key); err != nil || !again {
				return false, err
			}
		case q.token < 0:
			return false, c.kindError(ctx, cl)
		default:
			return q.token > 0, c.inherit(cl, q.dead)
		}
	}
}

// mayShare asks, on a connection without locks, whether a writer has the lock or waits
// for it: a connection that has a share is granted more, whoever waits.
func (c *client) mayShare(ctx context.Context, k Key) (may bool, err error) {
	err = c.ask(ctx, func(ctx context.Context, q querier) error {
		return q.QueryRow(ctx, "select holdfast.may_share($1, $2)", c.args(k.space(), k.n)...).Scan(&may)
	})
	return may, err
}

// inherit forgets the holder that died with what cl has now; dead: there may be one.
func (c *client) inherit(cl *claim, dead bool) error {
	if !dead {
		return nil
	}
	l := cl.l
	j := l.start(c.opts.Timeout, func(ctx context.Context) error {
		return l.conn.QueryRow(ctx, "select holdfast.inter($1, $2, $3)", cl.key.space(), cl.key.n, int16(cl.mode)).Scan(&cl.heir)
	})
	<-j.done
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl.heir = cl.heir || j.err != nil; cl.heir { // if nobody knows, it is one
		cl.since = time.Now()
	}
	return nil
}

// undo takes back what a job did for a caller that has gone.
func (c *client) undo(j *job, cl *claim) {
	<-j.done
	if j.err == nil && cl.token > 0 {
		c.giveBack(cl)
	}
}

// kindError is why a name that is no lock cannot be taken as one.
func (c *client) kindError(ctx context.Context, cl *claim) error {
	var kind *int16
	err := c.ask(ctx, func(ctx context.Context, q querier) error {
		return q.QueryRow(ctx, "select max(kind) from holdfast.resource where space = $1 and key = $2", c.args(cl.key.space(), cl.key.n)...).Scan(&kind)
	})
	if err == nil && kind != nil {
		return otherKind(driver.ResourceKind(*kind))
	}
	return orError(err, errKind)
}

// untilOver ends ctx with the client, and with the session that is waited on.
func (c *client) untilOver(ctx context.Context, lease *driver.Lease) (context.Context, context.CancelFunc) {
	ctx, cancel := c.within(ctx)
	if lease == nil {
		return ctx, cancel
	}
	tie := new(driver.Tie)
	tie.To(lease, func(error) { cancel() })
	return ctx, func() { tie.Untie(); cancel() }
}

// whyStopped is the error of a wait that did not end with a grant.
func (c *client) whyStopped(ctx context.Context, lease *driver.Lease) error {
	switch {
	case c.life.Err() != nil:
		return errClosed
	case lease != nil && lease.Err() != nil:
		return ended(lease)
	}
	return stopped(ctx, driver.NotDone)
}

// errKind is otherKind where nobody says which.
var errKind = refuse(driver.ErrConflict, "the name is in use as another kind; use another name")

func otherKind(k driver.ResourceKind) error {
	return refuse(driver.ErrConflict, "the name is in use as a %s; use another name", k)
}

// took notes a lock that the link has.
func (l *link) took(cl *claim, token int64, lease *driver.Lease) {
	t := l.held[cl.key]
	if cl.mode == driver.Exclusive {
		t.writers++
	} else {
		t.readers++
	}
	l.held[cl.key] = t
	l.c.hold(l, cl, token, lease)
}

// gave notes a lock that the link has no more.
func (l *link) gave(cl *claim) {
	t := l.held[cl.key]
	if cl.mode == driver.Exclusive {
		t.writers--
	} else {
		t.readers--
	}
	if t == (tally{}) {
		delete(l.held, cl.key)
		return
	}
	l.held[cl.key] = t
}

// sameServer gives the link up if another server process answers: then a pooler
// has changed it, and nobody knows what is held.
func (l *link) sameServer(pid uint32) error {
	if pid == l.pid {
		return nil
	}
	l.die(errPooled)
	return errPooled
}

// lockSQL calls a function on advisory locks for a claim.
func (cl *claim) lockSQL(function string) (string, []any) {
	if cl.mode == driver.Shared {
		function += "_shared"
	}
	if a, b, ok := cl.key.Pair(); ok {
		return "select pg_catalog." + function + "($1::int, $2::int)", []any{a, b}
	}
	return "select pg_catalog." + function + "($1::bigint)", []any{cl.key.n}
}

// tidy makes sure that a failed step left no lock.
func (l *link) tidy(ctx context.Context, cl *claim) {
	if !l.conn.IsClosed() && l.held[cl.key] == (tally{}) {
		sql, args := cl.lockSQL("pg_advisory_unlock")
		l.mustDo(ctx, sql, args...)
	}
}

// mustDo runs SQL that gives a lock back, again if a cancel came late or the server was
// short of something for a moment; else the link ends, since nobody knows what it holds.
// The SQL has to call PostgreSQL's own functions only, without a table: it must work when
// the server has no room for a lock.
func (l *link) mustDo(ctx context.Context, sql string, args ...any) {
	var err error
	for range 3 {
		if _, err = l.conn.Exec(ctx, sql, args...); err == nil || l.conn.IsClosed() {
			return
		}
	}
	l.die(err)
}

// Pauses of those who wait: while no connection is free to wait on, and after a failure.
const (
	pollPause  = 25 * time.Millisecond
	faultPause = 50 * time.Millisecond
)

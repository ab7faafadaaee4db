package pghold

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// waitLink is a connection to wait on; nil: there are enough, or the server has
// no room for more. Half of them are for those that are the first in their queue.
func (c *client) waitLink(ctx context.Context, isFirst bool) (*pgLink, error) {
	c.mu.Lock()
	switch n := len(c.spare); {
	case c.closed:
		c.mu.Unlock()
		return nil, errClosed
	case !isFirst && c.waits-c.idleWaits() >= c.opts.Waits/2, c.waits-c.idleWaits() >= c.opts.Waits:
		c.mu.Unlock()
		return nil, nil
	case n > 0:
		l := c.spare[n-1]
		c.spare = c.spare[:n-1]
		c.mu.Unlock()
		return l, nil
	}
	w := c.want()
	c.mu.Unlock()
	select {
	case d := <-w:
		return d.l, d.err
	case <-ctx.Done():
		c.wantNoMore(w)
		return nil, gaveup.Error(ctx, driver.NotDone)
	}
}

// idleWaits are the links for waits that nobody uses or has asked for; the client is locked.
func (c *client) idleWaits() int { return len(c.spare) + c.dialling - len(c.wanting) }

// maxSpare is how many idle connections are kept for the next wait. Those beyond it are
// ended when they have been idle for [Options].Keepalive: a name that many take in turns
// needs several again and again, and making one takes longer than a hundred turns.
const maxSpare = 1

// park keeps a link that waits for nothing and holds nothing. In transaction scope its transaction is over.
func (c *client) park(l *pgLink) {
	c.mu.Lock()
	kept := c.opts.Scope == SessionScope && c.keep(l)
	c.mu.Unlock()
	if !kept {
		l.fail(errUnused)
	}
}

// isSurplus takes an idle link out if there are others to wait on.
func (c *client) isSurplus(l *pgLink) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.spare, l)
	if i < 0 || len(c.spare) <= maxSpare && c.opts.Scope == SessionScope {
		return false
	}
	c.spare = slices.Delete(c.spare, i, i+1)
	return true
}

var errUnused = errors.New("it was not needed any more")

// await waits for the lock in the server, on a link that has nothing else to do.
func (c *client) await(ctx context.Context, l *pgLink, cl *rowClaim) (string, error) {
	var state string // the job may write it when we have gone
	session := c.sessionOn(l, cl.r)
	j := l.start(c.slice+c.opts.Timeout, func(ctx context.Context) (err error) {
		state, err = l.waitFor(ctx, cl, session)
		return err
	})
	select {
	case <-j.done:
	case <-ctx.Done():
		c.withdraw(cl, func() bool { return c.abort(l, j, cl) })
		return leftBehind, nil
	}
	cl.doubt(j)
	if state != "granted" {
		c.park(l)
	}
	if code(j.err) == "55P03" { // for a row, not for the lock
		return "wait", nil
	}
	return state, failed(ctx, j.err)
}

// abort ends the wait of a caller that has gone: the server gives it up, the
// connection stays. false: the server has not confirmed it.
func (c *client) abort(l *pgLink, j *job, cl *rowClaim) (heard bool) {
	for waiting := true; waiting; {
		l.cancelQuery()
		select {
		case <-j.done:
			waiting = false
		case <-time.After(20 * time.Millisecond):
		}
	}
	if cl.token > 0 {
		return c.giveUp(cl)
	}
	c.forget(cl)
	c.park(l)
	return !uncertain(j.err)
}

// awaitSQL is the one statement that waits for long: for that time it has a lock_timeout of its own.
const awaitSQL = `select state, tok, pid from (select pg_catalog.set_config('lock_timeout', ($7::bigint)::text, true) as is_set offset 0) w,
  lateral holdfast_v10.await($1, $2, $3, $4, $5, $6, $7::bigint + 0 * pg_catalog.length(w.is_set))`

// waitFor takes the lock and then the token, in one round trip.
func (l *pgLink) waitFor(ctx context.Context, cl *rowClaim, session *driver.Session) (string, error) {
	state, err := l.settle(ctx, cl, session, awaitSQL, l.c.lockTimeout())
	if err != nil {
		return "", l.tidy(ctx, cl, err)
	}
	return state, nil
}

// lockSQL calls a function on advisory locks for a claim.
func (cl *rowClaim) lockSQL(function string) (string, []any) {
	if cl.mode == driver.Shared {
		function += "_shared"
	}
	if a, b, ok := cl.key.Pair(); ok {
		return "select pg_catalog." + function + "($1::int, $2::int)", []any{a, b}
	}
	return "select pg_catalog." + function + "($1::bigint)", []any{cl.key.n}
}

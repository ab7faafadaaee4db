package pghold

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// The advisory lock decides who holds; rows only describe. A hold gets its row if it is
// still held describeAfter later, several in one statement, and a wait after
// describeWaitAfter, or before the caller is told that it waits. While somebody watches
// every hold gets its row, and watchers its event, before the caller has it. The row is
// removed before the lock is given back: a row that is found with the lock is one of a
// holder that died.

const (
	describeAfter     = 5 * time.Millisecond
	describeWaitAfter = 100 * time.Millisecond
)

// The states of a claim's row.
const (
	rowNone int32 = iota
	rowWriting
	rowWritten // or perhaps: the answer did not come
	rowOver    // nobody writes it any more
)

// undescribed are holds that may get a row, by when they were granted: since the last
// tick, before. Guarded by the client's mutex.
type undescribed struct {
	young, old []*claim
	ticking    bool
}

// describeLater has the hold described if it lasts.
func (c *client) describeLater(cl *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.undescribed.young = append(c.undescribed.young, cl)
	if !c.undescribed.ticking {
		c.undescribed.ticking = true
		time.AfterFunc(c.describeAfter, c.tick)
	}
}

// tick comes every describeAfter while locks are granted.
func (c *client) tick() {
	c.mu.Lock()
	u := &c.undescribed
	due := u.old
	u.old, u.young = u.young, nil
	if u.ticking = len(u.old) > 0 && !c.closed; u.ticking {
		time.AfterFunc(c.describeAfter, c.tick)
	}
	c.mu.Unlock()
	if due = c.outdated(due); len(due) > 0 {
		c.spawn(func() { c.describeSoon(due) })
	}
}

// outdated are those whose row does not tell what they are.
func (c *client) outdated(claims []*claim) []*claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	var due []*claim
	for _, cl := range claims {
		if s := cl.row.Load(); s == rowNone || s == rowWritten && cl.described.Load() != cl.token {
			due = append(due, cl)
		}
	}
	return due
}

// describeSoon describes, and again if that fails.
func (c *client) describeSoon(claims []*claim) {
	err := c.describe(claims, false)
	if err == nil || c.life.Err() != nil {
		return
	}
	c.fault("acquire", claims[0].name, err)
	time.AfterFunc(faultPause, func() { c.spawn(func() { c.describeSoon(c.outdated(claims)) }) })
}

// describeSQL writes rows, or writes them anew, and tells who watches if that is asked for.
const describeSQL = `with x as (
  select * from unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::smallint[], $7::smallint[], $8::bigint[], $9::text[], $10::text[],
    $11::bytea[], $12::bigint[]) as x (space, key, id, token, name, kind, mode, nonce, lease, owner, meta, age)),
gone as (delete from holdfast.claim c using x where c.space = x.space and c.key = x.key and c.id = x.id),
written as (
  insert into holdfast.claim as c (space, key, id, token, name, kind, mode, weight, nonce, lease, owner, meta, modified, since)
  select space, key, id, token, name, kind, mode, 1, nonce, lease::uuid, owner, meta, greatest(id, token), clock_timestamp() - age * interval '1 microsecond'
  from x returning c)
select holdfast.tell(w.c, 'acquired', null) from written w where $13`

// describe writes the rows of claims. A claim that ends meanwhile waits for it, so it
// heeds no caller's context: what it asks for would come later.
func (c *client) describe(claims []*claim, tell bool) error {
	claims = c.beginRows(claims)
	if len(claims) == 0 {
		return nil
	}
	ctx := c.life
	l, err := c.atHome(ctx)
	if err == nil {
		err = c.onHome(ctx, l, func(ctx context.Context, q querier) error {
			args, err := c.rowArgs(ctx, q, l, claims)
			if err != nil {
				return err
			}
			rows, err := q.Query(ctx, describeSQL, c.args(append(args, tell)...)...)
			if err == nil {
				rows.Close()
				err = rows.Err()
			}
			return err
		}, nil)
	}
	c.endRows(claims, err)
	return err
}

// beginRows are those of claims whose rows nobody writes now.
func (c *client) beginRows(claims []*claim) []*claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	var begun []*claim
	for _, cl := range claims {
		if cl.row.CompareAndSwap(rowNone, rowWriting) || cl.row.CompareAndSwap(rowWritten, rowWriting) {
			cl.wrote = make(chan struct{})
			begun = append(begun, cl)
		}
	}
	return begun
}

func (c *client) endRows(claims []*claim, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cl := range claims {
		if err != nil {
			cl.described.Store(unknownToken)
		}
		cl.row.Store(rowWritten)
		close(cl.wrote)
	}
}

// unknownToken: nobody knows whether there is a row.
const unknownToken = 1<<64 - 1

// rowArgs are the arguments of describeSQL. A claim that waits takes its place now.
func (c *client) rowArgs(ctx context.Context, q querier, home *link, claims []*claim) ([]any, error) {
	n := len(claims)
	spaces, keys, ids, tokens, ages, nonces := make([]int16, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	names, leases, owners, metas := make([]string, n), make([]string, n), make([]string, n), make([][]byte, n)
	kinds, modes := make([]int16, n), make([]int16, n)
	for i, cl := range claims {
		lease, nonce, token, id, since := c.holdsBy(cl, home)
		if id == 0 {
			if err := q.QueryRow(ctx, "select pg_catalog.nextval('holdfast.token')", c.mode).Scan(&id); err != nil {
				return nil, err
			}
			c.mu.Lock()
			cl.id = id
			c.mu.Unlock()
		}
		cl.described.Store(token)
		spaces[i], keys[i], ids[i], tokens[i], nonces[i], ages[i] = cl.key.space(), cl.key.n, id, int64(token), nonce, time.Since(since).Microseconds()
		names[i], kinds[i], modes[i] = cl.name, int16(cl.kind), int16(cl.mode)
		leases[i], owners[i], metas[i] = uuid(lease.ID), lease.Spec.Owner, []byte(lease.Spec.Meta)
	}
	return []any{spaces, keys, ids, tokens, names, kinds, modes, nonces, leases, owners, metas, ages}, nil
}

// holdsBy is what a claim hangs on: its link's, or if it waits, home's.
func (c *client) holdsBy(cl *claim, home *link) (lease *driver.Lease, nonce int64, token uint64, id int64, since time.Time) {
	c.mu.Lock()
	if cl.l != nil {
		defer c.mu.Unlock()
		return cl.lease, cl.l.nonce, cl.token, cl.id, cl.since
	}
	id, since = cl.id, cl.since
	c.mu.Unlock()
	return c.leaseOn(home, cl.r), home.nonce, 0, id, since
}

// endRow ends the description of a claim, and tells whether a row has to be removed.
// If it is just being written that is waited for.
func (cl *claim) endRow() bool {
	for {
		switch {
		case cl.row.CompareAndSwap(rowNone, rowOver):
			return false
		case cl.row.CompareAndSwap(rowWritten, rowOver):
			return true
		case cl.row.Load() == rowOver:
			return false
		}
		cl.c.mu.Lock()
		wrote := cl.wrote
		cl.c.mu.Unlock()
		<-wrote
	}
}

// forget removes the row of a claim that waits no more.
func (c *client) forget(cl *claim) {
	c.spawn(func() {
		if cl.endRow() {
			c.removeRow(cl.name, cl.key, cl.id)
		}
	})
}

// removeRow removes a row until the server has answered.
func (c *client) removeRow(name string, k Key, id int64) {
	c.cleanUp(name, func(ctx context.Context, q querier, _ int64) error {
		_, err := q.Exec(ctx, dropSQL, c.args(k.space(), k.n, id)...)
		return err
	})
}

const dropSQL = "select holdfast.drop_claim($1, $2, $3, null)"

// describeAll describes what this program holds and waits for.
func (c *client) describeAll() error {
	c.mu.Lock()
	var claims []*claim
	for _, cl := range c.tokens {
		if !cl.gathers() {
			claims = append(claims, cl)
		}
	}
	for _, ln := range c.lines {
		for _, w := range ln.waiters {
			claims = append(claims, w.cl)
		}
	}
	c.mu.Unlock()
	return c.describe(c.outdated(claims), false)
}

// Of those who want to know what others hold: how often they look, and how long they
// wait at most for a program that may have been stopped.
const (
	lookPause = 500 * time.Microsecond
	lookLimit = time.Second
)

// describedBy returns when what was held before the call has its row: of one key, or of
// all names (nil).
func (c *client) describedBy(ctx context.Context, key *Key) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	if err := c.describeAll(); err != nil {
		return err
	}
	var space *int16
	var n int64
	if key != nil {
		space, n = new(key.space()), key.n
	}
	return c.awaitNone(ctx, "select holdfast.undescribed($1, $2)", space, n)
}

// awaitNone returns when a query that counts finds nothing, or after lookLimit.
func (c *client) awaitNone(ctx context.Context, sql string, args ...any) error {
	for end, pause := time.Now().Add(lookLimit), lookPause; ; pause = min(2*pause, 20*time.Millisecond) {
		var left int64
		err := c.ask(ctx, func(ctx context.Context, q querier) error {
			return q.QueryRow(ctx, sql, c.args(args...)...).Scan(&left)
		})
		if err != nil || left == 0 || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return stopped(ctx, driver.NotDone)
		}
	}
}

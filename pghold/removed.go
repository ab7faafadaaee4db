package pghold

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
)

// An administrator may remove rows under a program that runs (TRUNCATE, DELETE, DROP SCHEMA). A
// semaphore's holder, a leader and a session are nothing but their rows, and others are granted
// what they had: they are told of their loss. A mutex or reader-writer lock is held by its
// advisory lock, and gets its row back; a waiter comes anew.

const (
	// lookForRowsEvery is how often a program looks whether what it has is still there, at most.
	lookForRowsEvery = 5 * time.Second
	// sweepEvery is how many looks apart it clears up.
	sweepEvery = 12
)

// rowsPage is how many claims are looked for in one statement: others wait for the link meanwhile.
const rowsPage = 1000

var errRemoved = refuse(driver.ErrLost, "its row in the schema holdfast was removed (by TRUNCATE, DELETE or DROP SCHEMA): others are granted what it stood for")

// isRemoved: a table, or a schema, is not there any more. It may be that of the functions alone, with the rows left as they are:
// see tablesAreGone.
func isRemoved(err error) bool { return code(err) == "42P01" || code(err) == "3F000" }

// tablesAreGone: the claims have gone with their table. It is not so when an administrator dropped no more than the functions, which
// the next Space makes anew over the same tables.
func (c *client) tablesAreGone(ctx context.Context, q querier) (gone bool) {
	err := q.QueryRow(ctx, "select pg_catalog.to_regclass('holdfast.claim') is null", c.args()...).Scan(&gone)
	return err == nil && gone
}

// keepHouse looks, as long as the home link l lives, for the rows of what the program has, and now and then clears up.
func (c *client) keepHouse(l *pgLink) {
	tick := time.NewTicker(min(lookForRowsEvery, c.opts.Keepalive))
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-l.down:
			return
		case <-tick.C:
		}
		for page := range slices.Chunk(c.withRows(), rowsPage) {
			c.lookForClaims(l, page)
		}
		c.lookForSessions(l)
		c.lookForWatch(l)
		if n%sweepEvery == 0 && c.opts.Scope == SessionScope {
			c.tidy()
		}
	}
}

// withRows are the holds that have a row.
func (c *client) withRows() (list []*rowClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cl := range c.tokens {
		if !cl.rowless.Load() {
			list = append(list, cl)
		}
	}
	return list
}

// missingClaims and missingSessions tell the indexes of those in a list that have no row.
const (
	missingClaims = `select i - 1 from unnest($1::smallint[], $2::bigint[], $3::bigint[]) with ordinality c (space, key, id, i)
where not exists (select from holdfast.claim x where x.space = c.space and x.key = c.key and x.id = c.id)`
	missingSessions = `select i - 1 from unnest($1::text[]) with ordinality s (id, i)
where not exists (select from holdfast.session x where x.id = s.id::uuid)`
)

func (c *client) lookForClaims(l *pgLink, page []*rowClaim) {
	spaces, keys, ids := make([]int16, len(page)), make([]int64, len(page)), make([]int64, len(page))
	for i, cl := range page {
		spaces[i], keys[i], ids[i] = cl.key.space(), cl.key.n, cl.id
	}
	missing, err := c.missing(l, len(page), missingClaims, spaces, keys, ids)
	for _, i := range missing {
		c.claimIsRemoved(page[i], err)
	}
}

func (c *client) lookForSessions(l *pgLink) {
	c.mu.Lock()
	var list []*driver.Session
	var ids []string
	for s := range l.sessions {
		list, ids = append(list, s), append(ids, uuid(s.ID))
	}
	c.mu.Unlock()
	if len(list) == 0 {
		return
	}
	missing, _ := c.missing(l, len(list), missingSessions, ids)
	for _, i := range missing {
		if _, ours := c.detach(list[i]); ours {
			c.endSession(list[i], errRemoved)
		}
	}
}

// missing are the indexes that SQL tells of a list of n; all with an error if the table is missing.
// An answer that does not come tells nothing.
func (c *client) missing(l *pgLink, n int, sql string, args ...any) (list []int, err error) {
	var found []int
	err = c.beside(l, func(ctx context.Context, q querier) error {
		rows, err := q.Query(ctx, sql, c.args(args...)...)
		if err == nil {
			found, err = pgx.CollectRows(rows, pgx.RowTo[int])
		}
		return err
	})
	switch {
	case err == nil:
		list = found
	case isRemoved(err):
		for i := range n {
			list = append(list, i)
		}
		return list, err
	}
	return list, nil
}

// beside reads on the link, or in transaction scope, in which that would keep a lock of the table, on
// the pool.
func (c *client) beside(l *pgLink, run func(ctx context.Context, q querier) error) error {
	if c.opts.Scope == SessionScope {
		return c.onHome(c.life, l, run, nil)
	}
	return c.aside(run)
}

// claimIsRemoved: a hold has no row, and its holder has not given it back. err: the table is missing.
func (c *client) claimIsRemoved(cl *rowClaim, err error) {
	switch {
	case cl.giving.Load():
	case cl.gathers() || cl.kind == driver.Election:
		cl.told(errRemoved)
		c.giveBack(cl)
	case err == nil:
		c.writeAgain(cl)
	}
}

const writeAgainSQL = `insert into holdfast.claim (space, key, id, token, name, kind, mode, weight, nonce, lease, owner, meta, modified)
select $1::smallint, $2::bigint, $3::bigint, $4::bigint, $5::text, $6::smallint, $7::smallint, 1, $8::bigint, $9::text::uuid, $10::text, $11::bytea, $4::bigint
where not exists (select from holdfast.claim where space = $1::smallint and key = $2::bigint and id = $3::bigint)`

// writeAgain writes the row of a lock, on the link that has it: before its release, or not at all. In
// transaction scope it may come later: it is an ended claim's then, whose transaction is over.
func (c *client) writeAgain(cl *rowClaim) {
	_ = c.beside(cl.l, func(ctx context.Context, q querier) error {
		if cl.giving.Load() {
			return nil
		}
		_, err := q.Exec(ctx, writeAgainSQL, c.args(cl.key.space(), cl.key.n, cl.id, int64(cl.token), cl.name, int16(cl.kind), int16(cl.mode),
			cl.l.nonce, uuid(cl.session.ID), cl.session.Spec.Owner, []byte(cl.session.Spec.Meta))...)
		return err // the next look finds it missing still
	})
}

// lookForWatch has watches begin anew if the server did not know any more that the link watches. It knows then: they begin
// anew once.
func (c *client) lookForWatch(l *pgLink) {
	if c.opts.Scope != SessionScope || !c.hub.isWatched() {
		return
	}
	known := true
	err := c.onHome(c.life, l, func(ctx context.Context, q querier) error {
		if !l.watching {
			return nil
		}
		tag, err := q.Exec(ctx, "insert into holdfast.watcher (nonce) values ($1) on conflict do nothing", l.nonce)
		known = tag.RowsAffected() == 0
		return err
	}, nil)
	if err == nil && !known || isRemoved(err) {
		c.hub.broken()
	}
}

// errNoRevision: the row that all revisions are drawn from is missing. Calls that meet that have it made anew.
var errNoRevision = refuse(driver.ErrUnavailable, "the row of holdfast.revision was removed (TRUNCATE, DELETE), and is being made anew; try again")

// scanRevision reads a row about holdfast.revision.
func scanRevision(row pgx.Row, to ...any) error {
	err := row.Scan(to...)
	if errors.Is(err, pgx.ErrNoRows) {
		return errNoRevision
	}
	return err
}

// isRevision says in SQL that the row is there.
const isRevision = "exists (select from holdfast.revision)"

// scanRemoved reads how many keys were removed; -1: there is no revision for it.
func scanRemoved(row pgx.Row, n *int) error {
	err := row.Scan(n)
	if err == nil && *n < 0 {
		return errNoRevision
	}
	return err
}

// revised is err. If it is that there is no revision, there is one when the call is made again.
func (c *client) revised(err error) error {
	if errors.Is(err, errNoRevision) {
		_ = c.reviseAgain(c.life)
	}
	return err
}

// firstRevision makes the row of revisions: with a greater one than was ever told, unless the clock of the server was
// set back and all keys are gone.
const firstRevision = `insert into holdfast.revision
select greatest((extract(epoch from clock_timestamp()) * 1048576)::bigint, (select max(modified) from holdfast.kv) + 1)
where not exists (select from holdfast.revision)`

// reviseAgain makes the row of revisions, one program after the other.
func (c *client) reviseAgain(ctx context.Context) error {
	_, err := c.revising.do(ctx, c, func(ctx context.Context) (none struct{}, err error) {
		ctx, cancel := context.WithTimeout(ctx, createFor)
		defer cancel()
		return none, failed(ctx, pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, schemaLock, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, firstRevision, pgx.QueryExecModeSimpleProtocol)
			return err
		}))
	})
	return err
}

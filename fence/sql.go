package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/driver"
)

// The statements are the same for PostgreSQL and SQLite. In both, a conflicting
// row is locked (SQLite: the database is) before WHERE looks at it, and stays so
// until the transaction ends: a later check sees what was committed, and one that
// passed is alone until its writes are in.
const (
	createTable = `CREATE TABLE IF NOT EXISTS holdfast_fence (
	resource TEXT NOT NULL PRIMARY KEY,
	last_exclusive BIGINT NOT NULL,
	last_shared BIGINT NOT NULL
)`
	probeTable = `SELECT resource, last_exclusive, last_shared FROM holdfast_fence WHERE 1 = 0`

	passExclusive = `INSERT INTO holdfast_fence (resource, last_exclusive, last_shared) VALUES ($1, $2, 0)
ON CONFLICT (resource) DO UPDATE SET last_exclusive = excluded.last_exclusive
WHERE holdfast_fence.last_exclusive <= excluded.last_exclusive
AND holdfast_fence.last_shared < excluded.last_exclusive`

	passOnce = `INSERT INTO holdfast_fence (resource, last_exclusive, last_shared) VALUES ($1, $2, 0)
ON CONFLICT (resource) DO UPDATE SET last_exclusive = excluded.last_exclusive
WHERE holdfast_fence.last_exclusive < excluded.last_exclusive
AND holdfast_fence.last_shared < excluded.last_exclusive`

	passShared = `INSERT INTO holdfast_fence (resource, last_exclusive, last_shared) VALUES ($1, 0, $2)
ON CONFLICT (resource) DO UPDATE SET last_shared = CASE
	WHEN holdfast_fence.last_shared < excluded.last_shared THEN excluded.last_shared
	ELSE holdfast_fence.last_shared END
WHERE holdfast_fence.last_exclusive <= excluded.last_shared`

	readRow = `SELECT last_exclusive, last_shared FROM holdfast_fence WHERE resource = $1`
)

// CreateTable makes the table holdfast_fence (resource, last_exclusive,
// last_shared) where it is missing; several programs may do so at the same time.
// On PostgreSQL it is made in the first schema of the search path.
//
// A row is what is known of its resource: deleting one lets any stale token of
// it pass next.
func CreateTable(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, createTable)
	if err == nil {
		return nil
	}
	// Of two that make it at once, PostgreSQL fails one although the table is
	// there when it has failed.
	if _, probe := db.ExecContext(ctx, probeTable); probe == nil {
		return nil
	}
	return &driver.Error{Op: "fence create table", Name: "holdfast_fence", Outcome: driver.NotDone, Err: err}
}

// Table checks tokens in the table that [CreateTable] makes, in PostgreSQL or
// SQLite. [Tx] and [Exec] are those of its zero value.
type Table struct {
	// Strict refuses a token that has passed before, and so tells a repeated
	// Exec from a first one. The table does not remember single shared tokens:
	// Shared with Strict is errors.ErrUnsupported.
	Strict bool
}

// Tx checks the token inside the caller's transaction. Call it before the writes
// that it guards, and roll back on any error. After it has passed, every other
// transaction that asks for the same resource, shared or not, waits until this
// one ends; a newer holder therefore writes after it, never in the middle.
//
// The default isolation level is enough. With a stricter one the database may
// refuse with a serialization failure instead; the transaction can then be
// repeated as usual. On SQLite set a busy timeout, or a waiting transaction fails
// at once.
func Tx(ctx context.Context, tx *sql.Tx, resource string, token Token, mode Mode) error {
	return Table{}.Tx(ctx, tx, resource, token, mode)
}

// Exec begins a transaction, checks the token, runs f in it and commits. If the
// check or f fails, or f panics, everything is rolled back; the error of f is
// returned as it is. f must not end the transaction. Only when the commit itself
// fails is it unknown whether the writes happened.
func Exec(ctx context.Context, db *sql.DB, resource string, token Token, mode Mode, f func(*sql.Tx) error) error {
	return Table{}.Exec(ctx, db, resource, token, mode, f)
}

// Tx is the function [Tx], with the table's options.
func (t Table) Tx(ctx context.Context, tx *sql.Tx, resource string, token Token, mode Mode) error {
	return t.tx(ctx, "fence tx", tx, Pass{resource, token, mode})
}

// Exec is the function [Exec], with the table's options.
func (t Table) Exec(ctx context.Context, db *sql.DB, resource string, token Token, mode Mode, f func(*sql.Tx) error) error {
	const op = "fence exec"
	p := Pass{resource, token, mode}
	if err := t.check(op, p); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return sqlFailed(op, p, fmt.Errorf("begin: %w", err))
	}
	// After a commit this does nothing; if it fails, the connection is gone,
	// and the database rolls back.
	defer tx.Rollback()
	if err := t.tx(ctx, op, tx, p); err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return &driver.Error{Op: op, Name: resource, Err: fmt.Errorf(
			"commit: %w; whether the writes happened is unknown: read them back before you write again", err)}
	}
	return nil
}

func (t Table) check(op string, p Pass) error {
	if err := p.check(op); err != nil {
		return err
	}
	if t.Strict && p.Mode == Shared {
		return driver.Errorf(op, p.Resource, errors.ErrUnsupported,
			"a strict Table takes exclusive tokens only; use a Table without Strict for readers")
	}
	return nil
}

func (t Table) tx(ctx context.Context, op string, tx *sql.Tx, p Pass) error {
	if err := t.check(op, p); err != nil {
		return err
	}
	done, err := tx.ExecContext(ctx, t.statement(p.Mode), p.Resource, int64(p.Token))
	if err != nil {
		return sqlFailed(op, p, fmt.Errorf("%w (fence.CreateTable makes the table)", err))
	}
	passed, err := done.RowsAffected()
	if err != nil {
		return sqlFailed(op, p, err)
	}
	if passed == 0 {
		return t.refusal(ctx, op, tx, p)
	}
	return nil
}

func (t Table) statement(m Mode) string {
	switch {
	case m == Shared:
		return passShared
	case t.Strict:
		return passOnce
	}
	return passExclusive
}

// refusal reads the row that did not let the token pass; it is locked, so that
// it still says what it said.
func (t Table) refusal(ctx context.Context, op string, tx *sql.Tx, p Pass) error {
	var exclusive, shared int64
	if err := tx.QueryRowContext(ctx, readRow, p.Resource).Scan(&exclusive, &shared); err != nil {
		return refuse(op, p, fmt.Errorf("token %d was refused, and the reason could not be read: %w", p.Token, err))
	}
	s := state{exclusive: Token(exclusive), shared: Token(shared)}
	return refuse(op, p, s.refusal(p, t.Strict))
}

// sqlFailed is an error of the database inside the transaction, which the caller
// rolls back: nothing was done.
func sqlFailed(op string, p Pass, err error) error {
	e := &driver.Error{Op: op, Name: p.Resource, Outcome: driver.NotDone, Err: err}
	for _, kind := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, kind) {
			e.Kind = kind
		}
	}
	return e
}

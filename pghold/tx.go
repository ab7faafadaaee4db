package pghold

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// LockTx takes the lock of a name for the rest of the caller's transaction: tx
// is a pgx.Tx, a *sql.Tx, or anything with the same methods; a pool or a connection
// is refused. There is no Hold and no token; the lock ends with the transaction, or with a rollback to a
// savepoint before it. It is the same lock that a Mutex of this name takes, and
// needs no schema.
//
// A deadline of ctx bounds the wait (as lock_timeout, for this call only) and
// leaves the transaction usable; a cancelled ctx ends it, since pgx and
// database/sql close the connection then.
func LockTx(ctx context.Context, tx any, name string) error {
	_, err := lockTx(ctx, tx, name, false)
	return err
}

// TryLockTx is LockTx without a wait: false if somebody has the lock.
func TryLockTx(ctx context.Context, tx any, name string) (bool, error) {
	return lockTx(ctx, tx, name, true)
}

func lockTx(ctx context.Context, tx any, name string, try bool) (bool, error) {
	op := "lock in transaction"
	fail := func(err error) (bool, error) {
		if e, ok := errors.AsType[*driver.Error](err); ok {
			named := *e
			named.Op, named.Name = op, name
			return false, &named
		}
		return false, err
	}
	q, err := asQueryer(tx)
	if err != nil {
		return fail(err)
	}
	key, err := ParseKey(name, true)
	if err != nil {
		return fail(err)
	}
	if ctx.Err() != nil {
		return fail(gaveup.Error(ctx, driver.NotDone))
	}
	if try {
		var got bool
		err := q.row(ctx, key.call("pg_try_advisory_xact_lock"), &got)
		if err != nil {
			return fail(failed(ctx, err))
		}
		return got, nil
	}
	if err := q.lockWithin(ctx, key); err != nil {
		return fail(err)
	}
	return true, nil
}

// queryer is what both kinds of transaction can do.
type queryer struct {
	exec func(ctx context.Context, sql string) error
	row  func(ctx context.Context, sql string, to ...any) error
}

// The methods that are used of a transaction, and one by which it is told from a pool or
// a connection: there the lock would end with the statement that takes it.
type (
	pgxTx interface {
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
		Rollback(ctx context.Context) error
	}
	sqlTx interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
		Rollback() error
	}
)

func asQueryer(tx any) (*queryer, error) {
	switch t := tx.(type) {
	case pgxTx:
		return &queryer{
			exec: func(ctx context.Context, sql string) error { _, err := t.Exec(ctx, sql); return err },
			row:  func(ctx context.Context, sql string, to ...any) error { return t.QueryRow(ctx, sql).Scan(to...) },
		}, nil
	case sqlTx:
		return &queryer{
			exec: func(ctx context.Context, sql string) error { _, err := t.ExecContext(ctx, sql); return err },
			row:  func(ctx context.Context, sql string, to ...any) error { return t.QueryRowContext(ctx, sql).Scan(to...) },
		}, nil
	}
	return nil, refuse(fs.ErrInvalid, "a %T is no transaction; give a pgx.Tx or a *sql.Tx", tx)
}

// lockWithin waits for the lock until the deadline of ctx. The savepoint keeps
// the transaction usable if it does not come.
func (q *queryer) lockWithin(ctx context.Context, key Key) error {
	deadline, bounded := ctx.Deadline()
	var scanned any
	if !bounded {
		return failed(ctx, q.row(ctx, key.call("pg_advisory_xact_lock"), &scanned))
	}
	ms := min(max(time.Until(deadline).Milliseconds(), 1), math.MaxInt32) // which are 24 days, and the most that lock_timeout takes
	// The server's clock decides; ours only helps if the server is gone.
	late, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(defaultTimeout))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if ctx.Err() == context.Canceled {
			cancel()
		}
	})
	defer stop()
	if err := q.exec(late, "savepoint holdfast_lock"); err != nil {
		return failed(late, err)
	}
	var before string
	err := q.row(late, "select pg_catalog.current_setting('lock_timeout')", &before)
	if err == nil {
		err = q.exec(late, fmt.Sprintf("set local lock_timeout = %d", ms))
	}
	if err == nil {
		err = q.row(late, key.call("pg_advisory_xact_lock"), &scanned)
	}
	if err != nil {
		undone := q.exec(late, "rollback to savepoint holdfast_lock")
		if undone == nil {
			undone = q.exec(late, "release savepoint holdfast_lock")
		}
		if code(err) == "55P03" && undone == nil {
			return &driver.Error{Kind: context.DeadlineExceeded, Outcome: driver.NotDone, Err: err}
		}
		return failed(late, err)
	}
	return failed(late, firstOf(
		q.exec(late, fmt.Sprintf("set local lock_timeout = '%s'", before)),
		q.exec(late, "release savepoint holdfast_lock")))
}

package pghold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// errClosed answers calls on a closed client.
var errClosed error = &driver.Error{Kind: driver.ErrClosed, Outcome: driver.NotDone}

// advice says what a failure of the server means here, by its SQLSTATE.
var advice = map[string]struct {
	kind error
	text string
}{
	"28P01": {fs.ErrPermission, "check user and password"},
	"28000": {fs.ErrPermission, "check user, pg_hba.conf and TLS settings"},
	"3D000": {driver.ErrUnavailable, "there is no such database; create it or name another"},
	"3F000": {driver.ErrUnavailable, removedAdvice},
	"42P01": {driver.ErrUnavailable, removedAdvice},
	"40P01": {driver.ErrDeadlock, "deadlock: this program and another wait for each other's locks; take several names in one AcquireAll, or always in one order"},
	"40001": {driver.ErrConflict, "another transaction came first; try again"},
	"HF001": {driver.ErrLost, ""},
	"22P05": {fs.ErrInvalid, "the database's encoding lacks a character of the text; use a UTF8 database"},
	"25006": {driver.ErrUnavailable, "the server is read-only, as a standby is; connect to the primary (target_session_attrs=read-write)"},
}

const removedAdvice = "a schema of Holdfast, or something in it, was removed while it was used; close every Space on the database and open it anew, which makes it again; " +
	"what was in it is lost, holds of semaphores among it"

const fullAdvice = "the server's table of locks is full; hold fewer names at a time, or raise max_locks_per_transaction in postgresql.conf " +
	"(the table has room for about max_locks_per_transaction x (max_connections + max_prepared_transactions) locks of all programs)"

const lockedAdvice = "another program has a table or a row of ours locked for long (VACUUM FULL, ALTER TABLE, a transaction that was left open); try again when it has ended"

// failed is the error of a call that the server or the way to it failed.
func failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*driver.Error](err); ok {
		return err
	}
	pe, isServer := errors.AsType[*pgconn.PgError](err)
	if ctx.Err() != nil && (!isServer || pe.Code == "57014") {
		return gaveup.Error(ctx, outcome(err))
	}
	if !isServer && late(ctx) {
		return &driver.Error{Kind: context.DeadlineExceeded, Outcome: outcome(err), Err: err}
	}
	if !isServer {
		return unreachable(err)
	}
	if a, ok := advice[pe.Code]; ok {
		return &driver.Error{Kind: a.kind, Outcome: outcome(err), Err: explain(pe, a.text)}
	}
	switch {
	case pe.Code == "42501":
		return &driver.Error{Kind: fs.ErrPermission, Outcome: outcome(err), Err: explain(pe, grantAdvice)}
	case pe.Code == "53200" && strings.Contains(pe.Hint, "max_locks_per_transaction"):
		return &driver.Error{Kind: driver.ErrUnavailable, Outcome: outcome(err), RetryAfter: time.Second, Err: explain(pe, fullAdvice)}
	case pe.Code == "55P03":
		return &driver.Error{Kind: driver.ErrUnavailable, Outcome: outcome(err), RetryAfter: time.Second, Err: explain(pe, lockedAdvice)}
	case temporary(pe):
		return &driver.Error{Kind: driver.ErrUnavailable, Outcome: outcome(err), RetryAfter: time.Second, Err: explain(pe, "")}
	}
	return &driver.Error{Outcome: outcome(err), Err: explain(pe, "")}
}

// late: the caller's deadline has passed. What it bounds, a dial say, can end a
// moment before the context itself does.
func late(ctx context.Context) bool {
	d, ok := ctx.Deadline()
	return ok && !time.Now().Before(d)
}

func explain(pe *pgconn.PgError, text string) error {
	if text == "" {
		return pe
	}
	return fmt.Errorf("%w: %s", pe, text)
}

// isFatal: the server ends the connection with it: it shuts down, an administrator or
// a time-out for idle connections has ended the session.
func isFatal(pe *pgconn.PgError) bool {
	return pe.SeverityUnlocalized == "FATAL" || pe.SeverityUnlocalized == "PANIC" || strings.HasPrefix(pe.Code, "57P")
}

// wasIdle: the server ended the connection since nothing was asked on it, so what was
// asked then did not happen: idle_session_timeout, idle_in_transaction_session_timeout.
func wasIdle(pe *pgconn.PgError) bool { return pe.Code == "57P05" || pe.Code == "25P03" }

// temporary: the server is short of something, or going down or up.
func temporary(pe *pgconn.PgError) bool {
	return isFatal(pe) || strings.HasPrefix(pe.Code, "08") || strings.HasPrefix(pe.Code, "53") || pe.Code == "57014"
}

// unreachable is the error when nothing came back. A time limit of ours is not
// the caller's: it must not look like the end of the caller's context.
func unreachable(err error) error {
	o := outcome(err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = fmt.Errorf("no answer in time (%v)", err)
	}
	return &driver.Error{Kind: driver.ErrUnavailable, Outcome: o, RetryAfter: time.Second, Err: err}
}

// outcome is NotDone where the server refused or never saw the call.
func outcome(err error) driver.Outcome {
	if _, ok := errors.AsType[unsure](err); ok {
		return driver.Unknown
	}
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok && (wasIdle(pe) || !isFatal(pe) && !strings.HasPrefix(pe.Code, "08")) {
		return driver.NotDone
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok || pgconn.SafeToRetry(err) {
		return driver.NotDone
	}
	return driver.Unknown
}

// code is the SQLSTATE of err, if it has one.
func code(err error) string {
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pe.Code
	}
	return ""
}

// refuse is a refusal of ours.
func refuse(kind error, format string, args ...any) *driver.Error {
	return driver.Errorf("", "", kind, format, args...)
}

// lostBecause is what the holders of a lost connection are told.
func lostBecause(err error) error {
	return &driver.Error{Op: "hold", Kind: driver.ErrLost, Outcome: driver.Done, Err: fmt.Errorf("the connection that held it is gone: %w", err)}
}

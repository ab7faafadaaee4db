package pghold

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-io/holdfast/driver"
)

// Promise: "NotDone reports that the call certainly changed nothing": a statement that
// may have been done, and is then refused or finds no server, is unknown.
func TestRepeatIsUnsure(t *testing.T) {
	cut, gone := io.ErrUnexpectedEOF, &pgconn.ConnectError{Config: &pgconn.Config{}}
	idle := &pgconn.PgError{Code: "57P05", SeverityUnlocalized: "FATAL"}
	busy := &pgconn.PgError{Code: "55P03", SeverityUnlocalized: "ERROR"}
	for _, c := range []struct {
		errs []error
		want driver.Outcome
	}{
		{[]error{gone}, driver.NotDone},
		{[]error{idle, gone}, driver.NotDone},
		{[]error{cut, gone}, driver.Unknown},
		{[]error{cut, idle, gone}, driver.Unknown},
		{[]error{cut, busy}, driver.Unknown},
		{[]error{cut, refuse(driver.ErrConflict, "the server's word")}, driver.NotDone},
	} {
		n := -1
		err := failed(t.Context(), new(client).repeat(t.Context(), func(context.Context, querier) error {
			n++
			return c.errs[n]
		}))
		e, ok := errors.AsType[*driver.Error](err)
		if !ok || e.Outcome != c.want || n != len(c.errs)-1 {
			t.Errorf("%v: %v after %d runs, want outcome %v", c.errs, err, n+1, c.want)
		}
	}
}

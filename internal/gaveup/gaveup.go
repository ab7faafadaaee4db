// Package gaveup makes the error of a call that its context ended.
package gaveup

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/driver"
)

// Error is the error of a call after its context ended, with the cause of that.
func Error(ctx context.Context, o driver.Outcome) *driver.Error {
	e := &driver.Error{Kind: ctx.Err(), Outcome: o}
	if cause := context.Cause(ctx); cause != e.Kind {
		e.Err = cause
	}
	return e
}

// Withdrawn is the error of an Acquire that ended without a grant. If its context ended it, all that the backend did for it is
// taken back in the background, however far it came: for its caller it was not done.
func Withdrawn(err error) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || e.Kind != context.Canceled && e.Kind != context.DeadlineExceeded {
		return err
	}
	told := *e
	told.Outcome = driver.NotDone
	return &told
}

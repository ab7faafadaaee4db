// Package gaveup makes the error of a call that its context ended, and of a request that is taken back.
package gaveup

import (
	"context"

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

// Package barrier has what the backends share about a party that waits at a barrier and leaves it: others
// count it until the backend has said that it has left.
package barrier

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// LeavingFor is how long a party that leaves waits for that word.
const LeavingFor = 5 * time.Second

// Leaving is the context of the call by which a party leaves after ctx has ended.
func Leaving(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), LeavingFor)
}

// Arriving is the context of a party's arrival. It ends LeavingFor after ctx: an arrival that is given up
// before it is answered may have been counted.
func Arriving(ctx context.Context) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(LeavingFor, cancel) })
	return later, func() { stop(); cancel() }
}

// MaybeCounted is the error of a party that others may have counted: its outcome is unknown, whatever
// err says of the call that failed.
func MaybeCounted(err error) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return err
	}
	c := *e
	c.Outcome = driver.Unknown
	return &c
}

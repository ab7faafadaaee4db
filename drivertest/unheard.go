package drivertest

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// unanswered opens a client that hears no answer to a change of a hold; made: the backend
// makes the change, else it does not hear of it.
func (e *Env) unanswered(ctx context.Context, made bool) *holdfast.Space {
	return e.keep(must(holdfast.New(mute{must(e.Driver(ctx)), made}))).Sub(e.prefix)
}

type mute struct {
	driver.Driver
	made bool
}

func (d mute) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	g, err := d.Driver.Acquire(ctx, r)
	if err == nil {
		g.Handle = muteHandle{g.Handle, d.made}
	}
	return g, err
}

type muteHandle struct {
	driver.Handle
	made bool
}

func (h muteHandle) Change(ctx context.Context, ch driver.Change) (driver.Grant, error) {
	if h.made {
		if g, err := h.Handle.Change(ctx, ch); err != nil {
			return g, err
		}
	}
	return driver.Grant{}, &driver.Error{Kind: driver.ErrUnavailable, Err: errors.New("no answer")}
}

package client

import (
	"context"
	"iter"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
)

// batch is how many events a watcher takes at a time.
const batch = 128

// Watch yields what happens.
func (c *Client) Watch(ctx context.Context, r *driver.WatchRequest) iter.Seq2[driver.Event, error] {
	return func(yield func(driver.Event, error) bool) {
		if err := c.open(ctx); err != nil {
			yield(driver.Event{}, err)
			return
		}
		f, first, err := c.g.engine.Watch(ctx, r)
		if err != nil {
			yield(driver.Event{}, err)
			return
		}
		defer f.Close()
		if !yield(driver.Event{Kind: driver.WatchKind, Verb: driver.VerbReady, Revision: first}, nil) {
			return
		}
		c.follow(ctx, f, r.Previous, yield)
	}
}

// follow yields events until ctx, the client or the caller ends it.
func (c *Client) follow(caller context.Context, f Feed, previous bool, yield func(driver.Event, error) bool) {
	ctx, cancel := context.WithCancel(caller)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	var events []core.Event
	for {
		var resync uint64
		var now int64
		var err error
		events, resync, now, err = f.Next(ctx, events[:0], batch)
		switch {
		case caller.Err() != nil:
			return
		case c.life.Err() != nil:
			yield(driver.Event{}, c.ended(driver.NotDone))
			return
		case err != nil:
			yield(driver.Event{}, err)
			return
		}
		if resync != 0 && !yield(driver.Event{Kind: driver.WatchKind, Verb: driver.VerbResync, Revision: resync}, nil) {
			return
		}
		for i := range events {
			if caller.Err() != nil || !yield(convert.Event(now, &events[i], previous), nil) {
				return
			}
		}
	}
}

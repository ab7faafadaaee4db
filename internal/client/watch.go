package client

import (
	"context"
	"errors"
	"io/fs"
	"iter"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// Batch is how many events a watcher takes at a time.
const Batch = 128

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
		if !yield(driver.Event{Kind: driver.WatchKind, Verb: driver.VerbReady, Revision: driver.Revision(first)}, nil) {
			return
		}
		c.follow(ctx, f, yield)
	}
}

// follow yields events until ctx, the client or the caller ends it.
func (c *Client) follow(caller context.Context, f Feed, yield func(driver.Event, error) bool) {
	ctx, cancel := context.WithCancel(caller)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	for {
		events, resync, err := f.Next(ctx)
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
		if resync != 0 && !yield(driver.Event{Kind: driver.WatchKind, Verb: driver.VerbResync, Revision: driver.Revision(resync)}, nil) {
			return
		}
		for i := range events {
			if caller.Err() != nil || !yield(events[i], nil) {
				return
			}
		}
	}
}

// Events says in the words of package driver what a machine said at the cluster
// time now.
func Events(now int64, events []core.Event, previous bool) []driver.Event {
	list := make([]driver.Event, len(events))
	for i := range events {
		list[i] = convert.Event(now, &events[i], previous)
	}
	return list
}

// Filter is what a watch of the namespace wants.
func Filter(namespace string, r *driver.WatchRequest) watch.Filter {
	return watch.Filter{Namespace: namespace, Prefix: r.Prefix, Exact: r.Exact, Patterns: r.Patterns, Glob: r.Glob}
}

// WatchError is the error of a watch that a hub refused.
func WatchError(err error) error {
	if gone, ok := errors.AsType[*watch.CompactedError](err); ok {
		return &driver.Error{Kind: driver.ErrCompacted, Outcome: driver.NotDone, Err: gone}
	}
	return &driver.Error{Kind: fs.ErrInvalid, Outcome: driver.NotDone, Err: err}
}

package memhold

import (
	"context"
	"errors"
	"io/fs"
	"iter"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/watch"
)

// publish hands the events of an apply to who watches. It never waits: who is
// slow is told to read anew.
func (st *store) publish() {
	for _, w := range st.hub.Publish(st.out.Events, st.m.Revision()) {
		select {
		case st.readers[w] <- struct{}{}:
		default:
		}
	}
}

// batch is how many events a watcher takes at a time.
const batch = 128

// Watch yields what happens.
func (c *client) Watch(ctx context.Context, r *driver.WatchRequest) iter.Seq2[driver.Event, error] {
	return func(yield func(driver.Event, error) bool) {
		w, wake, from, err := c.watch(ctx, r)
		if err != nil {
			yield(driver.Event{}, err)
			return
		}
		defer c.unwatch(w)
		if !yield(driver.Event{Kind: driver.WatchKind, Verb: driver.VerbReady, Revision: from}, nil) {
			return
		}
		c.follow(ctx, w, wake, r.Previous, yield)
	}
}

func (c *client) watch(ctx context.Context, r *driver.WatchRequest) (*watch.Watcher, <-chan struct{}, uint64, error) {
	if _, err := c.begin(ctx); err != nil {
		return nil, nil, 0, err
	}
	defer c.st.unlock()
	w, from, err := c.st.hub.Add(watch.Filter{
		Namespace: "default", Prefix: r.Prefix, Exact: r.Exact, Patterns: r.Patterns, Glob: r.Glob,
	}, r.From)
	if gone, ok := errors.AsType[*watch.CompactedError](err); ok {
		return nil, nil, 0, &driver.Error{Kind: driver.ErrCompacted, Outcome: driver.NotDone, Err: gone}
	}
	if err != nil {
		return nil, nil, 0, &driver.Error{Kind: fs.ErrInvalid, Outcome: driver.NotDone, Err: err}
	}
	wake := make(chan struct{}, 1)
	c.st.readers[w] = wake
	return w, wake, from, nil
}

func (c *client) unwatch(w *watch.Watcher) {
	c.st.mu.Lock()
	defer c.st.mu.Unlock()
	c.st.hub.Remove(w)
	delete(c.st.readers, w)
}

// follow yields events until ctx, the client or the caller ends it.
func (c *client) follow(ctx context.Context, w *watch.Watcher, wake <-chan struct{}, previous bool, yield func(driver.Event, error) bool) {
	var events []core.Event
	for {
		var resync uint64
		c.st.mu.Lock()
		events, resync = c.st.hub.Read(w, events[:0], batch)
		now := c.st.now()
		c.st.mu.Unlock()
		if resync != 0 && !yield(driver.Event{Kind: driver.WatchKind, Verb: driver.VerbResync, Revision: resync}, nil) {
			return
		}
		for i := range events {
			if ctx.Err() != nil || !yield(convert.Event(now, &events[i], previous), nil) {
				return
			}
		}
		if len(events) > 0 || resync != 0 {
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return
		case <-c.gone:
			yield(driver.Event{}, errClosed)
			return
		}
	}
}

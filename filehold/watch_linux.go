package filehold

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// batch is how many events a watcher takes at a time.
const batch = 128

// Watch yields what happens from now on.
func (c *client) Watch(ctx context.Context, r *driver.WatchRequest) iter.Seq2[driver.Event, error] {
	return func(yield func(driver.Event, error) bool) {
		ctx, err := c.begin(ctx)
		if err != nil { // of a directory that is gone the holders are told, too: nobody else may ever look
			yield(driver.Event{}, cmp.Or(c.e.endIfGone(), err))
			return
		}
		c.e.ref() // the caller's loop may outlive the Space
		c.end()
		defer c.e.unref()
		w, wake, from, err := c.e.watch(ctx, r)
		if err != nil {
			yield(driver.Event{}, err)
			return
		}
		defer c.leaveWatch(w)
		if yield(driver.Event{Kind: driver.WatchKind, Verb: driver.VerbReady, Revision: driver.Revision(from)}, nil) {
			c.follow(ctx, w, wake, r.Previous, yield)
		}
	}
}

// watch registers a watcher. The first one of the process says so to the others,
// which write the events of lock files from then on.
func (e *engine) watch(ctx context.Context, r *driver.WatchRequest) (w *watch.Watcher, wake chan struct{}, from uint64, err error) {
	wake = make(chan struct{}, 1)
	err = e.locked(ctx, func() error {
		if w, from, err = e.hub.Add(watch.Filter{Namespace: "default", Prefix: r.Prefix, Exact: r.Exact, Patterns: r.Patterns, Glob: r.Glob}, 0); err != nil {
			return &driver.Error{Kind: fs.ErrInvalid, Outcome: driver.NotDone, Err: err}
		}
		if err := e.declare(); err != nil {
			e.hub.Remove(w)
			return err
		}
		e.readers[w] = wake
		return nil
	})
	return w, wake, from, err
}

// declare says that this process watches, and has the log read. The store is
// locked, e.mu is held.
func (e *engine) declare() error {
	if len(e.readers) > 0 {
		return e.sleep()
	}
	path := e.liveFile(e.proc, watcherExt)
	if err := makeFile(path, e.perm); err != nil {
		return err
	}
	if err := e.sleep(); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	e.ctl.add(wWatchers, 1)
	return nil
}

// leaveWatch ends a watch in the background: its loop does not wait for the store's lock,
// which another process may have for long.
func (c *client) leaveWatch(w *watch.Watcher) {
	c.e.ref()
	go func() {
		defer c.e.unref()
		c.unwatch(w)
	}()
}

func (c *client) unwatch(w *watch.Watcher) {
	e := c.e
	err := e.locked(context.Background(), func() error {
		e.hub.Remove(w)
		delete(e.readers, w)
		if len(e.readers) > 0 {
			return nil
		}
		e.ctl.add(wWatchers, -1)
		return os.Remove(e.liveFile(e.proc, watcherExt))
	})
	if err != nil {
		c.fault("end a watch", e.dir, err)
	}
	e.awake()
}

// follow yields events until ctx, the client or the caller ends it.
func (c *client) follow(ctx context.Context, w *watch.Watcher, wake <-chan struct{}, previous bool, yield func(driver.Event, error) bool) {
	var events []core.Event
	for {
		var resync uint64
		c.e.mu.Lock()
		events, resync = c.e.hub.Read(w, events[:0], batch)
		now := c.e.now()
		c.e.mu.Unlock()
		if resync != 0 && !yield(driver.Event{Kind: driver.WatchKind, Verb: driver.VerbResync, Revision: driver.Revision(resync)}, nil) {
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

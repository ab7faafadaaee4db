package filehold

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"syscall"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// batch is how many events a watcher takes at a time.
const batch = 128

// reader is a watch here.
type reader struct {
	w    *watch.Watcher
	wake chan struct{} // there is something to read
	end  error         // why nothing more comes; guarded by engine.mu
}

// Watch yields what happens from now on, until the directory is gone.
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
		own, from, err := c.e.watch(ctx, r)
		if err != nil {
			yield(driver.Event{}, err)
			return
		}
		defer c.leaveWatch(own)
		if yield(driver.Event{Kind: driver.WatchKind, Verb: driver.VerbReady, Revision: driver.Revision(from)}, nil) {
			c.follow(ctx, own, r.Previous, yield)
		}
	}
}

// watch registers a watcher. The first one of the process says so to the others,
// which write the events of lock files from then on.
func (e *engine) watch(ctx context.Context, r *driver.WatchRequest) (own *reader, from uint64, err error) {
	own = &reader{wake: make(chan struct{}, 1)}
	err = e.locked(ctx, func() error {
		if own.w, from, err = e.hub.Add(watch.Filter{Namespace: "default", Prefix: r.Prefix, Exact: r.Exact, Patterns: r.Patterns, Glob: r.Glob}, 0); err != nil {
			return &driver.Error{Kind: fs.ErrInvalid, Outcome: driver.NotDone, Err: err}
		}
		e.readers[own.w] = own
		if err := e.declare(); err != nil {
			e.drop(own)
			return err
		}
		e.begins(from)
		return nil
	})
	return own, from, err
}

// drop lets a watch go. e.mu is held.
func (e *engine) drop(own *reader) {
	e.hub.Remove(own.w)
	delete(e.readers, own.w)
}

// declare says that this process watches, and has the log read. The store is
// locked, e.mu is held.
func (e *engine) declare() error {
	if len(e.readers) > 1 {
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
func (c *client) leaveWatch(own *reader) {
	c.e.ref()
	go func() {
		defer c.e.unref()
		c.unwatch(own)
	}()
}

func (c *client) unwatch(own *reader) {
	e := c.e
	err := e.locked(context.Background(), func() error {
		e.drop(own)
		if len(e.readers) > 0 {
			return nil
		}
		return e.undeclare()
	})
	if err != nil && !errors.Is(err, driver.ErrClosed) { // of a directory that is gone the watch has told
		c.fault("end a watch", e.dir, err)
	}
	e.awake()
}

// undeclare is the end of what declare says, wherever the directory is now: a file that stayed would have this process
// taken for one that watched until it ended, and counted twice. The store is locked, e.mu is held.
func (e *engine) undeclare() error {
	path := e.liveFile(e.proc, watcherExt)
	if err := unlinkAt(e.root, filepath.Join(filepath.Base(e.sub), liveDir, filepath.Base(path))); err != nil && err != syscall.ENOENT {
		return &fs.PathError{Op: "unlink", Path: path, Err: err}
	}
	e.ctl.add(wWatchers, -1)
	return nil
}

// follow yields events until ctx, the client, the directory or the caller ends it.
func (c *client) follow(ctx context.Context, own *reader, previous bool, yield func(driver.Event, error) bool) {
	var events []core.Event
	for {
		c.e.mu.Lock()
		var resync uint64
		events, resync = c.e.hub.Read(own.w, events[:0], batch)
		c.e.begins(resync)
		now, end := c.e.now(), own.end
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
		if end != nil {
			yield(driver.Event{}, end)
			return
		}
		select {
		case <-own.wake:
		case <-ctx.Done():
			return
		case <-c.gone:
			yield(driver.Event{}, errClosed)
			return
		}
	}
}

// endWatches ends every watch here, behind what it was not told yet. e.mu is held.
func (e *engine) endWatches(why error) {
	for _, own := range e.readers {
		own.end = why
		own.ring()
	}
}

// ring tells a watch that there is something to read.
func (r *reader) ring() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

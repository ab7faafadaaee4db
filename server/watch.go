package server

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// Watch follows what happens on this node, which may be a little behind the
// leader. Close it when done.
type Watch struct {
	l    *loop
	w    *watch.Watcher
	wake chan struct{}
	next watch.Position
}

// Place is the position at which the watch began, or goes on after its last resync.
// Denials have no revision of their own: they are told at this position.
func (w *Watch) Place() watch.Position { return w.next }

// Events counts what this node has applied since it started, and told its watches.
func (s *Server) Events() watch.Tally {
	s.loop.hubMu.Lock()
	defer s.loop.hubMu.Unlock()
	return s.loop.hub.Tally()
}

// Watch begins at revision from; 0: now. first is the first revision that it will
// see. History that is not kept any more is a [*watch.CompactedError].
func (s *Server) Watch(f watch.Filter, from uint64) (w *Watch, first uint64, err error) {
	l := s.loop
	l.hubMu.Lock()
	defer l.hubMu.Unlock()
	x, first, err := l.hub.Add(f, from)
	if err != nil {
		return nil, 0, err
	}
	w = &Watch{l: l, w: x, wake: make(chan struct{}, 1), next: watch.Position{Revision: first}}
	if from == 0 {
		w.next = l.hub.Next()
	}
	l.woken[x] = func() {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	return w, first, nil
}

// Next appends the next events to dst, at most limit, waiting for the first of
// them. resync is not 0 if events were left out: read the state anew, then go on
// from there.
func (w *Watch) Next(ctx context.Context, dst []core.Event, limit int) (events []core.Event, resync uint64, err error) {
	for {
		events, resync = w.read(dst, limit)
		if len(events) > len(dst) || resync != 0 {
			return events, resync, nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return dst, 0, ctx.Err()
		case <-w.l.stopped:
			return dst, 0, &driver.Error{Op: "watch", Kind: driver.ErrClosed, Err: errStopped}
		}
	}
}

func (w *Watch) read(dst []core.Event, limit int) (events []core.Event, resync uint64) {
	w.l.hubMu.Lock()
	defer w.l.hubMu.Unlock()
	if events, resync = w.l.hub.Read(w.w, dst, limit); resync != 0 {
		w.next = w.l.hub.Next()
	}
	return events, resync
}

// Close ends the watch.
func (w *Watch) Close() {
	w.l.hubMu.Lock()
	defer w.l.hubMu.Unlock()
	w.l.hub.Remove(w.w)
	delete(w.l.woken, w.w)
}

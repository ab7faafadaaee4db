package memhold

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/client"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// publish hands the events of an apply to the watchers. It never waits: one that is
// slow is told to read anew.
func (st *store) publish() {
	for _, w := range st.hub.Publish(st.out.Events, st.m.Revision()) {
		select {
		case st.readers[w] <- struct{}{}:
		default:
		}
	}
}

// feed is one watch of a memory.
type feed struct {
	st   *store
	w    *watch.Watcher
	wake chan struct{}
	buf  []core.Event
	// previous: with what was there before.
	previous bool
}

// Watch begins a feed.
func (st *store) Watch(_ context.Context, r *driver.WatchRequest) (client.Feed, uint64, error) {
	st.g.Lock()
	defer st.g.Unlock()
	w, first, err := st.hub.Add(client.Filter("default", r), uint64(r.From))
	if err != nil {
		return nil, 0, client.WatchError(err)
	}
	f := &feed{st: st, w: w, wake: make(chan struct{}, 1), previous: r.Previous}
	st.readers[w] = f.wake
	return f, first, nil
}

// Next waits for events.
func (f *feed) Next(ctx context.Context) ([]driver.Event, uint64, error) {
	for {
		now := f.st.g.Lock()
		events, resync := f.st.hub.Read(f.w, f.buf[:0], client.Batch)
		f.buf = events
		f.st.g.Unlock()
		if len(events) > 0 || resync != 0 {
			return client.Events(now, events, f.previous), resync, nil
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// Close ends the watch.
func (f *feed) Close() {
	f.st.g.Lock()
	defer f.st.g.Unlock()
	f.st.hub.Remove(f.w)
	delete(f.st.readers, f.w)
}

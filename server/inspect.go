package server

import (
	"cmp"
	"context"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/client"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// defaultNamespace is that of callers that name none.
const defaultNamespace = "default"

// Inspect tells holders and waiters in a namespace, as of now. A list that is to
// go on has at least one name: many free ones are passed over in several looks, so
// that nobody has to wait for them.
func (s *Server) Inspect(ctx context.Context, namespace string, r *driver.InspectRequest) (reply driver.InspectReply, err error) {
	q := *r
	for {
		var bad error
		err = s.Look(ctx, func(m *core.Machine, now int64) { reply, bad = client.InspectMachine(m, now, namespace, &q) })
		if err = cmp.Or(err, bad); err != nil || !q.Prefix || len(reply.Resources) > 0 || reply.Next == "" {
			return reply, err
		}
		q.After = reply.Next
	}
}

// SessionInfo tells about a session of a namespace, as of now.
func (s *Server) SessionInfo(ctx context.Context, namespace string, r *driver.SessionInfoRequest) (info driver.SessionInfo, err error) {
	var bad error
	err = s.Look(ctx, func(m *core.Machine, now int64) { info, bad = client.SessionOfMachine(m, now, namespace, r) })
	return info, cmp.Or(err, bad)
}

// Feed is a watch in the words of package driver. Close it when done.
type Feed struct {
	w        *Watch
	buf      []core.Event
	previous bool
}

// Feed begins to follow what happens in a namespace on this node, which may be a
// little behind the leader; first is the revision from which on it is complete.
func (s *Server) Feed(namespace string, r *driver.WatchRequest) (f *Feed, first uint64, err error) {
	w, first, err := s.Watch(client.Filter(namespace, r), uint64(r.From))
	if err != nil {
		return nil, 0, client.WatchError(err)
	}
	return &Feed{w: w, previous: r.Previous}, first, nil
}

// Next waits for events. resync is not 0 if some were left out: read the state
// anew, then go on from there.
func (f *Feed) Next(ctx context.Context) (events []driver.Event, resync uint64, err error) {
	f.buf, resync, err = f.w.Next(ctx, f.buf[:0], client.Batch)
	f.w.l.hubMu.Lock()
	now := f.w.l.seen
	f.w.l.hubMu.Unlock()
	return client.Events(now, f.buf, f.previous), resync, err
}

// Place is [Watch.Place].
func (f *Feed) Place() watch.Position { return f.w.Place() }

// Close ends the watch.
func (f *Feed) Close() { f.w.Close() }

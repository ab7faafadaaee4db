package remote

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/client"
	"github.com/holdfast-io/holdfast/internal/watch"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// feed is one watch. After a failure it goes on where it was, on whichever node
// serves then; what that node does not know any more is a resync.
type feed struct {
	e      *engine
	r      driver.WatchRequest
	stream grpc.ServerStreamingClient[pb.WatchResponse]
	ctx    context.Context // of the stream
	cancel context.CancelFunc
	cursor watch.Cursor
}

func newFeed(e *engine, r *driver.WatchRequest) *feed {
	return &feed{e: e, r: *r, cursor: watch.NewCursor(uint64(r.From))}
}

// Watch begins a feed. Those from now on share one; from a revision on each has
// its own.
func (e *engine) Watch(ctx context.Context, r *driver.WatchRequest) (client.Feed, uint64, error) {
	if r.From == 0 {
		return e.shared(ctx, r)
	}
	f := newFeed(e, r)
	if _, err := f.open(ctx, roomWait); err != nil {
		f.cancel()
		return nil, 0, err
	}
	return f, uint64(r.From), nil
}

// roomWait is how long a watch that begins waits for room on a node that has as many as
// it takes: they stay, so its caller should rather know.
const roomWait = time.Second

// open begins a stream and waits until it is ready. resync is not zero if events
// were left out since the last one. Room on the node is waited for as long as room.
func (f *feed) open(ctx context.Context, room time.Duration) (resync watch.Position, err error) {
	f.ctx, f.cancel = context.WithCancel(f.e.ctx)
	defer context.AfterFunc(ctx, f.cancel)()
	f.r.From = driver.Revision(f.cursor.Ask())
	err = f.e.callFor(ctx, room, func(_ context.Context, c *grpc.ClientConn) error {
		if f.stream, err = pb.NewWatchServiceClient(c).Watch(f.ctx, wire.WatchRequest(&f.r)); err != nil {
			return err
		}
		m, err := f.stream.Recv()
		if err == nil {
			resync = f.cursor.Ready(watch.Before(m.GetReadyRevision(), m.GetOrdinal()))
		}
		return err
	})
	return resync, err
}

// Next waits for events.
func (f *feed) Next(ctx context.Context) ([]driver.Event, uint64, error) {
	events, resync, err := f.next(ctx)
	return events, resync.Whole(), err
}

// next is Next, with the place at which a resync goes on.
func (f *feed) next(ctx context.Context) ([]driver.Event, watch.Position, error) {
	stop := context.AfterFunc(ctx, f.cancel)
	defer func() { stop() }()
	for {
		m, err := f.stream.Recv()
		if ctx.Err() != nil {
			return nil, watch.Position{}, ctx.Err()
		}
		if err != nil {
			stop()
			resync, err := f.resume(ctx, wire.Error(err))
			if err != nil || resync != (watch.Position{}) {
				return nil, resync, err
			}
			stop = context.AfterFunc(ctx, f.cancel)
			continue
		}
		var resync watch.Position
		if r := m.GetResyncRevision(); r != 0 {
			resync = f.cursor.Resync(watch.Before(r, m.GetOrdinal()))
		}
		if events := f.news(wire.ToEvents(m.GetEvents())); len(events) > 0 || resync != (watch.Position{}) {
			return events, resync, nil
		}
	}
}

// resume begins a new stream where the old one broke; why is what broke it. resync
// is not zero if events were left out, since no node knows them any more.
func (f *feed) resume(ctx context.Context, why error) (resync watch.Position, err error) {
	if f.e.ctx.Err() != nil {
		return watch.Position{}, why
	}
	f.cancel()
	resync, err = f.open(ctx, math.MaxInt64)
	if errors.Is(err, driver.ErrCompacted) {
		f.cancel()
		f.cursor.Compacted()
		resync, err = f.open(ctx, math.MaxInt64)
	}
	return resync, err
}

// news are the events that were not seen before.
func (f *feed) news(events []driver.Event) []driver.Event {
	return slices.DeleteFunc(events, func(e driver.Event) bool { return !f.cursor.Take(position(&e)) })
}

// Close ends the watch.
func (f *feed) Close() { f.cancel() }

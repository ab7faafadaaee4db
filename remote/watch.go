package remote

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/client"
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
	// What was seen last; a new stream tells that revision again.
	revision uint64
	ordinal  uint32
}

// Watch begins a feed. Those from now on share one; from a revision on each has
// its own.
func (e *engine) Watch(ctx context.Context, r *driver.WatchRequest) (client.Feed, uint64, error) {
	if r.From == 0 {
		return e.shared(ctx, r)
	}
	f := &feed{e: e, r: *r}
	first, err := f.open(ctx)
	if err != nil {
		f.cancel()
		return nil, 0, err
	}
	f.r.From = first
	return f, first, nil
}

// open begins a stream and waits for its first revision.
func (f *feed) open(ctx context.Context) (first uint64, err error) {
	f.ctx, f.cancel = context.WithCancel(f.e.ctx)
	defer context.AfterFunc(ctx, f.cancel)()
	err = f.e.call(ctx, func(_ context.Context, c *grpc.ClientConn) error {
		if f.stream, err = pb.NewWatchServiceClient(c).Watch(f.ctx, wire.WatchRequest(&f.r)); err != nil {
			return err
		}
		m, err := f.stream.Recv()
		first = m.GetReadyRevision()
		return err
	})
	return first, err
}

// Next waits for events.
func (f *feed) Next(ctx context.Context) ([]driver.Event, uint64, error) {
	stop := context.AfterFunc(ctx, f.cancel)
	defer func() { stop() }()
	for {
		m, err := f.stream.Recv()
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		if err != nil {
			stop()
			resync, err := f.resume(ctx, wire.Error(err))
			if err != nil || resync != 0 {
				return nil, resync, err
			}
			stop = context.AfterFunc(ctx, f.cancel)
			continue
		}
		if events := f.news(wire.ToEvents(m.GetEvents())); len(events) > 0 || m.GetResyncRevision() != 0 {
			return events, m.GetResyncRevision(), nil
		}
	}
}

// resume begins a new stream where the old one broke; why is what broke it.
func (f *feed) resume(ctx context.Context, why error) (resync uint64, err error) {
	if f.e.ctx.Err() != nil || errors.Is(why, driver.ErrCompacted) {
		return 0, why
	}
	f.cancel()
	_, err = f.open(ctx)
	if !errors.Is(err, driver.ErrCompacted) {
		return 0, err
	}
	f.r.From = 0
	first, err := f.open(ctx)
	f.r.From, f.revision, f.ordinal = first, 0, 0
	return first, err
}

// news are the events that were not seen before.
func (f *feed) news(events []driver.Event) []driver.Event {
	for len(events) > 0 && (events[0].Revision < f.revision || events[0].Revision == f.revision && events[0].Ordinal <= f.ordinal) {
		events = events[1:]
	}
	if n := len(events); n > 0 {
		f.revision, f.ordinal = events[n-1].Revision, events[n-1].Ordinal
		f.r.From = f.revision
	}
	return events
}

// Close ends the watch.
func (f *feed) Close() { f.cancel() }

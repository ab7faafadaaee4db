package api

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/watch"
)

// maxWatches is how many watches one stream may have.
const maxWatches = 128

// holdPatterns are the events that a hold as a key begins and ends with.
var holdPatterns = func() (list []string) {
	for _, kind := range []string{"lock", "rwlock", "semaphore", "election"} {
		for _, verb := range []string{"acquired", "upgraded", "downgraded", "proclaimed", "released", "expired", "reclaimed"} {
			list = append(list, kind+":"+verb)
		}
	}
	return append(list, "kv:put", "kv:delete")
}()

// Watch begins a watch with each message; responses of all of them share the
// stream.
func (s lockService) Watch(stream pb.LockService_WatchServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	w := &lockWatches{g: s.gateway, out: make(chan *pb.LockWatchResponse), failed: make(chan error, 1)}
	asked := make(chan error, 1)
	go func() { asked <- w.receive(ctx, stream) }()
	for {
		select {
		case r := <-w.out:
			if err := stream.Send(r); err != nil {
				return err
			}
		case err := <-w.failed:
			return err
		case err := <-asked:
			if !errors.Is(err, io.EOF) {
				return err
			}
			asked = nil // the watches go on
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lockWatches are the watches of one stream.
type lockWatches struct {
	g      *gateway
	n      int
	out    chan *pb.LockWatchResponse
	failed chan error
}

// receive begins a watch with each request. It ends with the stream.
func (w *lockWatches) receive(ctx context.Context, stream pb.LockService_WatchServer) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if w.n++; w.n > maxWatches {
			return named(invalid(r.Key, "this stream has %d watches: open another", maxWatches), "watch", r.Key)
		}
		if r.StartRevision < 0 || r.Key == "" && !r.Prefix {
			return named(invalid(r.Key, "a watch needs a key or a prefix, and a start_revision that is not negative"), "watch", r.Key)
		}
		go w.follow(ctx, r)
	}
}

// follow tells one watch's events.
func (w *lockWatches) follow(ctx context.Context, r *pb.LockWatchRequest) {
	f := watch.Filter{Namespace: callerOf(ctx).namespace, Prefix: nameOf(r), Patterns: holdPatterns}
	x, first, err := w.g.s.Watch(f, uint64(r.StartRevision))
	if gone, ok := errors.AsType[*watch.CompactedError](err); ok {
		w.send(ctx, &pb.LockWatchResponse{Header: w.g.header(ctx, 0), WatchId: r.WatchId, CompactRevision: int64(gone.Floor)})
		return
	}
	if err != nil {
		w.fail(named(&driver.Error{Outcome: driver.NotDone, Err: err}, "watch", r.Key))
		return
	}
	defer x.Close()
	w.send(ctx, &pb.LockWatchResponse{Header: w.g.header(ctx, first), WatchId: r.WatchId})
	var events []core.Event
	for {
		var resync uint64
		events, resync, err = x.Next(ctx, events[:0], 128)
		if err != nil {
			w.fail(err)
			return
		}
		out := &pb.LockWatchResponse{WatchId: r.WatchId, CompactRevision: int64(resync)}
		for i := range events {
			if e := lockEvent(r, &events[i]); e != nil {
				out.Events = append(out.Events, e)
			}
		}
		if len(out.Events) > 0 || resync != 0 {
			out.Header = w.g.header(ctx, max(resync, lastOf(events)))
			w.send(ctx, out)
		}
	}
}

func lastOf(events []core.Event) uint64 {
	if len(events) == 0 {
		return 0
	}
	return events[len(events)-1].Revision
}

func (w *lockWatches) send(ctx context.Context, r *pb.LockWatchResponse) {
	select {
	case w.out <- r:
	case <-ctx.Done():
	}
}

func (w *lockWatches) fail(err error) {
	select {
	case w.failed <- err:
	default:
	}
}

// nameOf is what names with events of a key begin with: a hold's key is longer
// than its name.
func nameOf(r *pb.LockWatchRequest) string {
	if i := strings.LastIndexByte(r.Key, '/'); i >= 0 {
		return r.Key[:i]
	}
	return r.Key
}

// lockEvent is an event as the change of a key; nil: the watch does not want it.
func lockEvent(r *pb.LockWatchRequest, e *core.Event) *pb.LockEvent {
	out := holdEvent(e)
	if e.Kind == core.EventKV {
		out = kvEvent(e, r.PrevKv)
	}
	key := out.Kv.Key
	switch {
	case r.Prefix && !strings.HasPrefix(key, r.Key), !r.Prefix && key != r.Key:
		return nil
	case len(r.Types) > 0 && !slices.Contains(r.Types, out.Type):
		return nil
	}
	return out
}

// holdEvent is a hold as a key: it is written by its grant and what changes it,
// and deleted by its end. A revocation only decides its end: until that comes its
// holder may believe in it.
func holdEvent(e *core.Event) *pb.LockEvent {
	lease, ours := leaseOf(e.Namespace, e.Session)
	kv := &pb.LockKeyValue{
		Key: e.Name + "/" + driver.LeaseID(e.Session).String(), Value: e.Value,
		CreateRevision: int64(e.Token), ModRevision: int64(e.Revision), Version: 1,
	}
	if ours {
		kv.Key, kv.Lease = keyOf(e.Name, lease), lease
	}
	out := &pb.LockEvent{Kv: kv}
	switch e.Verb {
	case core.VerbReleased, core.VerbExpired, core.VerbReclaimed:
		out.Type = pb.LockEvent_TYPE_DELETE
	}
	return out
}

func kvEvent(e *core.Event, previous bool) *pb.LockEvent {
	out := &pb.LockEvent{Kv: lockKeyValue(e.Namespace, &e.Key)}
	if e.Verb == core.VerbDelete {
		out.Type = pb.LockEvent_TYPE_DELETE
		out.Kv.ModRevision = int64(e.Revision)
	}
	if previous && e.Prev.Version > 0 {
		out.PrevKv = lockKeyValue(e.Namespace, &e.Prev)
	}
	return out
}

func lockKeyValue(ns string, k *core.Key) *pb.LockKeyValue {
	kv := &pb.LockKeyValue{
		Key: k.Name, Value: k.Value, CreateRevision: int64(k.Created), ModRevision: int64(k.Modified), Version: int64(k.Version),
	}
	kv.Lease, _ = leaseOf(ns, k.Lease)
	return kv
}

package gateway

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/admission"
	"github.com/holdfast-io/holdfast/internal/watch"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
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

// WatchHolds begins a watch with each request that recv gives, or ends one; responses
// of all of them go to send, one after the other.
func (s Locks) WatchHolds(ctx context.Context, recv func() (*pb.LockWatchRequest, error), send func(*pb.LockWatchResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &lockWatches{g: s.Gateway, live: map[*lockWatch]struct{}{}, out: make(chan *pb.LockWatchResponse), failed: make(chan error, 1)}
	asked := make(chan error, 1)
	go func() { asked <- w.receive(ctx, recv) }()
	for {
		select {
		case r := <-w.out:
			if err := send(r); err != nil {
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
	g      *Gateway
	out    chan *pb.LockWatchResponse
	failed chan error

	mu   sync.Mutex
	live map[*lockWatch]struct{}
}

// lockWatch is one of them.
type lockWatch struct {
	*pb.LockWatchRequest
	end   context.CancelFunc
	leave func() // gives its place among the calls that stay back
}

// receive begins or ends a watch with each request. It ends with the stream.
func (w *lockWatches) receive(ctx context.Context, recv func() (*pb.LockWatchRequest, error)) error {
	for {
		r, err := recv()
		if err != nil {
			return err
		}
		if err := checkLockWatch(r); err != nil {
			return Named(err, "watch", r.Key)
		}
		if r.Cancel {
			w.cancel(ctx, r.WatchId)
			continue
		}
		w.begin(ctx, r)
	}
}

func checkLockWatch(r *pb.LockWatchRequest) error {
	switch more := r.Key != "" || r.Prefix || r.StartRevision != 0 || r.PrevKv || len(r.Types) > 0; {
	case r.Cancel && more:
		return Invalid(r.Key, "to end a watch give its watch_id and nothing else")
	case r.StartRevision < 0 || r.Key == "" && !r.Prefix && !r.Cancel:
		return Invalid(r.Key, "a watch needs a key or a prefix, and a start_revision that is not negative")
	}
	return nil
}

// begin begins a watch, if there is room for it: in the stream, and among all calls
// that stay. One that finds none is told so; the others are none the worse.
func (w *lockWatches) begin(ctx context.Context, r *pb.LockWatchRequest) {
	x := &lockWatch{LockWatchRequest: r}
	if err := w.add(x); err != nil {
		w.send(ctx, &pb.LockWatchResponse{Header: w.g.Header(ctx, 0), WatchId: r.WatchId, Canceled: true, Reason: err.Error()})
		return
	}
	own, end := context.WithCancel(ctx)
	x.end = end
	go func() {
		defer w.remove(x)
		w.follow(ctx, own, r)
	}()
}

func (w *lockWatches) add(x *lockWatch) (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.live) >= maxWatches {
		return Named(driver.Errorf("", x.Key, driver.ErrExhausted, "this stream has %d watches, as many as one may: end one, or open another stream", maxWatches), "watch", x.Key)
	}
	// Of its connection it takes nothing: it shares the stream of the others.
	if x.leave, err = w.g.gate.settle(context.Background(), admission.List); err != nil {
		return err
	}
	w.live[x] = struct{}{}
	return nil
}

func (w *lockWatches) remove(x *lockWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.live, x)
	x.end()
	x.leave()
}

// cancel ends the watches with that number; each tells it itself, after its last
// event. If there is none (any more), that is told here.
func (w *lockWatches) cancel(ctx context.Context, id int64) {
	w.mu.Lock()
	found := false
	for x := range w.live {
		if x.WatchId == id {
			found = true
			x.end()
		}
	}
	w.mu.Unlock()
	if !found {
		w.send(ctx, &pb.LockWatchResponse{Header: w.g.Header(ctx, 0), WatchId: id, Canceled: true})
	}
}

// follow tells one watch's events, until the stream or own, its own time, ends.
func (w *lockWatches) follow(ctx, own context.Context, r *pb.LockWatchRequest) {
	if err := w.fromNow(own, r); err != nil {
		w.ended(ctx, own, r, Named(err, "watch", r.Key))
		return
	}
	f := watch.Filter{Namespace: callerOf(ctx).namespace, Prefix: nameOf(r), Patterns: holdPatterns}
	x, first, err := w.g.s.Watch(f, uint64(r.StartRevision))
	if gone, ok := errors.AsType[*watch.CompactedError](err); ok {
		w.send(ctx, &pb.LockWatchResponse{Header: w.g.Header(ctx, 0), WatchId: r.WatchId, CompactRevision: int64(gone.Floor)})
		return
	}
	if err != nil {
		w.fail(Named(&driver.Error{Outcome: driver.NotDone, Err: err}, "watch", r.Key))
		return
	}
	defer x.Close()
	w.send(ctx, &pb.LockWatchResponse{Header: w.g.Header(ctx, first), WatchId: r.WatchId})
	for err == nil {
		err = w.some(ctx, own, r, x)
	}
	if own.Err() == nil {
		w.fail(err)
		return
	}
	w.ended(ctx, own, r, err)
}

// fromNow refuses a watch from now on where that is not known: after everything that was
// answered before it, which only the leader knows. Another node names it.
func (w *lockWatches) fromNow(own context.Context, r *pb.LockWatchRequest) error {
	if r.StartRevision != 0 {
		return nil
	}
	return w.g.s.Look(own, func(*core.Machine, int64) {})
}

// ended tells that a watch is over: as its caller asked, or since it could not begin.
func (w *lockWatches) ended(ctx, own context.Context, r *pb.LockWatchRequest, err error) {
	last := &pb.LockWatchResponse{Header: w.g.Header(ctx, 0), WatchId: r.WatchId, Canceled: true}
	if own.Err() == nil {
		last.Reason = err.Error()
	}
	w.send(ctx, last)
}

// some waits for events and tells them.
func (w *lockWatches) some(ctx, own context.Context, r *pb.LockWatchRequest, x *server.Watch) error {
	events, resync, err := x.Next(own, nil, 128)
	if err != nil {
		return err
	}
	out := &pb.LockWatchResponse{WatchId: r.WatchId, CompactRevision: int64(resync)}
	for i := range events {
		if e := lockEvent(r, &events[i]); e != nil {
			out.Events = append(out.Events, e)
		}
	}
	if len(out.Events) > 0 || resync != 0 {
		out.Header = w.g.Header(ctx, max(resync, lastOf(events)))
		w.send(ctx, out)
	}
	return nil
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
	var out *pb.LockEvent
	switch {
	case e.Kind == core.EventKV:
		out = kvEvent(e, r.PrevKv)
	case e.Session == (core.SessionID{}):
		return nil // the end of what is nobody's since its hold ended
	default:
		out = holdEvent(e, r.PrevKv)
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
func holdEvent(e *core.Event, previous bool) *pb.LockEvent {
	lease, ours := leaseOf(e.Namespace, e.Session)
	kv := &pb.LockKeyValue{
		Key: e.Name + "/" + driver.SessionID(e.Session).String(), Value: e.Value,
		CreateRevision: int64(e.Token), ModRevision: int64(e.Modified), Version: int64(e.Version),
	}
	if ours {
		kv.Key, kv.Lease = keyOf(e.Name, lease), lease
	}
	out := &pb.LockEvent{Kv: kv}
	switch e.Verb {
	case core.VerbReleased, core.VerbExpired, core.VerbReclaimed:
		out.Type = pb.LockEvent_TYPE_DELETE
		if previous {
			out.PrevKv = proto.CloneOf(kv)
		}
		kv.ModRevision = int64(e.Revision)
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
	kv.Lease, _ = leaseOf(ns, k.Session)
	return kv
}

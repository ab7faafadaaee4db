package remote

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/client"
	"github.com/holdfast-io/holdfast/internal/watch"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// subject is what is watched: watchers of the same from now on share one
// subscription.
type subject struct {
	prefix, glob, patterns string
	exact, previous        bool
}

func subjectOf(r *driver.WatchRequest) subject {
	return subject{r.Prefix, r.Glob, fmt.Sprintf("%q", r.Patterns), r.Exact, r.Previous}
}

// shares are the subscriptions of a Space that several watchers may use.
type shares struct {
	mu      sync.Mutex
	all     map[subject]*share
	closed  bool
	running sync.WaitGroup
}

// close waits until all are gone that a closed Space had; there will be no more.
func (x *shares) close() {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	x.running.Wait()
}

// share is one of them.
type share struct {
	e       *engine
	subject subject
	cancel  context.CancelFunc
	// opened is closed when first, or err, is known.
	opened chan struct{}
	first  watch.Position

	mu       sync.Mutex
	watchers map[*watcher]struct{} // changes under the mutex of shares too
	fan      *watch.Fan[driver.Event]
	added    int           // since what all have read was forgotten
	news     chan struct{} // closed when there is something to read; nil: nobody waits
	read     chan struct{} // has one when there may be room in the fan
	err      error         // why nothing more will come
}

// watcher is one watch of a share.
type watcher struct {
	s      *share
	reader watch.Reader
	buf    []driver.Event
}

var _ client.Feed = (*watcher)(nil)

// shared begins a watch from now on. What was answered before is not seen, what
// comes later is: a share that was there before has its own beginning, so the
// leader is asked where now is, after the place in it is taken.
func (e *engine) shared(ctx context.Context, r *driver.WatchRequest) (client.Feed, uint64, error) {
	w, founder := e.join(r)
	if w == nil {
		return nil, 0, &driver.Error{Kind: driver.ErrClosed, Outcome: driver.NotDone}
	}
	err := w.begin(ctx)
	var now watch.Position
	if err == nil && founder {
		now = w.s.first // it is there once the share is open
	} else if err == nil {
		now, err = e.now(ctx)
	}
	if err != nil {
		w.Close()
		return nil, 0, err
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.reader.From(now)
	return w, now.Whole(), nil
}

// join takes a place in the share of a subject, which is made if need be; nil: the
// Space is closed.
func (e *engine) join(r *driver.WatchRequest) (w *watcher, founder bool) {
	e.shares.mu.Lock()
	defer e.shares.mu.Unlock()
	if e.shares.closed {
		return nil, false
	}
	key := subjectOf(r)
	s := e.shares.all[key]
	if s == nil {
		founder = true
		s = e.found(key, r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w = &watcher{s: s, reader: s.fan.Join()}
	s.watchers[w] = struct{}{}
	s.made()
	return w, founder
}

// found begins a share; shares are locked.
func (e *engine) found(key subject, r *driver.WatchRequest) *share {
	s := &share{
		e: e, subject: key, opened: make(chan struct{}), watchers: map[*watcher]struct{}{}, read: make(chan struct{}, 1),
		fan: watch.NewFan(watch.FanConfig[driver.Event]{MaxEvents: maxEvents, MaxBytes: maxBytes, At: position, Size: size}),
	}
	ctx, cancel := context.WithCancel(e.ctx)
	s.cancel = cancel
	if e.shares.all == nil {
		e.shares.all = map[subject]*share{}
	}
	e.shares.all[key] = s
	f := newFeed(e, r)
	e.shares.running.Go(func() { s.run(ctx, f) })
	return s
}

// begin waits until the share is open.
func (w *watcher) begin(ctx context.Context) error {
	select {
	case <-w.s.opened:
		w.s.mu.Lock()
		defer w.s.mu.Unlock()
		return w.s.err
	case <-ctx.Done():
		return &driver.Error{Kind: ctx.Err(), Outcome: driver.NotDone, Err: context.Cause(ctx)}
	}
}

// now is where the leader is.
func (e *engine) now(ctx context.Context) (now watch.Position, err error) {
	err = e.call(ctx, func(ctx context.Context, c *grpc.ClientConn) error {
		m, err := pb.NewInspectServiceClient(c).Ping(ctx, &pb.PingRequest{})
		now = watch.Before(m.GetRevision()+1, m.GetOrdinal())
		return err
	})
	return now, err
}

// run reads the subscription until it, or the last watcher, has gone.
func (s *share) run(ctx context.Context, f *feed) {
	defer s.cancel()
	_, err := f.open(ctx, roomWait)
	defer func() { f.cancel() }()
	if err == nil {
		s.first = f.cursor.Next()
		close(s.opened)
		err = s.follow(ctx, f)
	}
	s.end(err)
}

// follow takes in what comes, as fast as the foremost watcher reads it: what none
// has read waits in the stream, and in the node.
func (s *share) follow(ctx context.Context, f *feed) error {
	for {
		events, resync, err := f.next(ctx)
		if err != nil {
			return err
		}
		if resync != (watch.Position{}) {
			s.gap(resync)
		}
		for n := s.add(events); n < len(events); n += s.add(events[n:]) {
			select {
			case <-s.read:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func (s *share) gap(next watch.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fan.Gap(next)
	s.wake()
}

// add takes events in, as many as there is room for.
func (s *share) add(events []driver.Event) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.added += len(events); s.added >= 4*client.Batch {
		s.added = 0
		s.fan.Trim(s.readers)
	}
	n = s.fan.Add(events, s.readers)
	s.wake()
	return n
}

// readers are the places of all watchers; s is locked.
func (s *share) readers(yield func(*watch.Reader) bool) {
	for w := range s.watchers {
		if !yield(&w.reader) {
			return
		}
	}
}

// made says that there may be room.
func (s *share) made() {
	select {
	case s.read <- struct{}{}:
	default:
	}
}

// wake tells all waiters; s is locked.
func (s *share) wake() {
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
}

// end tells everybody that nothing more will come.
func (s *share) end(err error) {
	s.e.shares.forget(s)
	s.mu.Lock()
	s.err = err
	s.wake()
	s.mu.Unlock()
	select {
	case <-s.opened:
	default:
		close(s.opened)
	}
}

func (x *shares) forget(s *share) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(s)
}

// drop is forget; x is locked.
func (x *shares) drop(s *share) {
	if x.all[s.subject] == s {
		delete(x.all, s.subject)
	}
}

// Next waits for events.
func (w *watcher) Next(ctx context.Context) ([]driver.Event, uint64, error) {
	for {
		events, resync, news, err := w.read()
		switch {
		case ctx.Err() != nil:
			return nil, 0, ctx.Err()
		case len(events) > 0 || resync != 0:
			return events, resync, nil
		case err != nil:
			return nil, 0, err
		}
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
}

// read is what there is, and otherwise what tells when there is something.
func (w *watcher) read() (events []driver.Event, resync uint64, news <-chan struct{}, err error) {
	resync, news, err = w.look()
	for i := range w.buf {
		own(&w.buf[i])
	}
	return w.buf, resync, news, err
}

func (w *watcher) look() (resync uint64, news <-chan struct{}, err error) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	w.buf, resync = s.fan.Read(&w.reader, w.buf[:0], client.Batch)
	s.made()
	if len(w.buf) == 0 && resync == 0 && s.news == nil {
		s.news = make(chan struct{})
	}
	return resync, s.news, s.err
}

// Close leaves the share; with the last watcher it ends.
func (w *watcher) Close() {
	s := w.s
	s.e.shares.mu.Lock()
	defer s.e.shares.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
	s.made()
	if len(s.watchers) == 0 {
		s.cancel()
		s.e.shares.drop(s)
	}
}

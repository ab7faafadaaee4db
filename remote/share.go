package remote

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/client"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// subject is what is watched: who watches the same from now on shares one
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
	first  uint64

	mu       sync.Mutex
	watchers map[*watcher]struct{} // changes under the mutex of shares too
	fan      fan
	news     chan struct{} // closed when there is something to read; nil: nobody waits
	err      error         // why nothing more will come
}

// watcher is one who watches a share.
type watcher struct {
	s     *share
	place place
	buf   []driver.Event
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
	var first uint64
	if err == nil {
		first = w.s.first // it is there once the share is open
	}
	if err == nil && !founder {
		var now uint64
		now, err = e.revision(ctx)
		first = max(first, now+1)
	}
	if err != nil {
		w.Close()
		return nil, 0, err
	}
	w.place.from = first
	return w, first, nil
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
	w = &watcher{s: s, place: place{at: s.fan.end()}}
	s.watchers[w] = struct{}{}
	return w, founder
}

// found begins a share; shares are locked.
func (e *engine) found(key subject, r *driver.WatchRequest) *share {
	s := &share{e: e, subject: key, opened: make(chan struct{}), watchers: map[*watcher]struct{}{}}
	ctx, cancel := context.WithCancel(e.ctx)
	s.cancel = cancel
	if e.shares.all == nil {
		e.shares.all = map[subject]*share{}
	}
	e.shares.all[key] = s
	f := &feed{e: e, r: *r}
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

// revision is that of the leader, now.
func (e *engine) revision(ctx context.Context) (revision uint64, err error) {
	err = e.call(ctx, func(ctx context.Context, c *grpc.ClientConn) error {
		m, err := pb.NewInspectServiceClient(c).Ping(ctx, &pb.PingRequest{})
		revision = m.GetRevision()
		return err
	})
	return revision, err
}

// run reads the subscription until it, or the last watcher, has gone.
func (s *share) run(ctx context.Context, f *feed) {
	defer s.cancel()
	first, err := f.open(ctx)
	defer func() { f.cancel() }()
	s.first, f.r.From = first, first
	if err == nil {
		close(s.opened)
		err = s.follow(ctx, f)
	}
	s.end(err)
}

func (s *share) follow(ctx context.Context, f *feed) error {
	for {
		events, resync, err := f.Next(ctx)
		if err != nil {
			return err
		}
		s.mu.Lock()
		if resync != 0 {
			s.fan.gap(resync)
		}
		s.trim()
		s.fan.add(events)
		s.wake()
		s.mu.Unlock()
	}
}

// trim forgets, now and then, what everybody has read; s is locked.
func (s *share) trim() {
	if len(s.fan.events) < 4*client.Batch {
		return
	}
	read := s.fan.end()
	for w := range s.watchers {
		read = min(read, max(w.place.at, s.fan.base))
	}
	s.fan.drop(read)
}

// wake tells those who wait; s is locked.
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

// read is what there is, and otherwise who tells when there is something.
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
	w.buf, resync = s.fan.read(&w.place, w.buf[:0], client.Batch)
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
	if len(s.watchers) == 0 {
		s.cancel()
		s.e.shares.drop(s)
	}
}

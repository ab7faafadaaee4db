package remote_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// forgetful is a node whose watches can be torn, and that can have forgotten what
// happened before.
type forgetful struct {
	mu      sync.Mutex
	forgets bool          // a watch from a revision on is refused
	gate    chan struct{} // new watches wait until it is closed; nil: they do not
	began   chan *watching
}

// watching is one of its watches.
type watching struct {
	grpc.ServerStream
	ctx   context.Context
	tear  context.CancelFunc
	ready chan struct{} // has one when it has begun
	mu    sync.Mutex
	deaf  bool // what happens is not told
}

func (w *watching) Context() context.Context { return w.ctx }

func (w *watching) SendMsg(m any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deaf {
		return nil
	}
	select {
	case w.ready <- struct{}{}:
	default:
	}
	return w.ServerStream.SendMsg(m)
}

// resync tells that events before a revision were left out.
func (w *watching) resync(revision uint64) error {
	return w.ServerStream.SendMsg(&pb.WatchResponse{ResyncRevision: revision})
}

func (w *watching) set(deaf bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaf = deaf
}

// asking looks at what a watch asks for.
type asking struct {
	*watching
	forgets bool
}

func (a *asking) RecvMsg(m any) error {
	err := a.watching.RecvMsg(m)
	if r, ok := m.(*pb.WatchRequest); ok && err == nil && a.forgets && r.GetFromRevision() != 0 {
		return wire.Status(driver.Errorf("watch", "", driver.ErrCompacted, "forgotten")).Err()
	}
	return err
}

func (x *forgetful) intercept(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if info.FullMethod != pb.WatchService_Watch_FullMethodName {
		return next(srv, s)
	}
	x.mu.Lock()
	forgets, gate := x.forgets, x.gate
	x.mu.Unlock()
	if gate != nil {
		<-gate
	}
	w := &watching{ServerStream: s, ready: make(chan struct{}, 1)}
	w.ctx, w.tear = context.WithCancel(s.Context())
	defer w.tear()
	x.began <- w
	err := next(srv, &asking{w, forgets})
	if w.ctx.Err() != nil && s.Context().Err() == nil {
		return status.Error(codes.Unavailable, "torn")
	}
	return err
}

// close has new watches wait until the channel is closed.
func (x *forgetful) close() (gate chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gate = make(chan struct{})
	return x.gate
}

func serveForgetful(t *testing.T) (x *forgetful, addr string) {
	t.Helper()
	x = &forgetful{began: make(chan *watching, 100)}
	svc := api.New(newNode(t))
	t.Cleanup(svc.Close)
	g := grpc.NewServer(grpc.StreamInterceptor(x.intercept))
	svc.Register(g)
	return x, listenFor(t, g)
}

// sees reads what follows, as "resync" or the value that was put.
func (r *reader) sees(t *testing.T, who string, want ...string) {
	t.Helper()
	for _, w := range want {
		ev := r.event()
		got := ev.Verb
		if ev.KV != nil {
			got = string(ev.KV.Value)
		}
		if got != w {
			t.Fatalf("%s sees %s at %d, want %s", who, got, ev.Revision, w)
		}
	}
}

func puts(t *testing.T, s *holdfast.Space, what string, n int) (revision uint64) {
	t.Helper()
	for i := range n {
		r, err := s.KV().Put(t.Context(), "k", fmt.Append(nil, what, i))
		if err != nil {
			t.Fatal(err)
		}
		revision = uint64(r)
	}
	return revision
}

// Whatever was missed while a subscription was torn, and is forgotten, is told to
// all that share it: also to a watch that had read everything, one that reads slowly, and
// one that came after it was torn.
func TestForgottenEventsAreAResync(t *testing.T) {
	x, addr := serveForgetful(t)
	s, other := openAt(t, addr), openAt(t, addr)
	quick, slow := watch(t, s, t.Context(), "k"), watch(t, s, t.Context(), "k")
	defer quick.stop()
	defer slow.stop()
	first := <-x.began
	puts(t, other, "seen", 3)
	quick.sees(t, "the quick one", "seen0", "seen1", "seen2")

	x.mu.Lock()
	x.forgets = true
	x.mu.Unlock()
	gate := x.close()
	first.tear()
	late := watch(t, s, t.Context(), "k")
	defer late.stop()
	puts(t, other, "missed", 51)
	later := watch(t, s, t.Context(), "k")
	defer later.stop()
	close(gate)
	<-x.began // is refused
	<-(<-x.began).ready
	puts(t, other, "after", 1)
	quick.sees(t, "the quick one", "resync", "after0")
	slow.sees(t, "the slow one", "seen0", "seen1", "seen2", "resync", "after0")
	late.sees(t, "who came after the tear", "resync", "after0")
	later.sees(t, "who came after the gap", "after0")
}

// After a resync nothing older follows, also if the stream breaks before the next
// event.
func TestNothingOlderFollowsAResync(t *testing.T) {
	for _, from := range []uint64{0, 1} {
		t.Run(fmt.Sprint("from ", from), func(t *testing.T) {
			x, addr := serveForgetful(t)
			s, other := openAt(t, addr), openAt(t, addr)
			begin := puts(t, other, "before", 1) + 1
			r := &reader{t: t}
			r.next, r.stop = iter.Pull2(s.Watch(t.Context(), "k", holdfast.Revision(from*begin)))
			defer r.stop()
			r.sees(t, "the watcher", "ready")
			w := <-x.began
			puts(t, other, "seen", 2)
			r.sees(t, "the watcher", "seen0", "seen1")
			w.set(true)
			missed := puts(t, other, "missed", 20)
			if err := w.resync(missed + 1); err != nil {
				t.Fatal(err)
			}
			r.sees(t, "the watcher", "resync")
			w.tear()
			puts(t, other, "after", 2)
			r.sees(t, "the watcher", "after0", "after1")
		})
	}
}

// However many events one call makes, watchers that read what comes see all of them.
func TestManyEventsAtOnce(t *testing.T) {
	const keys = 6000
	s := openAt(t, serveRefusing(t, newNode(t), func(string) error { return nil }))
	for i := 0; i < keys; i += 100 {
		var ops []holdfast.Op
		for j := range 100 {
			ops = append(ops, holdfast.PutOp(fmt.Sprintf("k/%05d", i+j), []byte("v")))
		}
		if _, err := s.KV().Txn(t.Context(), holdfast.Txn{Then: ops}); err != nil {
			t.Fatal(err)
		}
	}
	readers := []*reader{watch(t, s, t.Context(), "k/"), watch(t, s, t.Context(), "k")}
	if _, err := s.KV().Txn(t.Context(), holdfast.Txn{Then: []holdfast.Op{holdfast.DeleteRangeOp("k/")}}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, r := range readers {
		defer r.stop()
		all.Go(func() {
			for i := range keys {
				if ev, err, ok := r.next(); err != nil || !ok || ev.Verb != "delete" || ev.Name != fmt.Sprintf("k/%05d", i) {
					t.Errorf("number %d is %s %s (%v)", i, ev.Verb, ev.Name, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// A denial changes nothing, and so has the revision of the change before it, which may
// be older than the watch: it is seen all the same, by all that share a subscription,
// also if it came while that was torn.
func TestDenialsAreSeen(t *testing.T) {
	x, addr := serveForgetful(t)
	s, other := openAt(t, addr), openAt(t, addr)
	hold, err := other.Mutex("m").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	deny := func() {
		t.Helper()
		if _, err := other.Mutex("m").TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
	}
	deny()
	denied := holdfast.Patterns{"lock:denied", "lock:released"}
	first := watch(t, s, t.Context(), "m", denied)
	w := <-x.began
	deny()
	second := watch(t, s, t.Context(), "m", denied)
	deny()
	third := watch(t, s, t.Context(), "m", denied)
	alone := watch(t, s, t.Context(), "m", append(denied, "lock:revoked"))
	gate := x.close()
	w.tear()
	(<-x.began).tear()
	deny()
	close(gate)
	deny()
	if err := hold.Release(); err != nil {
		t.Fatal(err)
	}
	for i, r := range []*reader{alone, third, second, first} {
		seen := append(slices.Repeat([]string{"denied"}, 1+max(i, 1)), "released")
		r.sees(t, fmt.Sprint("number ", i), seen...)
		r.stop()
	}
}

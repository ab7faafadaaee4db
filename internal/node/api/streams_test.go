package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-io/holdfast/internal/node/api"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// watch begins a watch over the rig's one connection.
func (r *rig) watch(ctx context.Context) error {
	w, err := pb.NewWatchServiceClient(r.conn).Watch(ctx, &pb.WatchRequest{Prefix: "x", FromRevision: r.revision + 1})
	if err == nil {
		_, err = w.Recv()
	}
	return err
}

// crowded expects the refusal of one call too many for a connection: had it waited for a place,
// it would wait still.
func crowded(t *testing.T, err error) {
	t.Helper()
	f := wantCode(t, err, codes.ResourceExhausted)
	if !strings.Contains(f.Cause, "this connection has") || !strings.Contains(f.Cause, "--max-streams") || !f.NotDone {
		t.Errorf("refused with %v", err)
	}
}

// One connection has as many watches as it may: the next is refused at once by an
// error that names the limit, and other calls on it go on as ever.
func TestStreams_Watches(t *testing.T) {
	r := serve(t)
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	first, end := context.WithCancel(ctx)
	if err := r.watch(first); err != nil {
		t.Fatal(err)
	}
	for i := range api.DefaultStreams - 1 {
		if err := r.watch(ctx); err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
	}
	for range 10 {
		crowded(t, r.watch(ctx))
	}
	for i := range 100 {
		x := must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: fmt.Sprint("y", i)}))
		must[*pb.UnlockResponse](t)(r.locks().Unlock(r.ctx, &pb.UnlockRequest{Key: x.Key}))
		must[*pb.PingResponse](t)(pb.NewInspectServiceClient(r.conn).Ping(r.ctx, &pb.PingRequest{}))
	}
	s := must[pb.LockService_LeaseKeepAliveClient](t)(r.locks().LeaseKeepAlive(ctx)) // and sessions are kept
	if err := s.Send(&pb.LeaseKeepAliveRequest{Id: 5}); err != nil {
		t.Fatal(err)
	}
	must[*pb.LeaseKeepAliveResponse](t)(s.Recv())
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	end()
	for r.watch(ctx) != nil { // when both have ended
		if ctx.Err() != nil {
			t.Fatal("a watch that has ended keeps its place")
		}
	}
}

// So it is with calls that wait, also through a node that passes them on: the release
// that ends a wait finds its way. One call too many is refused: the last, or one that
// stands in the queue and has not taken its place on the connection yet.
func TestStreams_Waits(t *testing.T) {
	rigs := trioWith(t, api.Config{Streams: 50})
	at := leader(t, rigs)
	for _, r := range []*rig{rigs[at], rigs[(at+1)%3]} {
		name := "x" + r.addr
		held := must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: name}))
		ctx, cancel := context.WithCancel(r.ctx)
		ended := make(chan error, 51)
		wait := func() {
			_, err := r.locks().Lock(ctx, &pb.LockRequest{Name: name})
			ended <- err
		}
		for range 50 {
			go wait()
		}
		r.waiters(name, 50)
		go wait()
		crowded(t, <-ended)
		r.waiters(name, 50)                                                                            // it was taken out of the queue before it was told
		free := must[*pb.LockResponse](t)(r.locks().Lock(ctx, &pb.LockRequest{Name: "free" + r.addr})) // one that need not wait is not refused
		must[*pb.UnlockResponse](t)(r.locks().Unlock(ctx, &pb.UnlockRequest{Key: free.Key}))
		must[*pb.CounterAddResponse](t)(pb.NewCounterServiceClient(r.conn).Add(r.ctx, &pb.CounterAddRequest{Name: "n"}))
		must[*pb.UnlockResponse](t)(r.locks().Unlock(r.ctx, &pb.UnlockRequest{Key: held.Key}))
		if err := <-ended; err != nil {
			t.Error(err)
		}
		cancel()
		for range 49 {
			<-ended
		}
	}
}

// A node that passes calls on is not one connection among others: thousands of them
// wait at the leader through it, and those that pass by go on.
func TestStreams_PassedOn(t *testing.T) {
	rigs := trioWith(t, api.Config{Streams: 110})
	at := leader(t, rigs)
	must[*pb.LockResponse](t)(rigs[at].locks().Lock(t.Context(), &pb.LockRequest{Name: "x", TtlMs: 600_000}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const each, clients = 100, 3 // together more than one connection to the leader may have
	ended := make(chan error, each*clients)
	var last *rig
	for range clients {
		r := rigs[(at+1)%3].again()
		last = r
		for range each {
			go func() {
				_, err := r.locks().Lock(ctx, &pb.LockRequest{Name: "x"})
				ended <- err
			}()
		}
	}
	rigs[at].waiters("x", each*clients)
	for range 50 {
		must[*pb.CounterAddResponse](t)(pb.NewCounterServiceClient(last.conn).Add(last.ctx, &pb.CounterAddRequest{Name: "n"}))
	}
	cancel()
	for range each * clients {
		wantCode(t, <-ended, codes.Canceled)
	}
}

// again is the rig with another connection.
func (r *rig) again() *rig {
	r.t.Helper()
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	c := *r
	c.conn = conn
	return &c
}

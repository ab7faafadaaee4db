package api_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

func TestLockAndUnlock(t *testing.T) {
	r := serve(t)
	l := r.locks()
	a := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "/locks/db", Owner: "a", TimeoutMs: proto.Int64(0)}))
	if !a.Acquired || a.FencingToken == 0 || a.LeaseId == 0 || a.TtlMs < 25_000 || a.TtlMs > 30_000 {
		t.Fatalf("got %v", a)
	}
	if h := a.Header; h.ClusterId != 1 || h.MemberId != 1 || h.RaftTerm == 0 || h.Revision != a.FencingToken {
		t.Errorf("header %v", h)
	}
	b := must[*pb.TryLockResponse](t)(l.TryLock(r.ctx, &pb.TryLockRequest{Name: "/locks/db", Owner: "b"}))
	if b.Acquired || b.FencingToken != 0 {
		t.Fatalf("a lock that is held was taken: %v", b)
	}
	c := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "/locks/db", TimeoutMs: proto.Int64(1)}))
	if c.Acquired {
		t.Fatalf("a lock that is held was taken: %v", c)
	}
	must[*pb.UnlockResponse](t)(l.Unlock(r.ctx, &pb.UnlockRequest{Key: a.Key}))
	_, err := l.Unlock(r.ctx, &pb.UnlockRequest{Name: "/locks/db", FencingToken: a.FencingToken})
	if f := wantCode(t, err, codes.FailedPrecondition); f.Kind != "lost" || !f.NotDone || f.Name != "/locks/db" || f.Op != "unlock" {
		t.Errorf("unlocked twice: %v", f)
	}
	d := must[*pb.TryLockResponse](t)(l.TryLock(r.ctx, &pb.TryLockRequest{Name: "/locks/db"}))
	if !d.Acquired || d.FencingToken <= a.FencingToken {
		t.Errorf("token %d after %d", d.FencingToken, a.FencingToken)
	}
}

// A call that waits gets the lock when it is given back, in its turn.
func TestLockWaits(t *testing.T) {
	r := serve(t)
	l := r.locks()
	a := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x"}))
	got := make(chan *pb.LockResponse, 2)
	for i := range 2 {
		go func() {
			x, err := l.Lock(r.ctx, &pb.LockRequest{Name: "x", Owner: string(rune('b' + i))})
			if err != nil {
				t.Error(err)
			}
			got <- x
		}()
		r.waiters("x", i+1)
	}
	must[*pb.UnlockResponse](t)(l.Unlock(r.ctx, &pb.UnlockRequest{Key: a.Key}))
	b := <-got
	if !b.GetAcquired() || b.GetFencingToken() <= a.FencingToken || b.GetTtlMs() < 25_000 {
		t.Fatalf("got %v", b)
	}
	must[*pb.UnlockResponse](t)(l.Unlock(r.ctx, &pb.UnlockRequest{Key: b.Key}))
	c := <-got
	if c.GetFencingToken() <= b.FencingToken {
		t.Errorf("token %d after %d", c.GetFencingToken(), b.FencingToken)
	}
}

// waiters waits until so many wait for a name.
func (r *rig) waiters(name string, n int) *pb.Resource {
	r.t.Helper()
	for ; ; <-time.After(time.Millisecond) {
		res, err := pb.NewInspectServiceClient(r.conn).Inspect(r.ctx, &pb.InspectRequest{Name: name})
		if err != nil {
			r.t.Fatal(err)
		}
		if int(res.GetResource().GetWaiting()) == n {
			return res.Resource
		}
	}
}

// holders waits until so many hold a name.
func (r *rig) holders(name string, n int) {
	r.t.Helper()
	for ; ; <-time.After(time.Millisecond) {
		res, err := pb.NewInspectServiceClient(r.conn).Inspect(r.ctx, &pb.InspectRequest{Name: name})
		if err != nil {
			r.t.Fatal(err)
		}
		if int(res.GetResource().GetHolding()) == n {
			return
		}
	}
}

// A caller that goes away while it waits is taken out of the queue.
func TestCallerGoesAway(t *testing.T) {
	r := serve(t)
	l := r.locks()
	a := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x"}))
	lease := must[*pb.LeaseGrantResponse](t)(l.LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 60}))
	for _, id := range []int64{0, lease.Id} {
		ctx, cancel := context.WithCancel(r.ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := l.Lock(ctx, &pb.LockRequest{Name: "x", LeaseId: id})
			ended <- err
		}()
		r.waiters("x", 1)
		cancel()
		wantCode(t, <-ended, codes.Canceled)
		r.waiters("x", 0)
	}
	must[*pb.UnlockResponse](t)(l.Unlock(r.ctx, &pb.UnlockRequest{Key: a.Key}))
	r.holders("x", 0)
}

// Leases are granted, kept alive and revoked, and everything hangs on them.
func TestLeases(t *testing.T) {
	r := serve(t)
	l := r.locks()
	g := must[*pb.LeaseGrantResponse](t)(l.LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 10, Id: 77}))
	if g.Id != 77 || g.Ttl != 10 {
		t.Fatalf("granted %v", g)
	}
	a := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: 77, Metadata: []byte("m")}))
	if a.Key != "x/4d" || a.LeaseId != 77 {
		t.Errorf("got %v", a)
	}
	again := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: 77}))
	if again.FencingToken != a.FencingToken {
		t.Errorf("the second lock of a lease has token %d, the first %d", again.FencingToken, a.FencingToken)
	}
	must[*pb.PutResponse](t)(pb.NewKVServiceClient(r.conn).Put(r.ctx, &pb.PutRequest{Key: "k", Value: []byte("v"), LeaseId: 77}))

	s := must[pb.LockService_LeaseKeepAliveClient](t)(l.LeaseKeepAlive(r.ctx))
	for _, id := range []int64{77, 78} {
		if err := s.Send(&pb.LeaseKeepAliveRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
		k := must[*pb.LeaseKeepAliveResponse](t)(s.Recv())
		if k.Id != id || (k.Ttl > 0) != (id == 77) || id == 77 && k.Header.GetRevision() == 0 {
			t.Errorf("kept %v", k)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}

	must[*pb.LeaseRevokeResponse](t)(l.LeaseRevoke(r.ctx, &pb.LeaseRevokeRequest{Id: 77}))
	r.holders("x", 0)
	if k := must[*pb.GetResponse](t)(pb.NewKVServiceClient(r.conn).Get(r.ctx, &pb.GetRequest{Key: "k"})); k.Kv != nil {
		t.Errorf("the key outlived its lease: %v", k)
	}
	_, err := l.LeaseRevoke(r.ctx, &pb.LeaseRevokeRequest{Id: 77})
	wantCode(t, err, codes.NotFound)
	_, err = l.Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: 77})
	wantCode(t, err, codes.NotFound)
}

// A lease that nobody keeps alive ends, and what waits behind it goes on.
func TestLeaseExpires(t *testing.T) { inBubble(t, leaseExpires) }

func leaseExpires(t *testing.T, r *rig) {
	l := r.locks()
	a := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x", TtlMs: 1000}))
	b := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x"}))
	if b.FencingToken <= a.FencingToken {
		t.Errorf("token %d after %d", b.FencingToken, a.FencingToken)
	}
}

// The lease of a call that waits is renewed by the node, however long it takes.
func TestNodeRenewsWhileACallWaits(t *testing.T) { inBubble(t, renewsWhileACallWaits) }

func renewsWhileACallWaits(t *testing.T, r *rig) {
	l := r.locks()
	a := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x"}))
	got := make(chan *pb.LockResponse, 1)
	go func() {
		b, err := l.Lock(r.ctx, &pb.LockRequest{Name: "x", TtlMs: 6000})
		if err != nil {
			t.Error(err)
		}
		got <- b
	}()
	last := r.waiters("x", 1).Waiters[0]
	for renewed := 0; renewed < 2; <-time.After(10 * time.Millisecond) { // its time grows again
		w := r.waiters("x", 1).Waiters[0]
		if string(w.Session) != string(last.Session) {
			t.Fatal("another waits")
		}
		if w.ExpiresInMs > last.ExpiresInMs {
			renewed++
		}
		last = w
	}
	must[*pb.UnlockResponse](t)(l.Unlock(r.ctx, &pb.UnlockRequest{Key: a.Key}))
	if b := <-got; !b.GetAcquired() {
		t.Errorf("got %v", b)
	}
}

func TestBadLocks(t *testing.T) {
	r := serve(t)
	l := r.locks()
	long := strings.Repeat("n", 513)
	for what, q := range map[string]*pb.LockRequest{
		"no name":          {},
		"a long name":      {Name: long},
		"a control":        {Name: "a\nb"},
		"a negative time":  {Name: "x", TimeoutMs: proto.Int64(-1)},
		"too long a time":  {Name: "x", TimeoutMs: proto.Int64(1 << 31)},
		"too short a TTL":  {Name: "x", TtlMs: 1},
		"a negative TTL":   {Name: "x", TtlMs: -1},
		"too long a TTL":   {Name: "x", TtlMs: 24*3600*1000 + 1},
		"long metadata":    {Name: "x", Metadata: make([]byte, 4097)},
		"a long owner":     {Name: "x", Owner: long},
		"a negative lease": {Name: "x", LeaseId: -7},
		"another's lease":  {Name: "x", LeaseId: 1 << 52},
	} {
		_, err := l.Lock(r.ctx, q)
		if f := wantCode(t, err, codes.InvalidArgument); !f.NotDone {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := l.Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: 5})
	wantCode(t, err, codes.NotFound)
	_, err = l.Lock(r.ctx, &pb.LockRequest{Name: "x", Metadata: make([]byte, 70_000)})
	wantCode(t, err, codes.ResourceExhausted)
	_, err = l.Unlock(r.ctx, &pb.UnlockRequest{Key: "x"})
	wantCode(t, err, codes.InvalidArgument)
	_, err = l.Unlock(r.ctx, &pb.UnlockRequest{Name: "x", FencingToken: 3})
	wantCode(t, err, codes.FailedPrecondition)
	for _, ttl := range []int64{0, -1, 86_401} {
		_, err = l.LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: ttl})
		wantCode(t, err, codes.InvalidArgument)
	}
	_, err = l.Lock(r.as("holdfast-namespace", "holdfast.registers.default"), &pb.LockRequest{Name: "x"})
	wantCode(t, err, codes.InvalidArgument)
	r.untouched()
}

// untouched expects that nothing was ever made.
func (r *rig) untouched() {
	r.t.Helper()
	st := must[*pb.StatusResponse](r.t)(pb.NewAdminServiceClient(r.conn).Status(r.ctx, &pb.StatusRequest{}))
	list := must[*pb.ListResponse](r.t)(pb.NewInspectServiceClient(r.conn).List(r.ctx, &pb.ListRequest{}))
	if uint64(st.Header.Revision) != r.revision || len(list.Resources) != 0 {
		r.t.Errorf("something was done: revision %d after %d, names %v", st.Header.Revision, r.revision, list.Resources)
	}
}

// Locks, leases and numbers of namespaces have nothing to do with each other.
func TestNamespaces(t *testing.T) {
	r := serve(t)
	l := r.locks()
	must[*pb.LeaseGrantResponse](t)(l.LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 60, Id: 5}))
	a := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: 5}))
	other := r.as("holdfast-namespace", "team")
	_, err := l.Lock(other, &pb.LockRequest{Name: "x", LeaseId: 5})
	wantCode(t, err, codes.NotFound)
	_, err = l.Unlock(other, &pb.UnlockRequest{Name: "x", FencingToken: a.FencingToken})
	wantCode(t, err, codes.FailedPrecondition)
	_, err = l.LeaseRevoke(other, &pb.LeaseRevokeRequest{Id: 5})
	wantCode(t, err, codes.NotFound)
	must[*pb.LeaseGrantResponse](t)(l.LeaseGrant(other, &pb.LeaseGrantRequest{Ttl: 60, Id: 5}))
	if b := must[*pb.TryLockResponse](t)(l.TryLock(other, &pb.TryLockRequest{Name: "x", LeaseId: 5})); !b.Acquired {
		t.Error("a lock of another namespace stood in the way")
	}
	r.holders("x", 1)
}

// A repeated call with a key is the same call.
func TestIdempotencyKey(t *testing.T) {
	r := serve(t)
	c := pb.NewCounterServiceClient(r.conn)
	once := r.as("idempotency-key", "k1")
	for range 3 {
		if v := must[*pb.CounterAddResponse](t)(c.Add(once, &pb.CounterAddRequest{Name: "n", Amount: proto.Uint64(5)})); v.Value != 5 {
			t.Fatalf("counted %d", v.Value)
		}
	}
	if v := must[*pb.CounterAddResponse](t)(c.Add(r.as("idempotency-key", "k2"), &pb.CounterAddRequest{Name: "n", Amount: proto.Uint64(5)})); v.Value != 10 {
		t.Errorf("another key counted %d", v.Value)
	}
	_, err := c.Add(once, &pb.CounterAddRequest{Name: "n", Amount: proto.Uint64(6)})
	if f := wantCode(t, err, codes.Aborted); f.Kind != "conflict" || !f.NotDone {
		t.Errorf("the key of another request: %v", err)
	}
	l := r.locks()
	a := must[*pb.LockResponse](t)(l.Lock(once, &pb.LockRequest{Name: "x"}))
	b := must[*pb.LockResponse](t)(l.Lock(once, &pb.LockRequest{Name: "x"}))
	if a.FencingToken != b.FencingToken || a.LeaseId != b.LeaseId {
		t.Errorf("the same call was granted twice: %v, %v", a, b)
	}
	_, err = l.Lock(once, &pb.LockRequest{Name: "y"})
	wantCode(t, err, codes.Aborted)
	r.holders("y", 0)
	must[*pb.UnlockResponse](t)(l.Unlock(once, &pb.UnlockRequest{Key: a.Key}))
	_, err = l.Lock(once, &pb.LockRequest{Name: "x"})
	wantCode(t, err, codes.FailedPrecondition)
	r.holders("x", 0)
}

// The key of a call that said another owner or time to live is that of another request: nobody
// else is given the hold that it took.
func TestIdempotencyKey_OtherTerms(t *testing.T) {
	r := serve(t)
	once, l := r.as("idempotency-key", "nightly"), r.locks()
	first := &pb.LockRequest{Name: "x", Owner: "w1", TtlMs: 20_000}
	a := must[*pb.LockResponse](t)(l.Lock(once, first))
	for _, other := range []*pb.LockRequest{{Name: "x", Owner: "w2", TtlMs: 20_000}, {Name: "x", TtlMs: 20_000}, {Name: "x", Owner: "w1", TtlMs: 60_000}} {
		_, err := l.Lock(once, other)
		if f := wantCode(t, err, codes.Aborted); f.Kind != "conflict" || !f.NotDone {
			t.Errorf("%v with the key of %v: %v", other, first, err)
		}
	}
	if b := must[*pb.LockResponse](t)(l.Lock(once, first)); b.FencingToken != a.FencingToken {
		t.Errorf("the same call got %v, then %v", a, b)
	}
}

// A caller that comes back with its key keeps its place in the queue.
func TestIdempotencyKeyKeepsThePlace(t *testing.T) {
	r := serve(t)
	l := r.locks()
	a := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x"}))
	ctx, cancel := context.WithCancel(r.as("idempotency-key", "k"))
	ended := make(chan error, 1)
	go func() {
		_, err := l.Lock(ctx, &pb.LockRequest{Name: "x", Owner: "first"})
		ended <- err
	}()
	r.waiters("x", 1)
	cancel()
	<-ended
	got := make(chan *pb.LockResponse, 1)
	go func() {
		x, err := l.Lock(r.ctx, &pb.LockRequest{Name: "x", Owner: "second"})
		if err != nil && r.ctx.Err() == nil {
			t.Error(err)
		}
		got <- x
	}()
	r.waiters("x", 2)
	must[*pb.UnlockResponse](t)(l.Unlock(r.ctx, &pb.UnlockRequest{Key: a.Key}))
	b := must[*pb.LockResponse](t)(l.Lock(r.as("idempotency-key", "k"), &pb.LockRequest{Name: "x", Owner: "first"}))
	if !b.Acquired || b.FencingToken <= a.FencingToken {
		t.Fatalf("got %v", b)
	}
	must[*pb.UnlockResponse](t)(l.Unlock(r.ctx, &pb.UnlockRequest{Key: b.Key}))
	if c := <-got; c.GetFencingToken() <= b.FencingToken {
		t.Errorf("the second got %v", c)
	}
}

// A key whose memory has ended is not taken for a new call, and nobody is told that the
// first one was not done.
func TestIdempotencyKey_Forgotten(t *testing.T) {
	r := serve(t)
	l := r.locks()
	once := r.as("idempotency-key", "k")
	a := must[*pb.LockResponse](t)(l.Lock(once, &pb.LockRequest{Name: "x"}))
	must[*pb.UnlockResponse](t)(l.Unlock(once, &pb.UnlockRequest{Key: a.Key}))
	_, err := l.Lock(once, &pb.LockRequest{Name: "x"})
	if f := wantCode(t, err, codes.FailedPrecondition); f.NotDone || !strings.Contains(err.Error(), "idempotency key") {
		t.Errorf("a key whose lease has ended: %v, not done: %v", err, f.NotDone)
	}
	r.holders("x", 0)
	// The same of a call that hangs on no lease, whose key is kept in a session that has ended.
	c := pb.NewCounterServiceClient(r.conn)
	must[*pb.CounterAddResponse](t)(c.Add(once, &pb.CounterAddRequest{Name: "n"}))
	r.endKey("k")
	_, err = c.Add(once, &pb.CounterAddRequest{Name: "n"})
	if f := wantCode(t, err, codes.FailedPrecondition); f.NotDone || !strings.Contains(err.Error(), "idempotency key") {
		t.Errorf("a key whose session has ended: %v, not done: %v", err, f.NotDone)
	}
}

// endKey ends the session of an idempotency key, as time does.
func (r *rig) endKey(key string) {
	r.t.Helper()
	sum := sha256.Sum256([]byte("holdfast key default\x00" + key))
	end := &core.Frame{Session: session.Reserve(core.SessionID(sum[:16])), Mark: 1, Commands: []core.Command{{Op: core.OpEnd, Namespace: "default"}}}
	if reply, err := r.node.Submit(r.ctx, end); err != nil || reply.Results[0].Code != core.CodeOK {
		r.t.Fatal(reply, err)
	}
}

// A repeated call gets the first answer also if that was that somebody else has it, or that
// something was passed.
func TestIdempotencyKey_FirstAnswer(t *testing.T) {
	r := serve(t)
	l := r.locks()
	held := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x"}))
	late := r.as("idempotency-key", "late")
	if a := must[*pb.LockResponse](t)(l.Lock(late, &pb.LockRequest{Name: "x", TimeoutMs: proto.Int64(10)})); a.Acquired {
		t.Fatal("it was held")
	}
	must[*pb.UnlockResponse](t)(l.Unlock(r.ctx, &pb.UnlockRequest{Key: held.Key}))
	if a := must[*pb.LockResponse](t)(l.Lock(late, &pb.LockRequest{Name: "x", TimeoutMs: proto.Int64(10)})); a.Acquired {
		t.Error("the second answer is another")
	}
	latches, barriers := pb.NewLatchServiceClient(r.conn), pb.NewBarrierServiceClient(r.conn)
	must[*pb.CountDownResponse](t)(latches.CountDown(r.ctx, &pb.CountDownRequest{Name: "latch", By: 1, Count: 1}))
	for range 2 {
		must[*pb.LatchWaitResponse](t)(latches.Wait(r.as("idempotency-key", "latch"), &pb.LatchWaitRequest{Name: "latch"}))
		must[*pb.ArriveResponse](t)(barriers.Arrive(r.as("idempotency-key", "barrier"), &pb.ArriveRequest{Name: "barrier", Parties: 1}))
	}
}

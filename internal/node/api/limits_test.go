package api_test

import (
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/limit"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/remote"
	"github.com/holdfast-io/holdfast/server"
)

// limited is a node with small limits.
func limited(t *testing.T, l server.Limits, cfg api.Config) *rig {
	t.Helper()
	node, err := server.New(server.Config{Dir: t.TempDir(), Tick: 20 * time.Millisecond, Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	return serveNode(t, node, cfg)
}

// exhausted expects a refusal that names the flag which raises the limit.
func exhausted(t *testing.T, err error, flag string) *pb.Failure {
	t.Helper()
	f := wantCode(t, err, codes.ResourceExhausted)
	if !strings.Contains(f.GetCause(), flag) || !f.GetNotDone() || f.GetKind() != "exhausted" {
		t.Errorf("%v does not name %s", err, flag)
	}
	return f
}

func (r *rig) lease() int64 {
	r.t.Helper()
	return must[*pb.LeaseGrantResponse](r.t)(r.locks().LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 60})).Id
}

// Where there is no room for another session, one is revoked all the same: its holder is told
// first, or what it has is free at once, in its own namespace.
func TestQuotaOfSessions_Revoke(t *testing.T) {
	r := limited(t, server.Limits{Sessions: 2}, api.Config{})
	admin := pb.NewAdminServiceClient(r.conn)
	other := metadata.AppendToOutgoingContext(r.ctx, "holdfast-namespace", "other")
	for _, name := range []string{"a", "b"} {
		must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: name}))
		must[*pb.LockResponse](t)(r.locks().Lock(other, &pb.LockRequest{Name: name})) // there is no room either
	}
	for _, name := range []string{"a", "b"} {
		now := name == "b"
		found := must[*pb.InspectResponse](t)(pb.NewInspectServiceClient(r.conn).Inspect(r.ctx, &pb.InspectRequest{Name: name}))
		id := found.GetResource().GetHolders()[0].GetSession()
		_, err := admin.RevokeSession(other, &pb.RevokeSessionRequest{Session: id, Now: true})
		wantCode(t, err, codes.NotFound)
		out := must[*pb.RevokeSessionResponse](t)(admin.RevokeSession(r.ctx, &pb.RevokeSessionRequest{Session: id, Now: now}))
		if until := out.GetUntilMs(); (until == 0) != now {
			t.Errorf("now %v: what it holds is free in %d ms", now, until)
		}
	}
	r.lease() // there is room again
	_, err := admin.RevokeSession(r.ctx, &pb.RevokeSessionRequest{Session: make([]byte, 16)})
	wantCode(t, err, codes.NotFound)
}

// A session that has used every number of its window is revoked where there is no room for another, and
// one that was revoked is so at once when that is asked for: nothing that it was answered before is
// taken for the answer.
func TestQuotaOfSessions_RevokeAgain(t *testing.T) {
	r := limited(t, server.Limits{Sessions: 1}, api.Config{})
	admin, id := pb.NewAdminServiceClient(r.conn), core.SessionID{1}
	holders := func() []*pb.Claim {
		return must[*pb.InspectResponse](t)(pb.NewInspectServiceClient(r.conn).Inspect(r.ctx, &pb.InspectRequest{Name: "a"})).GetResource().GetHolders()
	}
	holders() // waits until the node leads
	reply, err := r.node.Submit(r.ctx, &core.Frame{Session: id, Mark: 1, Commands: []core.Command{
		{Op: core.OpOpen, TTL: int64(time.Hour), Window: 1},
		{Op: core.OpAcquire, Seq: 1, Wants: []core.Want{{Name: "a", Kind: core.Mutex}}},
	}})
	if err != nil || reply.Results[1].Code != core.CodeOK {
		t.Fatal(reply.Results, err)
	}
	for _, now := range []bool{false, false, true} {
		out := must[*pb.RevokeSessionResponse](t)(admin.RevokeSession(r.ctx, &pb.RevokeSessionRequest{Session: id[:], Now: now}))
		if until := out.GetUntilMs(); (until == 0) != now {
			t.Errorf("now %v: what it holds is free in %d ms", now, until)
		}
		if by := holders(); (len(by) == 0) != now || !now && !by[0].GetRevoked() {
			t.Errorf("now %v: it is held by %v", now, by)
		}
	}
}

func TestQuotaOfSessions(t *testing.T) {
	r := limited(t, server.Limits{Sessions: 2}, api.Config{})
	one := r.lease()
	r.lease()
	_, err := r.locks().LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 60})
	exhausted(t, err, "--max-sessions")
	_, err = r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x"}) // on a lease of its own
	exhausted(t, err, "--max-sessions")
	r.want(429, "POST", "/v1/leases/:open", "")
	must[*pb.KeepResponse](t)(pb.NewSessionServiceClient(r.conn).Keep(r.ctx, &pb.KeepRequest{LeaseId: one})) // is there
	must[*pb.LeaseRevokeResponse](t)(r.locks().LeaseRevoke(r.ctx, &pb.LeaseRevokeRequest{Id: one}))
	r.lease()
	s, err := remote.Open(remote.Config{Endpoints: []string{r.addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Mutex("x").Acquire(r.ctx); !errors.Is(err, holdfast.ErrExhausted) || !strings.Contains(err.Error(), "--max-sessions") {
		t.Errorf("over a stream: %v", err)
	}
}

func TestQuotaOfNamesAndHolds(t *testing.T) {
	r := limited(t, server.Limits{Names: 2, Holds: 3, Waiters: 1}, api.Config{})
	one, two := r.lease(), r.lease()
	lock := func(name string, lease int64) error {
		_, err := r.locks().Lock(r.ctx, &pb.LockRequest{Name: name, LeaseId: lease})
		return err
	}
	read := func(name string) error {
		_, err := pb.NewRWLockServiceClient(r.conn).AcquireRead(r.ctx, &pb.AcquireReadRequest{Name: name, Terms: &pb.Terms{LeaseId: one}})
		return err
	}
	for i, err := range []error{lock("a", one), read("b"), read("b")} {
		if err != nil {
			t.Fatalf("hold %d: %v", i, err)
		}
	}
	exhausted(t, lock("c", two), "--max-names")
	_, err := pb.NewCounterServiceClient(r.conn).Add(r.ctx, &pb.CounterAddRequest{Name: "n", Amount: proto.Uint64(1)})
	exhausted(t, err, "--max-names")
	exhausted(t, read("b"), "--max-holds")
	waiting := make(chan error, 1)
	go func() { waiting <- lock("a", two) }()
	r.waiters("a", 1)
	exhausted(t, lock("a", r.lease()), "--max-waiters")
	must[*pb.LeaseRevokeResponse](t)(r.locks().LeaseRevoke(r.ctx, &pb.LeaseRevokeRequest{Id: one}))
	if err := <-waiting; err != nil {
		t.Errorf("who waited within the limit: %v", err)
	}
	if err := lock("c", two); err != nil {
		t.Errorf("after all was given back: %v", err)
	}
}

// A full quota of limiters' keys refuses new keys, and nothing else.
func TestQuotaOfLimitKeys(t *testing.T) {
	r := limited(t, server.Limits{LimitKeys: 2}, api.Config{})
	s, err := remote.Open(remote.Config{Endpoints: []string{r.addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := s.Limiter("l", limit.Rate{Count: 1, Per: time.Hour})
	for _, key := range []string{"a", "b"} {
		if d, err := l.Allow(r.ctx, key); err != nil || !d.Allowed {
			t.Fatalf("%s: %+v, %v", key, d, err)
		}
	}
	if _, err := l.Allow(r.ctx, "c"); !errors.Is(err, holdfast.ErrExhausted) || !strings.Contains(err.Error(), "--max-limit-keys") {
		t.Errorf("a third key: %v", err)
	}
	if d, err := l.Allow(r.ctx, "a"); err != nil || d.Allowed {
		t.Errorf("a key that is known: %+v, %v", d, err)
	}
	if n, err := s.Counter("n").Add(r.ctx, 1); n != 1 || err != nil {
		t.Errorf("a counter: %d, %v", n, err)
	}
	if err := l.Delete(r.ctx); err != nil {
		t.Fatal(err)
	}
	if d, err := l.Allow(r.ctx, "c"); err != nil || !d.Allowed {
		t.Errorf("after the limiter was deleted: %+v, %v", d, err)
	}
}

func TestQuotaOfKeysAndNamespaces(t *testing.T) {
	r := limited(t, server.Limits{Keys: 1, Namespaces: 2}, api.Config{})
	kv := pb.NewKVServiceClient(r.conn)
	must[*pb.PutResponse](t)(kv.Put(r.ctx, &pb.PutRequest{Key: "k"}))
	must[*pb.PutResponse](t)(kv.Put(r.ctx, &pb.PutRequest{Key: "k"}))
	_, err := kv.Put(r.ctx, &pb.PutRequest{Key: "l"})
	exhausted(t, err, "--max-keys")
	put := func(key string) *pb.Op { return &pb.Op{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: key}}} }
	_, err = kv.Txn(r.ctx, &pb.TxnRequest{Then: []*pb.Op{put("k"), put("l")}})
	exhausted(t, err, "--max-keys")
	if k := must[*pb.GetResponse](t)(kv.Get(r.ctx, &pb.GetRequest{Key: "k"})).Kv; k.GetVersion() != 2 {
		t.Errorf("a refused transaction has done its half: %v", k)
	}
	r.want(200, "POST", "/v1/counters/n:add", "", "Holdfast-Namespace", "second")
	out := r.want(429, "POST", "/v1/counters/n:add", "", "Holdfast-Namespace", "third")
	if !strings.Contains(out["error"].(string), "--max-namespaces") {
		t.Errorf("HTTP says %v", out)
	}
	r.want(200, "GET", "/v1/counters/n", "", "Holdfast-Namespace", "third") // looking makes none
	for _, ns := range []string{"second", "third"} {                        // nor does deleting
		if out := r.want(200, "DELETE", "/v1/kv/k", "", "Holdfast-Namespace", ns); out["deleted"] != nil && out["deleted"] != 0.0 {
			t.Errorf("in %s %v keys were deleted", ns, out["deleted"])
		}
		r.want(200, "DELETE", "/v1/kv/k", "", "Holdfast-Namespace", ns, "Idempotency-Key", "again")
		r.want(409, "DELETE", "/v1/kv/k", `{"expect_revision": 7}`, "Holdfast-Namespace", ns)
		r.want(404, "DELETE", "/v1/semaphores/s", "", "Holdfast-Namespace", ns)
	}
	r.want(200, "POST", "/v1/counters/n:add", "", "Holdfast-Namespace", "second")
}

// A node that has all the calls it takes refuses with a time to come back, in
// every language, but takes what gives back.
func TestTooManyCalls(t *testing.T) {
	r := serveNode(t, limited(t, server.Limits{}, api.Config{}).node, api.Config{Calls: 1})
	var trailer metadata.MD
	_, err := r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x"}, grpc.Trailer(&trailer))
	f := exhausted(t, err, "--max-calls")
	if f.RetryAfterMs != 200 || trailer.Get("grpc-retry-pushback-ms")[0] != "200" {
		t.Errorf("come back after %d ms, %v", f.RetryAfterMs, trailer)
	}
	_, err = r.locks().Unlock(r.ctx, &pb.UnlockRequest{Name: "x", FencingToken: 1})
	wantCode(t, err, codes.FailedPrecondition)
	_, err = pb.NewInspectServiceClient(r.conn).List(r.ctx, &pb.ListRequest{})
	if f := exhausted(t, err, "--max-calls"); f.RetryAfterMs != 1000 {
		t.Errorf("a list may come back after %d ms", f.RetryAfterMs)
	}
	for path, want := range map[string]struct {
		code  int
		after string
	}{
		"/v1/locks/x:acquire": {429, "1"}, "/v1/locks/x:release": {400, ""}, "/v1/leases/:open": {429, "1"},
		"/holdfast.v1.LockService/Lock": {429, "1"}, "/holdfast.v1.LockService/Unlock": {400, ""},
	} {
		res, err := r.web.Post("http://"+r.addr+path, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if after := res.Header.Get("Retry-After"); res.StatusCode != want.code || after != want.after {
			t.Errorf("%s: %d, come back after %q s, want %+v", path, res.StatusCode, after, want)
		}
	}
}

// So it is with calls that wait, streams and watches.
func TestTooManyWaits(t *testing.T) {
	r := limited(t, server.Limits{}, api.Config{Waits: 8})
	must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x"}))
	ended := make(chan error, 6)
	for range 6 {
		go func() {
			_, err := r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x"})
			ended <- err
		}()
	}
	r.waiters("x", 6)
	_, err := r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x"})
	exhausted(t, err, "--max-waits")
	r.waiters("x", 6)
	watch := must[grpc.ServerStreamingClient[pb.WatchResponse]](t)(pb.NewWatchServiceClient(r.conn).Watch(r.ctx, &pb.WatchRequest{}))
	_, err = watch.Recv()
	exhausted(t, err, "--max-waits")
	if code, err := r.status("/v1/watch"); code != http.StatusTooManyRequests {
		t.Errorf("a watch over HTTP: %d, %v", code, err)
	}
	keep := must[grpc.BidiStreamingClient[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]](t)(r.locks().LeaseKeepAlive(r.ctx))
	if err := keep.Send(&pb.LeaseKeepAliveRequest{Id: 5}); err != nil {
		t.Fatal(err)
	}
	must[*pb.LeaseKeepAliveResponse](t)(keep.Recv())
	_ = keep.CloseSend()
	r.stop()
	for range 6 {
		wantCode(t, <-ended, codes.Unavailable)
	}
}

func TestLimitsThatMakeNoSense(t *testing.T) {
	if _, err := server.New(server.Config{Dir: t.TempDir(), Limits: server.Limits{Keys: -1}}); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a limit of -1: %v", err)
	}
	node := limited(t, server.Limits{}, api.Config{}).node
	if err := api.Serve(t.Context(), listen(t, "127.0.0.1:0"), api.New(node), api.Config{Calls: -1}); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("-1 calls: %v", err)
	}
}

// A call whose request never comes is given up; a stream that is silent by right
// is not.
func TestRequestThatNeverComes(t *testing.T) {
	r := limited(t, server.Limits{}, api.Config{Peek: 100 * time.Millisecond})
	quiet := must[grpc.BidiStreamingClient[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]](t)(r.locks().LeaseKeepAlive(r.ctx))
	watch := must[grpc.ServerStreamingClient[pb.WatchResponse]](t)(pb.NewWatchServiceClient(r.conn).Watch(r.ctx, &pb.WatchRequest{}))
	for range 20 {
		for _, method := range []string{
			"/holdfast.v1.LockService/Lock", "/holdfast.v1.WatchService/Watch", "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
		} {
			s, err := r.conn.NewStream(r.ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.RecvMsg(&pb.LockResponse{}); err == nil || r.ctx.Err() != nil {
				t.Fatalf("%s is answered: %v", method, err)
			}
		}
	}
	if err := quiet.Send(&pb.LeaseKeepAliveRequest{Id: 5}); err != nil {
		t.Fatal(err)
	}
	must[*pb.LeaseKeepAliveResponse](t)(quiet.Recv())
	must[*pb.WatchResponse](t)(watch.Recv())
	must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x"}))
	must[*pb.WatchResponse](t)(watch.Recv())
	_ = quiet.CloseSend()
}

package api_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/node/api"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// A lease that is in use is nobody else's to grant, by whatever call: of many callers
// that want the same number one gets it. Its renewal, and the number itself once it has
// ended, are another matter.
func TestLease_InUse(t *testing.T) {
	r := serve(t)
	var got atomic.Int32
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			var err error
			switch i % 3 {
			case 0:
				_, err = r.locks().LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 60, Id: 5})
			case 1:
				_, err = pb.NewSessionServiceClient(r.conn).Open(r.ctx, &pb.OpenRequest{LeaseId: 5})
			default:
				if code, _ := r.do("POST", "/v1/leases/5:open", ""); code == 409 {
					return
				}
			}
			if err == nil {
				got.Add(1)
			} else if f := wantFailure(err); status.Code(err) != codes.AlreadyExists || !f.NotDone || !strings.Contains(f.Cause, "lease 5") {
				t.Errorf("refused with %v", err)
			}
		})
	}
	all.Wait()
	if got.Load() != 1 {
		t.Errorf("%d of 30 got the lease", got.Load())
	}
	must[*pb.KeepResponse](t)(pb.NewSessionServiceClient(r.conn).Keep(r.ctx, &pb.KeepRequest{LeaseId: 5}))
	held := must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: 5}))
	_, err := r.locks().LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 60, Id: 5})
	wantCode(t, err, codes.AlreadyExists)
	r.holders("x", 1)
	must[*pb.UnlockResponse](t)(r.locks().Unlock(r.ctx, &pb.UnlockRequest{Key: held.Key}))
}

func wantFailure(err error) *pb.Failure {
	for _, d := range status.Convert(err).Details() {
		if f, ok := d.(*pb.Failure); ok {
			return f
		}
	}
	return &pb.Failure{}
}

// The same call again, with its idempotency key, gets the same lease; another's key,
// or another request, does not.
func TestLease_SameCallAgain(t *testing.T) {
	r := serve(t)
	grant := func(key string, in *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
		return r.locks().LeaseGrant(r.as("idempotency-key", key), in)
	}
	for _, id := range []int64{0, 5} {
		in := &pb.LeaseGrantRequest{Ttl: 60, Id: id, Owner: "w1"}
		first := must[*pb.LeaseGrantResponse](t)(grant("k", in))
		if again := must[*pb.LeaseGrantResponse](t)(grant("k", in)); again.Id != first.Id || string(again.Session) != string(first.Session) {
			t.Errorf("lease %v came again as %v", first, again)
		}
		_, err := grant("other", &pb.LeaseGrantRequest{Ttl: 60, Id: first.Id, Owner: "w1"})
		wantCode(t, err, codes.AlreadyExists)
	}
	_, err := grant("k", &pb.LeaseGrantRequest{Ttl: 60, Id: 5, Owner: "w2"})
	wantCode(t, err, codes.AlreadyExists)
	_, err = grant("k", &pb.LeaseGrantRequest{Ttl: 90})
	if f := wantCode(t, err, codes.Aborted); f.Kind != "conflict" {
		t.Errorf("the key of another request is refused with %v", f)
	}
	open := func() error {
		_, err := pb.NewSessionServiceClient(r.conn).Open(r.as("idempotency-key", "m"), &pb.OpenRequest{LeaseId: 9, Meta: "mine"})
		return err
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, open(), codes.AlreadyExists) // metadata of its own leaves no room for the print
}

// An owner that no terminal could show as it is, is refused in every dialect, as the library does.
func TestOwner_ControlCharacters(t *testing.T) {
	r := serve(t)
	for path, more := range map[string]string{"locks/x:acquire": "", "semaphores/x:acquire": `"limit":1,`, "elections/x:campaign": "", "leases/5:open": ""} {
		for _, owner := range []string{`a\u001b[31mb\nhint: all is well`, `\u0000`, strings.Repeat("x", 600)} {
			out := r.want(400, "POST", "/v1/"+path, `{`+more+`"holder_id":"`+owner+`"}`)
			if !strings.Contains(fmt.Sprint(out["error"]), "owner: ") {
				t.Errorf("%s with %.20q: %v", path, owner, out)
			}
		}
	}
}

// Whoever finds a lock taken is told by whom: by the owner that the call named, else
// by that of its lease, else by the lease.
func TestLease_HoldersAreNamed(t *testing.T) {
	r := serve(t)
	l := r.locks()
	named := must[*pb.LeaseGrantResponse](t)(l.LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 60, Owner: "batch"}))
	must[*pb.LeaseGrantResponse](t)(l.LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 60, Id: 7}))
	r.want(200, "POST", "/v1/leases/8:open", `{"holder_id":"shell"}`)
	for name, c := range map[string]struct {
		body, owner string
	}{
		"a": {fmt.Sprintf(`{"lease_id":%d,"holder_id":"w1"}`, named.Id), "w1"},
		"b": {fmt.Sprintf(`{"lease_id":%d}`, named.Id), "batch"},
		"c": {`{"lease_id":7}`, "lease 7"},
		"d": {`{"lease_id":8}`, "shell"},
		"e": {`{"lease_id":8,"holder_id":"w2"}`, "w2"},
	} {
		r.want(200, "POST", "/v1/locks/"+name+":acquire", c.body)
		out := r.want(409, "POST", "/v1/locks/"+name+":acquire", `{"timeout_ms":0}`)
		if out["holder"] != c.owner || !strings.Contains(out["error"].(string), "held by "+c.owner) {
			t.Errorf("%s is refused with %v, want %s", name, out, c.owner)
		}
		late := r.want(504, "POST", "/v1/locks/"+name+":acquire", `{"timeout_ms":1}`)
		if late["holder"] != c.owner {
			t.Errorf("%s is refused with %v after a wait, want %s", name, late, c.owner)
		}
	}
	rw := pb.NewRWLockServiceClient(r.conn)
	must[*pb.AcquireReadResponse](t)(rw.AcquireRead(r.ctx, &pb.AcquireReadRequest{Name: "rw", Terms: &pb.Terms{LeaseId: 7, Owner: "reader"}}))
	_, err := rw.AcquireWrite(r.ctx, &pb.AcquireWriteRequest{Name: "rw", Terms: &pb.Terms{TimeoutMs: new(int64)}})
	if f := wantCode(t, err, codes.Aborted); len(f.Holders) != 1 || f.Holders[0].Owner != "reader" {
		t.Errorf("refused with %v", f)
	}
}

// A lease can be looked up by its number and by the session that its grant answers
// with.
func TestLease_IsShown(t *testing.T) {
	r := serve(t)
	g := must[*pb.LeaseGrantResponse](t)(r.locks().LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 60, Id: 7, Owner: "w1"}))
	must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: 7}))
	must[*pb.PutResponse](t)(pb.NewKVServiceClient(r.conn).Put(r.ctx, &pb.PutRequest{Key: "k", LeaseId: 7}))
	inspect := pb.NewInspectServiceClient(r.conn)
	for _, in := range []*pb.GetSessionRequest{{Session: g.Session}, {LeaseId: 7}} {
		s := must[*pb.GetSessionResponse](t)(inspect.GetSession(r.ctx, in))
		if s.LeaseId != 7 || string(s.Session) != string(g.Session) || s.Owner != "w1" || s.TtlMs != 60_000 || len(s.Names) != 1 || len(s.Keys) != 1 {
			t.Errorf("session %v", s)
		}
	}
	for code, in := range map[codes.Code]*pb.GetSessionRequest{
		codes.InvalidArgument: {Session: g.Session, LeaseId: 7}, codes.NotFound: {LeaseId: 8},
	} {
		_, err := inspect.GetSession(r.ctx, in)
		wantCode(t, err, code)
	}
	_, err := inspect.GetSession(r.as("holdfast-namespace", "other"), &pb.GetSessionRequest{LeaseId: 7})
	wantCode(t, err, codes.NotFound)
	out := r.want(200, "GET", "/v1/leases/7", "")
	if num(out["lease_id"]) != 7 || out["holder_id"] != "w1" || num(out["ttl_ms"]) > 60_000 || fmt.Sprint(out["names"], out["keys"], out["waits"]) != "[x] [k] []" {
		t.Errorf("shown as %v", out)
	}
	r.want(404, "GET", "/v1/leases/8", "")
}

// A lease can be kept alive over a stream to any node.
func TestLease_KeepAliveAtFollower(t *testing.T) {
	rigs := trio(t)
	r := rigs[(leader(t, rigs)+1)%3]
	must[*pb.LeaseGrantResponse](t)(r.locks().LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 60, Id: 5}))
	s := must[pb.LockService_LeaseKeepAliveClient](t)(r.locks().LeaseKeepAlive(r.as("holdfast-namespace", "default")))
	for _, id := range []int64{5, 6, 5} {
		if err := s.Send(&pb.LeaseKeepAliveRequest{Id: id}); err != nil {
			t.Fatal(err)
		}
		if k := must[*pb.LeaseKeepAliveResponse](t)(s.Recv()); k.Id != id || (k.Ttl >= 58) != (id == 5) {
			t.Errorf("kept %v", k)
		}
	}
	if err := s.Send(&pb.LeaseKeepAliveRequest{Id: -1}); err != nil {
		t.Fatal(err)
	}
	_, err := s.Recv()
	wantCode(t, err, codes.InvalidArgument)
	other := must[pb.LockService_LeaseKeepAliveClient](t)(r.locks().LeaseKeepAlive(r.as("holdfast-namespace", "other")))
	if err := other.Send(&pb.LeaseKeepAliveRequest{Id: 5}); err != nil {
		t.Fatal(err)
	}
	if k := must[*pb.LeaseKeepAliveResponse](t)(other.Recv()); k.Ttl != 0 {
		t.Errorf("a lease of another namespace is kept: %v", k)
	}
}

// The number of a lease that has ended is told apart from a hold that was lost.
func TestLease_NumberThatHasEnded(t *testing.T) {
	r := serve(t)
	r.want(200, "POST", "/v1/leases/41:open", "{}")
	r.want(200, "DELETE", "/v1/leases/41", "")
	out := r.want(409, "POST", "/v1/leases/41:open", "{}")
	if text := fmt.Sprint(out["error"]); out["kind"] == "lost" || out["not_done"] != true || !strings.Contains(text, "lease 41 has ended") || !strings.Contains(text, "choose another") {
		t.Errorf("the number of a lease that has ended is refused with %v", out)
	}
}

// A lease with less than a second is not told to be gone by a call that tells whole seconds: it is kept for one.
func TestKeepAliveOfLessThanASecond(t *testing.T) {
	node, err := server.New(server.Config{Dir: t.TempDir(), Tick: 20 * time.Millisecond, MinTTL: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	r := serveNode(t, node, api.Config{})
	sessions := pb.NewSessionServiceClient(r.conn)
	for ms, want := range map[int64]int64{900: 1, 1999: 1, 2000: 2, 999: 1} {
		opened := must[*pb.OpenResponse](t)(sessions.Open(r.ctx, &pb.OpenRequest{TtlMs: ms, Policy: pb.ReclaimPolicy_RECLAIM_POLICY_NEVER})) // a slow test may find it stale
		s := must[grpc.BidiStreamingClient[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]](t)(r.locks().LeaseKeepAlive(r.ctx))
		if err := s.Send(&pb.LeaseKeepAliveRequest{Id: opened.LeaseId}); err != nil {
			t.Fatal(err)
		}
		if kept := must[*pb.LeaseKeepAliveResponse](t)(s.Recv()); kept.Ttl != want {
			t.Errorf("a lease of %d ms is kept for %d s", ms, kept.Ttl)
		}
		_ = s.CloseSend()
	}
}

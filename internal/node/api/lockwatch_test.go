package api_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/node/api"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// The key of a hold is deleted once, when the hold is over: not when another decides
// its end, but when its holder gives it back; or at once, if that is the decision.
func TestLockWatch_Revoked(t *testing.T) {
	r := serve(t)
	l, admin := r.locks(), pb.NewAdminServiceClient(r.conn)
	w := must[pb.LockService_WatchClient](t)(l.Watch(r.ctx))
	if err := w.Send(&pb.LockWatchRequest{Key: "x/", Prefix: true}); err != nil {
		t.Fatal(err)
	}
	must[*pb.LockWatchResponse](t)(w.Recv())
	must[*pb.LeaseGrantResponse](t)(l.LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 60, Id: 255}))
	a := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: 255}))
	forced := must[*pb.ForceReleaseResponse](t)(admin.ForceRelease(r.ctx, &pb.ForceReleaseRequest{Name: "x", Token: uint64(a.FencingToken)}))
	if forced.UntilMs == 0 {
		t.Fatal("the name is free before its holder knows")
	}
	must[*pb.UnlockResponse](t)(l.Unlock(r.ctx, &pb.UnlockRequest{Key: a.Key}))
	b := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: 255}))
	must[*pb.ForceReleaseResponse](t)(admin.ForceRelease(r.ctx, &pb.ForceReleaseRequest{Name: "x", Token: uint64(b.FencingToken), Now: true}))
	must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: 255}))
	var events []*pb.LockEvent
	for len(events) < 5 {
		events = append(events, must[*pb.LockWatchResponse](t)(w.Recv()).Events...)
	}
	put, del := pb.LockEvent_TYPE_PUT, pb.LockEvent_TYPE_DELETE
	for i, want := range []pb.LockEvent_Type{put, del, put, del, put} {
		if events[i].Type != want {
			t.Errorf("event %d: %v, want %v", i, events[i], want)
		}
	}
	if events[1].Kv.ModRevision <= forced.Header.Revision {
		t.Errorf("deleted at %d, with the decision at %d", events[1].Kv.ModRevision, forced.Header.Revision)
	}
}

// lockWatch begins a stream of watches.
func (r *rig) lockWatch(requests ...*pb.LockWatchRequest) pb.LockService_WatchClient {
	r.t.Helper()
	w := must[pb.LockService_WatchClient](r.t)(r.locks().Watch(r.ctx))
	for _, in := range requests {
		if err := w.Send(in); err != nil {
			r.t.Fatal(err)
		}
		if first := must[*pb.LockWatchResponse](r.t)(w.Recv()); first.WatchId != in.WatchId || first.Canceled {
			r.t.Fatalf("a watch begins with %v", first)
		}
	}
	return w
}

// events reads so many.
func (r *rig) events(w pb.LockService_WatchClient, n int) (list []*pb.LockEvent) {
	r.t.Helper()
	for len(list) < n {
		list = append(list, must[*pb.LockWatchResponse](r.t)(w.Recv()).Events...)
	}
	return list
}

// One watch of a stream can be ended: it says so after its last event, the others go
// on, and its place is free again.
func TestLockWatch_Cancel(t *testing.T) {
	r := serve(t)
	kv := pb.NewKVServiceClient(r.conn)
	put := func(key string) { must[*pb.PutResponse](t)(kv.Put(r.ctx, &pb.PutRequest{Key: key})) }
	w := r.lockWatch(&pb.LockWatchRequest{Key: "a", WatchId: 1}, &pb.LockWatchRequest{Key: "b", WatchId: 2})
	end := func(id int64) *pb.LockWatchResponse {
		t.Helper()
		if err := w.Send(&pb.LockWatchRequest{WatchId: id, Cancel: true}); err != nil {
			t.Fatal(err)
		}
		return must[*pb.LockWatchResponse](t)(w.Recv())
	}
	put("a")
	if e := must[*pb.LockWatchResponse](t)(w.Recv()); e.WatchId != 1 || len(e.Events) != 1 {
		t.Errorf("got %v", e)
	}
	for range 2 { // the second finds none: the caller is not left waiting
		if last := end(1); last.WatchId != 1 || !last.Canceled || len(last.Events) > 0 || last.Reason != "" {
			t.Errorf("ended with %v", last)
		}
	}
	put("a")
	put("b")
	if e := must[*pb.LockWatchResponse](t)(w.Recv()); e.WatchId != 2 || len(e.Events) != 1 {
		t.Errorf("the other watch got %v", e)
	}
	for i := range 300 { // more than may be at the same time
		id := int64(10 + i)
		if err := w.Send(&pb.LockWatchRequest{Key: "c", WatchId: id}); err != nil {
			t.Fatal(err)
		}
		if first := must[*pb.LockWatchResponse](t)(w.Recv()); first.Canceled || first.WatchId != id {
			t.Fatalf("watch %d begins with %v", id, first)
		}
		if last := end(id); !last.Canceled {
			t.Fatalf("watch %d ends with %v", id, last)
		}
	}
	if err := w.Send(&pb.LockWatchRequest{WatchId: 2, Cancel: true, Key: "b"}); err != nil {
		t.Fatal(err)
	}
	_, err := w.Recv()
	wantCode(t, err, codes.InvalidArgument)
}

// A watch beyond what a stream may have is refused by itself.
func TestLockWatch_TooMany(t *testing.T) {
	r := serve(t)
	w := r.lockWatch()
	for i := range int64(129) {
		if err := w.Send(&pb.LockWatchRequest{Key: "k", WatchId: i}); err != nil {
			t.Fatal(err)
		}
	}
	refused := 0
	for range 129 {
		if first := must[*pb.LockWatchResponse](t)(w.Recv()); first.Canceled {
			refused++
			if !strings.Contains(first.Reason, "128 watches") {
				t.Errorf("refused with %v", first)
			}
		}
	}
	if refused != 1 {
		t.Errorf("%d watches were refused", refused)
	}
	must[*pb.PutResponse](t)(pb.NewKVServiceClient(r.conn).Put(r.ctx, &pb.PutRequest{Key: "k"}))
	r.events(w, 128)
}

// A watch from now on begins at the leader, which knows what was answered before; another node
// says where that is. From a revision on every node serves it.
func TestLockWatch_FromNowAtAFollower(t *testing.T) {
	rigs := trio(t)
	at := leader(t, rigs)
	r := rigs[(at+1)%3]
	put := must[*pb.PutResponse](t)(pb.NewKVServiceClient(r.conn).Put(r.ctx, &pb.PutRequest{Key: "k"}))
	w := must[pb.LockService_WatchClient](t)(r.locks().Watch(r.ctx))
	if err := w.Send(&pb.LockWatchRequest{Key: "k", WatchId: 1}); err != nil {
		t.Fatal(err)
	}
	if first := must[*pb.LockWatchResponse](t)(w.Recv()); !first.Canceled || first.WatchId != 1 || !strings.Contains(first.Reason, rigs[at].addr) {
		t.Errorf("a watch from now on begins with %v, while %s leads", first, rigs[at].addr)
	}
	if err := w.Send(&pb.LockWatchRequest{Key: "k", WatchId: 2, StartRevision: put.Header.Revision}); err != nil {
		t.Fatal(err)
	}
	if first := must[*pb.LockWatchResponse](t)(w.Recv()); first.Canceled || first.WatchId != 2 {
		t.Errorf("a watch from revision %d begins with %v", put.Header.Revision, first)
	}
	if e := r.events(w, 1)[0]; e.Kv.Key != "k" {
		t.Errorf("it tells %v", e)
	}
}

// Each watch of a stream takes a place among the calls that stay, and gives it back.
func TestLockWatch_Places(t *testing.T) {
	r := serveWith(t, api.Config{Waits: 40})
	w := r.lockWatch()
	begun := 0
	for i := int64(0); ; i++ {
		if err := w.Send(&pb.LockWatchRequest{Key: "k", WatchId: i}); err != nil {
			t.Fatal(err)
		}
		first := must[*pb.LockWatchResponse](t)(w.Recv())
		if first.Canceled {
			if !strings.Contains(first.Reason, "--max-waits") {
				t.Errorf("refused with %v", first)
			}
			break
		}
		begun++
	}
	if begun == 0 || begun > 40 {
		t.Errorf("%d watches were let in", begun)
	}
	if err := w.Send(&pb.LockWatchRequest{WatchId: 0, Cancel: true}); err != nil {
		t.Fatal(err)
	}
	must[*pb.LockWatchResponse](t)(w.Recv())
	for { // the place is given back after the last response
		if err := w.Send(&pb.LockWatchRequest{Key: "k", WatchId: 100}); err != nil {
			t.Fatal(err)
		}
		if !must[*pb.LockWatchResponse](t)(w.Recv()).Canceled {
			return
		}
	}
}

// The end of a hold tells what it was, with metadata and version; what stays taken
// for min-hold after it is nobody's hold, and no key.
func TestLockWatch_HoldsEnd(t *testing.T) {
	r := serve(t)
	w := r.lockWatch(&pb.LockWatchRequest{Key: "e/", Prefix: true, PrevKv: true})
	e := pb.NewElectionServiceClient(r.conn)
	must[*pb.LeaseGrantResponse](t)(r.locks().LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 60, Id: 255}))
	hold := must[*pb.CampaignResponse](t)(e.Campaign(r.ctx, &pb.CampaignRequest{Name: "e", Value: []byte("one"), Terms: &pb.Terms{LeaseId: 255, MinHoldMs: 300}})).Hold
	said := must[*pb.ProclaimResponse](t)(e.Proclaim(r.ctx, &pb.ProclaimRequest{Name: "e", Token: hold.Token, Value: []byte("two")}))
	over := must[*pb.ReleaseResponse](t)(e.Resign(r.ctx, &pb.ReleaseRequest{Name: "e", Token: hold.Token}))
	next := must[*pb.CampaignResponse](t)(e.Campaign(r.ctx, &pb.CampaignRequest{Name: "e", Value: []byte("three"), Terms: &pb.Terms{LeaseId: 255}})).Hold
	must[*pb.LeaseRevokeResponse](t)(r.locks().LeaseRevoke(r.ctx, &pb.LeaseRevokeRequest{Id: 255}))
	token := int64(hold.Token)
	key := func(value string, mod, version int64) *pb.LockKeyValue {
		return &pb.LockKeyValue{Key: "e/ff", Value: []byte(value), CreateRevision: token, ModRevision: mod, Version: version, Lease: 255}
	}
	want := []*pb.LockEvent{
		{Kv: key("one", token, 1)},
		{Kv: key("two", said.Header.Revision, 2)},
		{Type: pb.LockEvent_TYPE_DELETE, Kv: key("two", over.Header.Revision, 2), PrevKv: key("two", said.Header.Revision, 2)},
	}
	token = int64(next.Token)
	want = append(want, &pb.LockEvent{Kv: key("three", token, 1)})
	got := r.events(w, 5)
	for i := range want {
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("event %d: %v, want %v", i, got[i], want[i])
		}
	}
	if last := got[4]; last.Type != pb.LockEvent_TYPE_DELETE || !proto.Equal(last.PrevKv, key("three", token, 1)) {
		t.Errorf("the revoked lease's hold ends with %v", last)
	}
	must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: "m", Metadata: []byte("why")}))
	m := r.lockWatch(&pb.LockWatchRequest{Key: "m/", Prefix: true, StartRevision: int64(r.revision + 1)})
	if e := r.events(m, 1)[0]; string(e.Kv.Value) != "why" || e.PrevKv != nil {
		t.Errorf("a lock with metadata is %v", e)
	}
}

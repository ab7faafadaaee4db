package api_test

import (
	"testing"

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

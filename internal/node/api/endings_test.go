package api_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// A wait on a lease that ends is answered, however the lease ends and whichever client ends
// it, and so is one whose lease a node has opened for it.
func TestWait_LeaseEnds(t *testing.T) {
	r := serve(t)
	l, admin := r.locks(), pb.NewAdminServiceClient(r.conn)
	must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x", TtlMs: 3_600_000}))
	wait := func(ctx context.Context, lease int64, ends func()) {
		t.Helper()
		ended := make(chan error, 1)
		go func() {
			_, err := l.Lock(ctx, &pb.LockRequest{Name: "x", LeaseId: lease})
			ended <- err
		}()
		r.waiters("x", 1)
		ends()
		select {
		case err := <-ended:
			if f := wantCode(t, err, codes.FailedPrecondition); f.Kind != "lost" || !strings.Contains(f.Cause, "lease") {
				t.Errorf("answered with %v", f)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the wait is not answered")
		}
		r.waiters("x", 0)
	}
	grant := func(id, ttl int64) []byte {
		t.Helper()
		return must[*pb.LeaseGrantResponse](t)(l.LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: ttl, Id: id})).Session
	}
	err := status.Error(codes.NotFound, "no lease")
	for id := int64(100); status.Code(err) == codes.NotFound; id++ { // until the call comes before its lease ends
		grant(id, 1)
		_, err = l.Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: id}) // nobody keeps it
	}
	if f := wantCode(t, err, codes.FailedPrecondition); f.Kind != "lost" || !strings.Contains(f.Cause, "lease") {
		t.Errorf("answered with %v", f)
	}
	r.waiters("x", 0)
	grant(6, 600)
	wait(r.ctx, 6, func() { must[*pb.LeaseRevokeResponse](t)(l.LeaseRevoke(r.ctx, &pb.LeaseRevokeRequest{Id: 6})) })
	grant(7, 600)
	wait(r.ctx, 7, func() { r.second().want(200, "DELETE", "/v1/leases/7", "") })
	session := grant(8, 600)
	wait(r.ctx, 8, func() {
		must[*pb.RevokeSessionResponse](t)(admin.RevokeSession(r.ctx, &pb.RevokeSessionRequest{Session: session, Now: true}))
	})
	wait(r.ctx, 0, func() {
		session := r.waiters("x", 1).Waiters[0].Session
		must[*pb.RevokeSessionResponse](t)(admin.RevokeSession(r.ctx, &pb.RevokeSessionRequest{Session: session}))
	})
}

// So it is with an upgrade, which waits for other readers, and over HTTP.
func TestWait_LeaseEndsUnderUpgrade(t *testing.T) {
	r := serve(t)
	rw := pb.NewRWLockServiceClient(r.conn)
	r.want(200, "POST", "/v1/leases/5:open", "")
	must[*pb.AcquireReadResponse](t)(rw.AcquireRead(r.ctx, &pb.AcquireReadRequest{Name: "x"}))
	mine := must[*pb.AcquireReadResponse](t)(rw.AcquireRead(r.ctx, &pb.AcquireReadRequest{Name: "x", Terms: &pb.Terms{LeaseId: 5}})).Hold
	ended := make(chan error, 1)
	go func() {
		_, err := rw.Upgrade(r.ctx, &pb.UpgradeRequest{Name: "x", Token: mine.Token})
		ended <- err
	}()
	r.waiters("x", 1)
	web := make(chan int, 1)
	go func() {
		code, _ := r.do("POST", "/v1/rwlocks/x:acquire", `{"mode":"write","lease_id":5}`)
		web <- code
	}()
	r.waiters("x", 2)
	r.want(200, "DELETE", "/v1/leases/5", "")
	wantCode(t, <-ended, codes.FailedPrecondition)
	if code := <-web; code != 410 {
		t.Errorf("over HTTP the wait is answered with %d", code)
	}
}

// Hundreds of waits of one lease end with it at once, beside other leases' waits,
// which go on.
func TestWait_LeaseEndsWithHundreds(t *testing.T) {
	r := serve(t)
	l := r.locks()
	held := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x", TtlMs: 3_600_000}))
	r.want(200, "POST", "/v1/leases/5:open", `{"ttl_ms":600000}`)
	const n = 500 // of a lease, within its window
	ended := make(chan error, 2*n)
	for i := range 2 * n {
		in := &pb.LockRequest{Name: "x", LeaseId: 5}
		if i%2 == 1 {
			in = &pb.LockRequest{Name: "x", TtlMs: 600_000}
		}
		go func() {
			_, err := l.Lock(r.ctx, in)
			ended <- err
		}()
	}
	r.waiters("x", 2*n)
	began := time.Now()
	r.want(200, "DELETE", "/v1/leases/5", "")
	for range n {
		wantCode(t, <-ended, codes.FailedPrecondition)
	}
	t.Logf("%d waits were answered in %s", n, time.Since(began))
	r.waiters("x", n)
	must[*pb.UnlockResponse](t)(l.Unlock(r.ctx, &pb.UnlockRequest{Key: held.Key}))
	if err := <-ended; err != nil {
		t.Errorf("a wait of another lease ended with %v", err)
	}
}

package api_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// The spans of leases, in milliseconds of fake time.
const (
	reclaimTTL   = 1000
	reclaimGrace = 5000
)

// hand is a caller of the plain services that has a lease: the way of LockService, of
// SessionService, or of REST.
type hand struct {
	open func(lease int64, policy pb.ReclaimPolicy, grace int64) error
	keep func(lease int64) error
	// take asks for a lock, for so many milliseconds; release gives it back.
	take    func(lease int64, name string, timeout int64) (uint64, error)
	release func(name string, lease int64, token uint64) error
}

func (r *rig) hands() map[string]*hand {
	sessions := pb.NewSessionServiceClient(r.conn)
	lock := func(lease int64, name string, timeout int64) (uint64, error) {
		if timeout == 0 {
			a, err := r.locks().TryLock(r.ctx, &pb.TryLockRequest{Name: name, LeaseId: lease})
			if err == nil && !a.Acquired {
				err = errors.New("it is held")
			}
			return uint64(a.GetFencingToken()), err
		}
		a, err := r.locks().Lock(r.ctx, &pb.LockRequest{Name: name, LeaseId: lease, TimeoutMs: &timeout})
		return uint64(a.GetFencingToken()), err
	}
	unlock := func(name string, lease int64, _ uint64) error {
		_, err := r.locks().Unlock(r.ctx, &pb.UnlockRequest{Key: fmt.Sprintf("%s/%x", name, lease)})
		return err
	}
	return map[string]*hand{
		"LeaseGrant": {take: lock, release: unlock, keep: r.keepByStream,
			open: func(lease int64, policy pb.ReclaimPolicy, grace int64) error {
				_, err := r.locks().LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Id: lease, Ttl: reclaimTTL / 1000, Policy: policy, GraceMs: grace})
				return err
			}},
		"Open": {take: lock, release: unlock,
			keep: func(lease int64) error {
				_, err := sessions.Keep(r.ctx, &pb.KeepRequest{LeaseId: lease})
				return err
			},
			open: func(lease int64, policy pb.ReclaimPolicy, grace int64) error {
				_, err := sessions.Open(r.ctx, &pb.OpenRequest{LeaseId: lease, TtlMs: reclaimTTL, Policy: policy, GraceMs: grace})
				return err
			}},
		"REST": r.restHand(),
	}
}

func (r *rig) keepByStream(lease int64) error {
	stream, err := r.locks().LeaseKeepAlive(r.ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{Id: lease}); err != nil {
		return err
	}
	_, err = stream.Recv()
	_ = stream.CloseSend()
	return err
}

func (r *rig) restHand() *hand {
	call := func(path, body string) (map[string]any, error) {
		code, out := r.do("POST", path, body)
		if code != 200 {
			return out, fmt.Errorf("%d: %v", code, out)
		}
		return out, nil
	}
	return &hand{
		open: func(lease int64, policy pb.ReclaimPolicy, grace int64) error {
			name := []string{"at-deadline", "on-next-acquire", "never"}[policy]
			_, err := call(fmt.Sprintf("/v1/leases/%d:open", lease), fmt.Sprintf(`{"ttl_ms":%d,"policy":%q,"grace_ms":%d}`, reclaimTTL, name, grace))
			return err
		},
		keep: func(lease int64) error {
			_, err := call(fmt.Sprintf("/v1/leases/%d:keep", lease), "{}")
			return err
		},
		take: func(lease int64, name string, timeout int64) (uint64, error) {
			out, err := call("/v1/locks/"+name+":acquire", fmt.Sprintf(`{"lease_id":%d,"timeout_ms":%d}`, lease, timeout))
			token, _ := out["token"].(float64)
			return uint64(token), err
		},
		release: func(name string, _ int64, token uint64) error {
			_, err := call("/v1/locks/"+name+":release", fmt.Sprintf(`{"token":%d}`, token))
			return err
		},
	}
}

// seen is a watch that is read step by step.
type seen struct {
	t      *testing.T
	stream grpc.ServerStreamingClient[pb.WatchResponse]
	rest   []*pb.Event
}

func (r *rig) see(name string) *seen {
	r.t.Helper()
	s := &seen{t: r.t, stream: must[grpc.ServerStreamingClient[pb.WatchResponse]](r.t)(pb.NewWatchServiceClient(r.conn).Watch(r.ctx, &pb.WatchRequest{Prefix: name, Exact: true}))}
	must[*pb.WatchResponse](r.t)(s.stream.Recv())
	return s
}

// next expects an event.
func (s *seen) next(what string, token uint64) {
	s.t.Helper()
	for len(s.rest) == 0 {
		s.rest = must[*pb.WatchResponse](s.t)(s.stream.Recv()).Events
	}
	e := s.rest[0]
	s.rest = s.rest[1:]
	if got := e.Kind + ":" + e.Verb; got != what || e.Token != token {
		s.t.Fatalf("the watch tells %s of token %d, want %s of %d", got, e.Token, what, token)
	}
}

// The transitions of internal/core/testdata/stale.txt by every plain door, as a watch
// tells them; the holder is merely silent. The seed: "Acquire+Held+stale → reclaim, emit
// LockReclaimed + LockAcquired", "Heartbeat → refresh last_heartbeat", "Tick+stale → emit
// LockStale warning".
func TestReclaim_Transitions(t *testing.T) {
	for _, door := range []string{"LeaseGrant", "Open", "REST"} {
		t.Run(door, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) { r.transitions(door) })
		})
	}
}

func (r *rig) transitions(door string) {
	t := r.t
	h, a, b := r.hands()[door], int64(110), int64(111)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	name := "main-" + door
	saw := r.see(name)
	ok(h.open(a, pb.ReclaimPolicy_RECLAIM_POLICY_ON_NEXT_ACQUIRE, reclaimGrace))
	r.want(200, "POST", fmt.Sprintf("/v1/leases/%d:open", b), `{"ttl_ms":600000}`)
	token, err := h.take(a, name, 0)
	ok(err)
	saw.next("lock:acquired", token)
	if _, err := h.take(b, name, 0); err == nil {
		t.Fatal("a lock that is held was granted to another")
	}
	saw.next("lock:denied", 0)
	ok(h.keep(a))
	saw.next("lock:stale", token) // it keeps silent until its deadline
	if _, err := h.take(b, name, 0); err == nil {
		t.Fatal("a stale lock was granted to another within the grace")
	}
	saw.next("lock:denied", 0)
	ok(h.keep(a))                 // revived
	saw.next("lock:stale", token) // and silent once more
	next, err := h.take(b, name, 60_000)
	ok(err)
	saw.next("lock:queued", 0)
	saw.next("lock:reclaimed", token)
	saw.next("lock:acquired", next)
	if err := h.release(name, a, token); err == nil || next <= token {
		t.Errorf("the late release of %d (then %d): %v", token, next, err)
	}
	ok(h.keep(a)) // the lease goes on with what is left of it: its names tell that the lock is gone
	if out := r.want(200, "GET", fmt.Sprintf("/v1/leases/%d", a), ""); fmt.Sprint(out["names"]) != "[]" {
		t.Errorf("after the lock was reclaimed its lease has %v", out)
	}
	if code, out := r.do("POST", "/v1/locks/"+name+":renew", fmt.Sprintf(`{"token":%d}`, token)); code == 200 {
		t.Errorf("the lock that another has is renewed: %v", out)
	}
	r.holders(name, 1)
	ok(h.release(name, b, next))
	saw.next("lock:released", next)
}

// With the policy never a stale lock stays its holder's until it is forced.
func TestReclaim_Never(t *testing.T) { inBubble(t, neverReclaimed) }

func neverReclaimed(t *testing.T, r *rig) {
	for i, door := range []string{"LeaseGrant", "Open", "REST"} {
		h, name, lease := r.hands()[door], "n-"+door, int64(10+i)
		saw := r.see(name)
		if err := h.open(lease, pb.ReclaimPolicy_RECLAIM_POLICY_NEVER, 0); err != nil {
			t.Fatal(err)
		}
		token, err := h.take(lease, name, 0)
		if err != nil {
			t.Fatal(err)
		}
		saw.next("lock:acquired", token)
		saw.next("lock:stale", token)
		if code, _ := r.do("POST", "/v1/locks/"+name+":acquire", `{"timeout_ms":50}`); code != 504 {
			t.Errorf("%s: a lock that is never reclaimed: status %d", door, code)
		}
		must[*pb.ForceReleaseResponse](t)(pb.NewAdminServiceClient(r.conn).ForceRelease(r.ctx, &pb.ForceReleaseRequest{Name: name, Token: token}))
		r.want(200, "POST", "/v1/locks/"+name+":acquire", `{"timeout_ms":10000}`)
	}
}

// A policy or a grace that makes no sense is refused before a lease is opened.
func TestReclaim_Refused(t *testing.T) {
	r := serve(t)
	day := (24 * time.Hour).Milliseconds()
	for _, tt := range []struct {
		policy pb.ReclaimPolicy
		grace  int64
		say    string
	}{
		{3, 0, "the policy 3 is unknown"}, {-1, 0, "the policy -1 is unknown"},
		{pb.ReclaimPolicy_RECLAIM_POLICY_AT_DEADLINE, 5, "without the policy on-next-acquire"},
		{pb.ReclaimPolicy_RECLAIM_POLICY_NEVER, 5, "without the policy on-next-acquire"},
		{pb.ReclaimPolicy_RECLAIM_POLICY_ON_NEXT_ACQUIRE, -1, "out of range"},
		{pb.ReclaimPolicy_RECLAIM_POLICY_ON_NEXT_ACQUIRE, day + 1, "out of range"},
	} {
		_, err1 := r.locks().LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Id: 9, Ttl: 60, Policy: tt.policy, GraceMs: tt.grace})
		_, err2 := pb.NewSessionServiceClient(r.conn).Open(r.ctx, &pb.OpenRequest{LeaseId: 9, Policy: tt.policy, GraceMs: tt.grace})
		for _, err := range []error{err1, err2} {
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), tt.say) {
				t.Errorf("%v: %v", tt, err)
			}
		}
	}
	for body, say := range map[string]string{
		`{"policy":"sometimes"}`:                            "give at-deadline, on-next-acquire or never",
		`{"policy":"Never"}`:                                "is unknown",
		`{"grace_ms":5}`:                                    "without the policy on-next-acquire",
		`{"policy":"on-next-acquire","grace_ms":-1}`:        "out of range",
		`{"policy":"on-next-acquire","grace_ms":100000000}`: "out of range",
	} {
		if out := r.want(400, "POST", "/v1/leases/9:open", body); !strings.Contains(out["error"].(string), say) {
			t.Errorf("%s: %v", body, out)
		}
	}
	r.want(404, "GET", "/v1/leases/9", "")
}

// The same call again, with its key, is the same only with the same policy and grace.
func TestReclaim_SameCallAgain(t *testing.T) {
	r := serve(t)
	var got []int
	for _, body := range []string{
		`{"policy":"on-next-acquire","grace_ms":1000}`, `{"policy":"on-next-acquire","grace_ms":1000}`,
		`{"policy":"on-next-acquire","grace_ms":1001}`, `{"policy":"never"}`, `{}`,
	} {
		code, _ := r.do("POST", "/v1/leases/6:open", body, "Idempotency-Key", "k")
		got = append(got, code)
	}
	if want := []int{200, 200, 409, 409, 409}; !slices.Equal(got, want) {
		t.Errorf("answers %v, want %v", got, want)
	}
}

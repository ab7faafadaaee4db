package api_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// keyedWaits are calls that wait at a node, by the name that they wait for, and "" when they are answered.
func (r *rig) keyedWaits() map[string]func() string {
	posted := func(path, body, key string) func() string {
		return func() string {
			if code, out := r.do("POST", path, body, "Idempotency-Key", key); code != 200 {
				return fmt.Sprint(code, " ", out)
			}
			return ""
		}
	}
	told := func(err error) string {
		if err != nil {
			return err.Error()
		}
		return ""
	}
	return map[string]func() string{
		"rest-lock":       posted("/v1/locks/rest-lock:acquire", `{"ttl_ms":60000}`, "1"),
		"rest-latch":      posted("/v1/latches/rest-latch:wait", `{"count":1}`, "2"),
		"rest-barrier":    posted("/v1/barriers/rest-barrier:arrive", `{"parties":2}`, "3"),
		"connect-latch":   posted("/holdfast.v1.LatchService/Wait", `{"name":"connect-latch","count":1}`, "4"),
		"connect-barrier": posted("/holdfast.v1.BarrierService/Arrive", `{"name":"connect-barrier","parties":2}`, "5"),
		"grpc-lock": func() string {
			_, err := r.locks().Lock(r.as("idempotency-key", "6"), &pb.LockRequest{Name: "grpc-lock"})
			return told(err)
		},
		"grpc-latch": func() string {
			_, err := pb.NewLatchServiceClient(r.conn).Wait(r.as("idempotency-key", "7"), &pb.LatchWaitRequest{Name: "grpc-latch", Count: 1})
			return told(err)
		},
		"grpc-barrier": func() string {
			_, err := pb.NewBarrierServiceClient(r.conn).Arrive(r.as("idempotency-key", "8"), &pb.ArriveRequest{Name: "grpc-barrier", Parties: 2})
			return told(err)
		},
	}
}

// A wait with an idempotency key that a node has passed on is brought before the next leader
// when the one that it was passed to hands over, whatever dialect it came in.
func TestRelay_KeyedWaitsOutliveAHandOver(t *testing.T) {
	t.Parallel()
	rigs := trio(t)
	at := leader(t, rigs)
	asked, next := rigs[(at+1)%3], (at+2)%3
	tokens := map[string]any{}
	for _, name := range []string{"rest-lock", "grpc-lock"} {
		tokens[name] = asked.want(200, "POST", "/v1/locks/"+name+":acquire", `{"ttl_ms":600000}`)["token"]
	}
	type answer struct{ name, err string }
	waits := asked.keyedWaits()
	answers := make(chan answer, len(waits))
	for name, wait := range waits {
		go func() { answers <- answer{name, wait()} }()
		rigs[at].waiters(name, 1)
	}
	handOver(t, rigs[at], uint64(next+1))
	leader(t, rigs[next:next+1])
	for name, token := range tokens {
		rigs[next].want(200, "POST", "/v1/locks/"+name+":release", fmt.Sprintf(`{"token":%.0f}`, token))
	}
	for _, dialect := range []string{"rest", "connect", "grpc"} {
		rigs[next].want(200, "POST", "/v1/latches/"+dialect+"-latch:count-down", `{"count":1,"by":1}`)
		rigs[next].want(200, "POST", "/v1/barriers/"+dialect+"-barrier:arrive", `{"parties":2}`)
	}
	for range waits {
		if a := <-answers; a.err != "" {
			t.Errorf("%s: %s", a.name, a.err)
		}
	}
}

// handOver has another node lead.
func handOver(t *testing.T, r *rig, to uint64) {
	t.Helper()
	for r.ctx.Err() == nil {
		l, changed := r.node.Leader()
		if l.ID == to {
			return
		}
		if err := r.node.Transfer(r.ctx, to); err != nil && !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrConflict) {
			t.Fatal(err)
		}
		select {
		case <-changed:
		case <-time.After(time.Second): // it may be refused for a moment
		}
	}
}

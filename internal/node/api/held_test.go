package api_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/services"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// restored is the directory of a group that began anew.
func restored(t *testing.T, a server.Anew) string {
	t.Helper()
	r := serve(t)
	f, err := os.Create(filepath.Join(t.TempDir(), "backup"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.node.Backup(r.ctx, f), f.Close()); err != nil {
		t.Fatal(err)
	}
	r.stop()
	a.Dir = filepath.Join(t.TempDir(), "new")
	if _, err := server.Restore(f.Name(), a); err != nil {
		t.Fatal(err)
	}
	return a.Dir
}

// heldGroup is the leader of a group that grants nothing, and a node that follows it.
func heldGroup(t *testing.T) (lead, follower *rig) {
	t.Helper()
	var ends []server.Member
	var rigs []*rig
	for i := range 2 {
		ln := listen(t, "127.0.0.1:0")
		ends = append(ends, server.Member{ID: uint64(i + 1), Peer: services.Addr(t), Client: ln.Addr().String()})
		cfg := server.Config{ID: ends[i].ID, Listen: ends[i].Peer, Founders: ends[:1], Join: i == 1}
		if i == 0 {
			cfg.Dir = restored(t, server.Anew{ID: 1, ClusterID: 7, Peer: ends[0].Peer, Client: ends[0].Client, Wait: time.Hour})
		} else {
			cfg.Dir = t.TempDir()
		}
		cfg.ClusterID = 7
		node, err := server.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { node.Close() })
		rigs = append(rigs, serveOn(t, ln, node, api.Config{}))
	}
	lead, follower = rigs[0], rigs[1]
	leader(t, rigs[:1])
	if _, err := lead.node.Members(lead.ctx, replica.Change{Add: []replica.Endpoint{{ID: ends[1].ID, Peer: ends[1].Peer, Client: ends[1].Client}}}); err != nil {
		t.Fatal(err)
	}
	for at, _ := follower.node.Leader(); at.ID != 1; at, _ = follower.node.Leader() {
		news(follower.node)
	}
	return lead, follower
}

// A key asks anew after the group could not do what it was asked, and then has its one answer.
func TestHeldGroup_KeyAsksAnew(t *testing.T) {
	node, err := server.New(server.Config{Dir: restored(t, server.Anew{Wait: 4 * time.Second})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	r := serveNode(t, node, api.Config{})
	leader(t, []*rig{r})
	once, try := r.as("idempotency-key", "k"), &pb.LockRequest{Name: "x", TimeoutMs: proto.Int64(0)}
	a, err := r.locks().Lock(once, try)
	for ; err != nil; a, err = r.locks().Lock(once, try) {
		if f := wantCode(t, err, codes.Unavailable); !f.NotDone {
			t.Fatalf("a try while nothing is granted: %v", err)
		}
		news(node)
	}
	if b := must[*pb.LockResponse](t)(r.locks().Lock(once, try)); b.FencingToken != a.FencingToken || b.LeaseId != a.LeaseId {
		t.Errorf("the same call got %v, then %v", a, b)
	}
	_, err = r.locks().Lock(once, &pb.LockRequest{Name: "y", TimeoutMs: proto.Int64(0)})
	wantCode(t, err, codes.Aborted)
}

// A try in a group that grants nothing is told so, and until when, by the node that was asked
// as by the leader: it is the group's own word, for which no other leader has to be found.
func TestHeldGroup_Tries(t *testing.T) {
	lead, follower := heldGroup(t)
	const soon, most = 50 * 60 * 1000, 60 * 60 * 1000
	for name, r := range map[string]*rig{"the leader": lead, "another node": follower} {
		f := r.want(503, "POST", "/v1/locks/x:acquire", `{"timeout_ms":0}`)
		ms, _ := f["retry_after_ms"].(float64)
		if text, _ := f["error"].(string); !strings.Contains(text, "grants nothing") || f["not_done"] != true || ms < soon || ms > most {
			t.Errorf("HTTP at %s: %v", name, f)
		}
		c := r.want(503, "POST", "/holdfast.v1.LockService/TryLock", `{"name":"x"}`)
		if text, _ := c["message"].(string); !strings.Contains(text, "grants nothing") {
			t.Errorf("Connect at %s: %v", name, c)
		}
		_, err := r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x", TimeoutMs: proto.Int64(0)})
		if g := wantCode(t, err, codes.Unavailable); !strings.Contains(err.Error(), "grants nothing") || !g.NotDone || g.RetryAfterMs < soon || g.RetryAfterMs > most {
			t.Errorf("gRPC at %s: %v, %v", name, err, g)
		}
		s := must[*holdfast.Space](t)(holdfast.Open(r.ctx, "holdfast://"+r.addr))
		_, err = s.Mutex("x").TryAcquire(r.ctx)
		if after := holdfast.RetryAfter(err); !errors.Is(err, holdfast.ErrUnavailable) || after < soon*time.Millisecond || after > most*time.Millisecond {
			t.Errorf("Go at %s: %v", name, err)
		}
		s.Close()
	}
}

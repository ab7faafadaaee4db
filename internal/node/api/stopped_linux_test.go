package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/services"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

func init() { roles["member"] = memberRole }

// memberRole is node 1 of a group in a process of its own.
func memberRole() error {
	var founders []server.Member
	if err := json.Unmarshal([]byte(os.Getenv("API_TEST_FOUNDERS")), &founders); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", founders[0].Client)
	if err != nil {
		return err
	}
	node, err := server.New(server.Config{Dir: os.Getenv("API_TEST_DIR"), ID: 1, Founders: founders, Listen: founders[0].Peer})
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	go func() { // ends with the parent
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	return api.Serve(context.Background(), ln, api.New(node), api.Config{})
}

// stoppable is a group of three whose leader is a process that can be stopped; the
// rigs are those of the others. They have the default tick: with a shorter one a busy machine
// lets them elect another leader before it is stopped.
func stoppable(t *testing.T) (rigs []*rig, pid int) {
	t.Helper()
	var founders []server.Member
	var lns []net.Listener
	for i := range 3 {
		e := server.Member{ID: uint64(i + 1), Peer: services.Addr(t), Client: services.Addr(t)}
		if i > 0 {
			lns = append(lns, listen(t, "127.0.0.1:0"))
			e.Client = lns[i-1].Addr().String()
		}
		founders = append(founders, e)
	}
	text, err := json.Marshal(founders)
	if err != nil {
		t.Fatal(err)
	}
	_, pid = services.Again(t, "API_TEST_ROLE=member", "API_TEST_DIR="+t.TempDir(), "API_TEST_FOUNDERS="+string(text))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // so that it can end
	for i := range 2 {
		node, err := server.New(server.Config{Dir: t.TempDir(), ID: uint64(i + 2), Founders: founders, Listen: founders[i+1].Peer})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { node.Close() })
		rigs = append(rigs, serveOn(t, lns[i], node, api.Config{}))
	}
	led(rigs, 1)
	return rigs, pid
}

// led waits until a node leads, as all of these see it; if one of these leads it hands
// over. It leaves the nodes time to elect one: asking without a pause would take the
// processors from them.
func led(rigs []*rig, id uint64) {
	for agreed := 0; agreed < len(rigs); <-time.After(50 * time.Millisecond) {
		agreed = 0
		for _, r := range rigs {
			if r.sees(id) {
				agreed++
			}
		}
	}
}

// sees reports whether a node leads, as this one sees it, and has it lead if this does.
func (r *rig) sees(id uint64) bool {
	r.t.Helper()
	st := must[replica.Status](r.t)(r.node.Status(r.ctx))
	if st.Serving {
		if err := r.node.Transfer(r.ctx, id); err != nil && !errors.Is(err, driver.ErrConflict) { // else it has not caught up, for a moment
			r.t.Fatal(err)
		}
	}
	return st.Leader == id
}

func signal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

// stopped reports whether no thread of a process runs any more: a signal is sent before it
// is taken.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatal("no threads of the leader: ", err)
	}
	for _, name := range threads {
		stat, err := os.ReadFile(name)
		if err != nil {
			return false // it has ended just now
		}
		if _, rest, ok := strings.Cut(string(stat), ") "); !ok || rest[0] != 'T' {
			return false
		}
	}
	return true
}

// answer is what became of a call.
type answer struct {
	what string
	out  any
	err  error
}

// calls are those that are under way.
type calls struct {
	n       int
	answers chan answer
}

func (c *calls) add(what string, f func() (any, error)) {
	c.n++
	go func() {
		out, err := f()
		c.answers <- answer{what, out, err}
	}()
}

// over adds a request over HTTP.
func (c *calls) over(r *rig, what, method, path, body string, headers ...string) {
	c.add(what+" over HTTP", func() (any, error) {
		code, out := r.do(method, path, body, headers...)
		out["status"] = code
		return out, nil
	})
}

// A call that was passed on to a leader which then stops is answered: what only
// looks, and what can be repeated without harm, by the next leader, be it the node
// that was asked or another one; of everything else the outcome is not known, and it
// is not said that it was not done.
func TestRelay_LeaderStops(t *testing.T) {
	rigs, pid := stoppable(t)
	c := &calls{answers: make(chan answer, 40)}
	must[*pb.LockResponse](t)(rigs[0].locks().Lock(t.Context(), &pb.LockRequest{Name: "x", TtlMs: 600_000}))
	must[*pb.LeaseGrantResponse](t)(rigs[0].locks().LeaseGrant(t.Context(), &pb.LeaseGrantRequest{Ttl: 600, Id: 5}))
	for i, r := range rigs {
		c.add("wait", func() (any, error) { return r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x"}) })
		c.over(r, "wait", "POST", "/v1/locks/x:acquire", "{}")
		r.waiters("x", 2*(i+1))
	}
	signal(t, pid, syscall.SIGSTOP)
	for !stopped(t, pid) {
		<-time.After(time.Millisecond)
	}
	began := time.Now()
	for _, r := range rigs {
		c.underWay(r)
	}
	for range c.n {
		select {
		case a := <-c.answers:
			t.Logf("%s after %s: %v %v", a.what, time.Since(began).Round(time.Millisecond), a.out, a.err)
			judge(t, a)
		case <-time.After(30 * time.Second):
			t.Fatal("a call is not answered although another node leads")
		}
	}
	signal(t, pid, syscall.SIGCONT)
	counters := pb.NewCounterServiceClient(rigs[0].conn)
	for name, most := range map[string]int64{"k": 2, "h": 2, "a": 4} { // of two nodes each
		if got := must[*pb.CounterGetResponse](t)(counters.Get(rigs[0].ctx, &pb.CounterGetRequest{Name: name})); got.Value > most || name != "a" && got.Value != most {
			t.Errorf("%s is counted to %d, want %d", name, got.Value, most)
		}
	}
}

// underWay adds calls of all sorts.
func (c *calls) underWay(r *rig) {
	counters := pb.NewCounterServiceClient(r.conn)
	c.add("add", func() (any, error) { return counters.Add(r.ctx, &pb.CounterAddRequest{Name: "a"}) })
	c.over(r, "add", "POST", "/v1/counters/a:add", "{}")
	c.add("keyed add", func() (any, error) {
		return counters.Add(r.as("idempotency-key", r.addr), &pb.CounterAddRequest{Name: "k"})
	})
	c.over(r, "keyed add", "POST", "/v1/counters/h:add", "{}", "Idempotency-Key", "h"+r.addr)
	c.add("get", func() (any, error) { return counters.Get(r.ctx, &pb.CounterGetRequest{Name: "k"}) })
	c.over(r, "get", "GET", "/v1/counters/h", "")
	c.over(r, "keep", "POST", "/v1/leases/5:keep", "{}")
	c.add("keep alive", func() (any, error) {
		s, err := r.locks().LeaseKeepAlive(r.ctx)
		if err != nil {
			return nil, err
		}
		if err := s.Send(&pb.LeaseKeepAliveRequest{Id: 5}); err != nil {
			return nil, err
		}
		return s.Recv()
	})
	c.add("keyed semaphore on a lease", func() (any, error) {
		return pb.NewSemaphoreServiceClient(r.conn).Acquire(r.as("idempotency-key", "s"), &pb.SemaphoreAcquireRequest{Name: "s", Limit: 9, Terms: &pb.Terms{LeaseId: 5}})
	})
	c.add("release", func() (any, error) {
		return r.locks().Unlock(r.ctx, &pb.UnlockRequest{Name: "x", FencingToken: 1})
	})
}

// judge says whether a call was answered rightly while its leader was stopped.
func judge(t *testing.T, a answer) {
	t.Helper()
	repeated := strings.HasPrefix(a.what, "keyed add") || strings.HasPrefix(a.what, "get") || strings.HasPrefix(a.what, "keep")
	if out, ok := a.out.(map[string]any); ok {
		if repeated && out["status"] != 200 {
			t.Errorf("%s: %v", a.what, out)
		}
		if !repeated && (out["status"] != 503 || out["not_done"] != false || out["error"] == "") {
			t.Errorf("%s: %v", a.what, out)
		}
		return
	}
	if repeated {
		if a.err != nil {
			t.Errorf("%s: %v", a.what, a.err)
		}
		return
	}
	if f := wantCode(t, a.err, codes.Unavailable); f.NotDone || f.Kind != "unavailable" {
		t.Errorf("%s: %v", a.what, proto.CloneOf(f))
	}
}

// A leader that was killed before it was asked has done nothing: a caller that writes through
// another node has the next leader do it, by gRPC as over HTTP, and once.
func TestRelay_LeaderIsKilled(t *testing.T) {
	rigs, pid := stoppable(t)
	addr := leaderAddr(t, rigs[0])
	signal(t, pid, syscall.SIGKILL)
	for conn, err := net.Dial("tcp", addr); err == nil; conn, err = net.Dial("tcp", addr) {
		conn.Close()
	}
	c := &calls{answers: make(chan answer, 4)}
	for _, r := range rigs {
		c.add("add", func() (any, error) {
			return pb.NewCounterServiceClient(r.conn).Add(r.ctx, &pb.CounterAddRequest{Name: "n"})
		})
		c.over(r, "add", "POST", "/v1/counters/n:add", "{}")
	}
	for range c.n {
		a := <-c.answers
		if out, ok := a.out.(map[string]any); a.err != nil || ok && out["status"] != 200 {
			t.Errorf("%s: %v %v", a.what, a.out, a.err)
		}
	}
	got := must[*pb.CounterGetResponse](t)(pb.NewCounterServiceClient(rigs[0].conn).Get(rigs[0].ctx, &pb.CounterGetRequest{Name: "n"}))
	if got.Value != int64(c.n) {
		t.Errorf("%d calls have counted to %d", c.n, got.Value)
	}
}

// leaderAddr is where clients find the leader, as a node sees it.
func leaderAddr(t *testing.T, r *rig) string {
	t.Helper()
	l, _ := r.node.Leader()
	if l.Addr == "" {
		t.Fatal("nobody leads")
	}
	return l.Addr
}

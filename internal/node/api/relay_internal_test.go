package api

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/services"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// pack is three nodes that find each other's ports over links.
type pack struct {
	t     *testing.T
	ctx   context.Context
	nodes []*server.Server
	all   []*gateway
	links []*services.Link
}

func newPack(t *testing.T) *pack {
	t.Helper()
	p := &pack{t: t}
	var lns []net.Listener
	var founders []replica.Endpoint
	for i := range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		lns, p.links = append(lns, ln), append(p.links, services.Proxy(t, ln.Addr().String()))
		founders = append(founders, replica.Endpoint{ID: uint64(i + 1), Peer: services.Addr(t), Client: p.links[i].Addr()})
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for i := range 3 {
		node, err := server.New(server.Config{Dir: t.TempDir(), ID: uint64(i + 1), Founders: founders, Listen: founders[i].Peer, Tick: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		svc := New(node)
		svc.plain.relay.pulse, svc.plain.relay.silence = 20*time.Millisecond, 500*time.Millisecond
		served := make(chan error, 1)
		go func() { served <- Serve(ctx, lns[i], svc, Config{}) }()
		t.Cleanup(func() {
			cancel()
			if err := <-served; err != nil {
				t.Errorf("Serve: %v", err)
			}
			node.Close()
		})
		p.nodes, p.all = append(p.nodes, node), append(p.all, svc.plain)
	}
	var done context.CancelFunc
	p.ctx, done = context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(done)
	return p
}

// leader waits until all nodes agree on who leads.
func (p *pack) leader() int {
	p.t.Helper()
	for p.ctx.Err() == nil {
		first, _ := p.nodes[0].Leader()
		second, _ := p.nodes[1].Leader()
		third, _ := p.nodes[2].Leader()
		if first.ID != 0 && first == second && second == third {
			if st, err := p.nodes[first.ID-1].Status(p.ctx); err == nil && st.Serving {
				return int(first.ID - 1)
			}
		}
	}
	p.t.Fatal("nobody leads")
	return 0
}

// add counts through a node, and tells what its caller would be told.
func (p *pack) add(i int, name string) (*pb.CounterAddResponse, *pb.Failure, codes.Code) {
	in := &pb.CounterAddRequest{Name: name}
	out, st := p.all[i].routed(p.ctx, pb.CounterService_Add_FullMethodName, in, func(ctx context.Context, _ any) (any, error) {
		return counterService{gateway: p.all[i]}.Add(ctx, in)
	})
	r, _ := out.(*pb.CounterAddResponse)
	return r, failureOf(st), st.Code()
}

// A leader whose port has gone silent is given up, although it leads: what was sent
// may have been done. When it is back it is asked again.
func TestRelay_Silence(t *testing.T) {
	p := newPack(t)
	at := p.leader()
	follower := (at + 1) % 3
	if _, f, code := p.add(follower, "n"); code != codes.OK {
		t.Fatalf("%v %v", code, f)
	}
	p.links[at].Cut(services.ToClient)
	if _, f, code := p.add(follower, "n"); code != codes.Unavailable || f.NotDone || !strings.Contains(f.Cause, "does not answer") {
		t.Errorf("a silent leader: %v %v", code, f)
	}
	p.links[at].Heal()
	r, f, code := p.add(follower, "n")
	for code == codes.Unavailable && p.ctx.Err() == nil { // until the way is open again
		r, f, code = p.add(follower, "n")
	}
	if code != codes.OK || r.Value < 3 {
		t.Errorf("after that: %v %v %v", r, f, code)
	}
}

// A leader that cannot be reached was not asked, and the caller is told that.
func TestRelay_Unreachable(t *testing.T) {
	p := newPack(t)
	at := p.leader()
	follower := (at + 1) % 3
	p.links[at].Cut() // before anybody has connected
	if _, f, code := p.add(follower, "n"); code != codes.Unavailable || !f.NotDone {
		t.Errorf("a leader that cannot be reached: %v %v", code, f)
	}
	p.links[at].Heal()
	for p.ctx.Err() == nil {
		if r, _, code := p.add(follower, "n"); code == codes.OK {
			if r.Value != 1 {
				t.Errorf("counted to %d", r.Value)
			}
			return
		}
	}
	t.Error("the leader is not asked again")
}

// A leader that takes its time is not silent: who waits at it waits on.
func TestRelay_WaitsAreNoSilence(t *testing.T) {
	p := newPack(t)
	at := p.leader()
	g := p.all[(at+1)%3]
	lock := func(timeout int64) *pb.LockResponse {
		in := &pb.LockRequest{Name: "x", TimeoutMs: &timeout}
		out, st := g.routed(p.ctx, pb.LockService_Lock_FullMethodName, in, nil)
		if st.Code() != codes.OK {
			t.Fatal(st)
		}
		return out.(*pb.LockResponse)
	}
	if !lock(0).Acquired {
		t.Fatal("a free lock is not granted")
	}
	began := time.Now()
	if lock(1500).Acquired || time.Since(began) < 1500*time.Millisecond { // three times the silence
		t.Errorf("the wait ended after %s", time.Since(began))
	}
}

// What a leader did before it lost its leadership is not brought before the next one,
// and it is not said that it was not done; what it did not do is.
func TestRelay_PassesOnNothingDone(t *testing.T) {
	for _, done := range []bool{true, false} {
		p := newPack(t)
		at := p.leader()
		g, in := p.all[at], &pb.CounterAddRequest{Name: "n"}
		out, st := g.routed(p.ctx, pb.CounterService_Add_FullMethodName, in, func(ctx context.Context, _ any) (any, error) {
			if done {
				if _, err := (counterService{gateway: g}).Add(ctx, in); err != nil {
					t.Error(err)
				}
			}
			p.moveFrom(at)
			return nil, driver.Errorf("add", "n", driver.ErrUnavailable, "this node does not lead")
		})
		f := failureOf(st)
		if done && (st.Code() != codes.Unavailable || f.NotDone) {
			t.Errorf("done, and then: %v %v", out, st)
		}
		if !done && st.Code() != codes.OK {
			t.Errorf("not done, and then: %v %v", out, st)
		}
		p.leader()
		var n uint64
		if err := p.nodes[p.leader()].Look(p.ctx, func(m *core.Machine) { i, _ := m.Inspect("default", "n"); n = i.Number }); err != nil || n != 1 {
			t.Errorf("counted to %d, %v", n, err)
		}
	}
}

// A call with a key that one leader may have done is brought before the next. If that
// one cannot do it, nobody knows whether it was done.
func TestRelay_TriedBefore(t *testing.T) {
	p := newPack(t)
	at := p.leader()
	for i, l := range p.links {
		if i != at {
			l.Cut() // before anybody has connected: the next leader cannot be reached
		}
	}
	g, in := p.all[at], &pb.CounterAddRequest{Name: "n"}
	ctx := metadata.NewIncomingContext(p.ctx, metadata.Pairs(headerKey, "once"))
	_, st := g.routed(ctx, pb.CounterService_Add_FullMethodName, in, func(ctx context.Context, _ any) (any, error) {
		if _, err := (counterService{gateway: g}).Add(ctx, in); err != nil {
			t.Error(err)
		}
		p.moveFrom(at)
		return nil, &driver.Error{Kind: driver.ErrUnavailable, Err: errors.New("another node took over")}
	})
	if st.Code() != codes.Unavailable || failureOf(st).NotDone {
		t.Errorf("done, then not reached: %v %v", st, failureOf(st))
	}
}

// Over HTTP the next leader is told that an earlier one may have done it, and does not
// say that it was not done.
func TestRelay_TriedBeforeOverHTTP(t *testing.T) {
	p := newPack(t)
	at := p.leader()
	follower := p.all[(at+1)%3]
	var told []string
	next := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" { // gRPC asks for a sign of life
			told = append(told, r.Header.Get(headerTried))
		}
	}))
	defer next.Close()
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "POST" {
			return
		}
		told = append(told, r.Header.Get(headerTried))
		follower.tenures.set(server.Leader{ID: 8, Addr: next.Listener.Addr().String()})
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		c.Close()
	}))
	defer first.Close()
	follower.tenures.current()
	follower.tenures.set(server.Leader{ID: 9, Addr: first.Listener.Addr().String()})
	r := httptest.NewRequest("POST", "/v1/counters/n:add", strings.NewReader("{}"))
	r.Header.Set(headerKey, "once")
	if !follower.passed(httptest.NewRecorder(), r) || !slices.Equal(told, []string{"", "1"}) {
		t.Errorf("two leaders were told %q", told)
	}
	for tried, want := range map[string]bool{"": true, "1": false} {
		r := httptest.NewRequest("POST", "/v1/counters/n:add", strings.NewReader("{}"))
		r.Header.Set(headerRelayed, "1")
		r.Header.Set(headerTried, tried)
		w := httptest.NewRecorder()
		restHandler{&Service{node: p.nodes[(at+1)%3], plain: follower}}.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), `"not_done":true`) != want {
			t.Errorf("a node that does not lead, asked as the next (%q): %d %s", tried, w.Code, w.Body)
		}
	}
}

// moveFrom has another node lead.
func (p *pack) moveFrom(at int) {
	for p.ctx.Err() == nil {
		l, changed := p.nodes[at].Leader()
		if l.ID != 0 && l.ID != uint64(at+1) {
			return
		}
		if err := p.nodes[at].Transfer(p.ctx, uint64((at+1)%3+1)); err != nil {
			p.t.Error(err)
		}
		select {
		case <-changed:
		case <-time.After(time.Second): // it may be refused for a moment
		}
	}
}

// A wait that a node gives up, because it is about to stop, is out of the queue when
// its caller is told that it was not done.
func TestRelay_DrainedWaitsAreNotDone(t *testing.T) {
	node, err := server.New(server.Config{Dir: t.TempDir(), Tick: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	g := newGateway(node)
	defer g.close()
	lock := func(key string, in *pb.LockRequest) *pb.Failure {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(headerKey, key))
		_, st := g.routed(ctx, pb.LockService_Lock_FullMethodName, in, func(ctx context.Context, _ any) (any, error) {
			return lockService{gateway: g}.Lock(ctx, in)
		})
		return failureOf(st)
	}
	lock("", &pb.LockRequest{Name: "x"})
	waiting := func() (n int) {
		if err := node.Look(t.Context(), func(m *core.Machine) { i, _ := m.Inspect("default", "x"); n = len(i.Waiters) }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	type told struct {
		f     *pb.Failure
		queue int
	}
	plain, keyed := make(chan told, 1), make(chan *pb.Failure, 1)
	go func() { keyed <- lock("k", &pb.LockRequest{Name: "x"}) }()
	for waiting() != 1 {
	}
	go func() {
		f := lock("", &pb.LockRequest{Name: "x"})
		plain <- told{f, waiting()}
	}()
	for waiting() != 2 {
	}
	g.once.Do(func() { close(g.draining) })
	if p := <-plain; !p.f.NotDone || p.f.Kind != "unavailable" || p.queue != 1 {
		t.Errorf("a wait that was given up: %v, with %d in the queue", p.f, p.queue)
	}
	if f := <-keyed; f.NotDone || f.Kind != "unavailable" {
		t.Errorf("a wait with a key, which keeps its place: %v", f)
	}
}

// A leader that is away for a moment goes on with what it was asked; one that is
// followed by another has a while to answer; and so has this node itself.
func TestTenures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		defer end()
		x := &tenures{s: &server.Server{}, life: life, late: map[*tenure]*time.Timer{}}
		at := func(id uint64, addr string) *tenure {
			x.set(server.Leader{ID: id, Addr: addr})
			return x.now
		}
		one := at(1, "one")
		at(2, "")
		time.Sleep(farewell - 1)
		if back := at(1, "one"); back != one || one.ctx.Err() != nil {
			t.Error("a leader that was away for a moment is another one now")
		}
		time.Sleep(farewell)
		if one.ctx.Err() != nil {
			t.Error("a leader that is back is given up")
		}
		two := at(2, "two")
		time.Sleep(farewell)
		synctest.Wait()
		if context.Cause(one.ctx) != errDeposed || two.ctx.Err() != nil {
			t.Errorf("after a farewell the old leader's calls end with %v, the new one's with %v", context.Cause(one.ctx), two.ctx.Err())
		}
		if at(1, "one") == one {
			t.Error("a tenure that is over goes on")
		}
		here := at(0, "") // the number of this node, in this test
		here.here = true
		at(3, "three")
		time.Sleep(isolated - time.Nanosecond)
		synctest.Wait()
		if here.ctx.Err() != nil {
			t.Error("what this node has proposed is given up too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if context.Cause(here.ctx) != errIsolated {
			t.Errorf("what this node has proposed ends with %v", context.Cause(here.ctx))
		}
		x.giveUp(x.now, errSilent)
		if x.now.Addr != "three" || x.now.ctx.Err() != nil {
			t.Error("a silent leader is not asked anew")
		}
	})
}

// Every call is in a class, and those that may happen twice are calls.
func TestRepeatable(t *testing.T) {
	for _, set := range []map[string]bool{harmless, onceByKey, onceOnOwnLease} {
		for name := range set {
			if _, ok := classes[name]; !ok {
				t.Errorf("%s is no call", name)
			}
		}
	}
	keyed := metadata.NewIncomingContext(t.Context(), metadata.Pairs(headerKey, "k"))
	for _, c := range []struct {
		ctx    context.Context
		method string
		in     any
		want   bool
	}{
		{t.Context(), pb.CounterService_Get_FullMethodName, &pb.CounterGetRequest{}, true},
		{t.Context(), pb.CounterService_Add_FullMethodName, &pb.CounterAddRequest{}, false},
		{keyed, pb.CounterService_Add_FullMethodName, &pb.CounterAddRequest{}, true},
		{keyed, pb.LockService_Unlock_FullMethodName, &pb.UnlockRequest{}, false},
		{t.Context(), pb.LockService_Lock_FullMethodName, &pb.LockRequest{}, false},
		{keyed, pb.LockService_Lock_FullMethodName, &pb.LockRequest{}, true},
		{keyed, pb.LockService_Lock_FullMethodName, &pb.LockRequest{LeaseId: 5}, false},
		{keyed, pb.SemaphoreService_Acquire_FullMethodName, &pb.SemaphoreAcquireRequest{Terms: &pb.Terms{LeaseId: 5}}, false},
		{keyed, pb.SemaphoreService_Acquire_FullMethodName, &pb.SemaphoreAcquireRequest{}, true},
		{keyed, pb.LockService_LeaseGrant_FullMethodName, &pb.LeaseGrantRequest{Id: 5}, false},
		{keyed, pb.LatchService_Wait_FullMethodName, &pb.LatchWaitRequest{}, false},
	} {
		if got := repeatable(c.ctx, c.method, c.in); got != c.want {
			t.Errorf("%s of %v: %v", c.method, c.in, got)
		}
	}
}

// So it is with the short paths.
func TestRepeatable_Routes(t *testing.T) {
	for path, want := range map[string][2]bool{ // without and with a key
		"GET /v1/locks/x": {true, true}, "POST /v1/locks/x:acquire {}": {false, true}, `POST /v1/locks/x:acquire {"lease_id":5}`: {false, false},
		"POST /v1/locks/x:acquire?lease_id=5 ": {false, false}, `POST /v1/locks/x:acquire {"lea\u0073e_id":5}`: {false, false},
		"POST /v1/locks/x:release {}": {false, false}, "POST /v1/locks/x:renew {}": {true, true}, "POST /v1/counters/x:add {}": {false, true},
		"PUT /v1/kv/x {}": {false, true}, "DELETE /v1/kv/x ": {false, true}, "DELETE /v1/leases/5 ": {false, false},
		"POST /v1/leases/:open {}": {false, true}, "POST /v1/leases/5:open {}": {false, false}, "POST /v1/leases/5:keep {}": {true, true},
		"POST /v1/barriers/x:arrive {}": {false, false}, "POST /v1/latches/x:wait {}": {false, false},
	} {
		method, rest, _ := strings.Cut(path, " ")
		where, body, _ := strings.Cut(rest, " ")
		for i, key := range []string{"", "k"} {
			r := mustRequest(t, method, where)
			r.Header.Set(headerKey, key)
			if got := repeatableHTTP(r, []byte(body)); got != want[i] {
				t.Errorf("%s with key %q: %v", path, key, got)
			}
		}
	}
}

func mustRequest(t *testing.T, method, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, "http://localhost"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A write of a register with an idempotency key comes to an end, also if another's
// write fell between its transactions, whose answers are kept for its key.
func TestFence_KeyedWriteEnds(t *testing.T) {
	node, err := server.New(server.Config{Dir: t.TempDir(), Tick: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	g := newGateway(node)
	defer g.close()
	ctx, err := withCaller(t.Context(), func(name string) string { return map[string]string{headerKey: "k"}[name] })
	if err != nil {
		t.Fatal(err)
	}
	value := append(binary.BigEndian.AppendUint64(nil, 9), 'v')
	older := &pb.Compare{Key: "r", Target: pb.Compare_TARGET_VALUE, Relation: pb.Compare_RELATION_LESS, Value: binary.BigEndian.AppendUint64(nil, 10)}
	if res, _, err := g.writeIf(ctx, 0, older, "r", value); err != nil || res.Succeeded {
		t.Fatalf("an absent register: %v %v", res, err)
	}
	s := fenceService{gateway: g}
	if _, err := s.Write(t.Context(), &pb.FenceWriteRequest{Register: "r", Token: 5}); err != nil {
		t.Fatal(err)
	}
	if res, _, err := g.writeIf(ctx, 0, &pb.Compare{Key: "r"}, "r", value); err != nil || res.Succeeded {
		t.Fatalf("a register that is there: %v %v", res, err)
	}
	within, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for range 2 { // and the same call again
		if _, err := s.Write(within, &pb.FenceWriteRequest{Register: "r", Token: 9, Value: []byte("v")}); err != nil {
			t.Error(err)
		}
	}
}

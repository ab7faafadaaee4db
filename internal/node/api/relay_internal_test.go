package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/gateway"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// pack is three nodes that find each other's ports over links.
type pack struct {
	t     *testing.T
	ctx   context.Context
	nodes []*server.Server
	all   []*Service
	links []*services.Link
}

// Leaders are asked for a sign of life all the time, and given up after so much silence. A
// busy machine is silent at times: what is not about silence has patience with it.
const (
	brief   = 500 * time.Millisecond
	patient = 20 * time.Second
)

func newPack(t *testing.T, silence time.Duration) *pack {
	t.Helper()
	p := &pack{t: t}
	var lns []net.Listener
	var founders []server.Member
	for i := range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		lns, p.links = append(lns, ln), append(p.links, services.Proxy(t, ln.Addr().String()))
		founders = append(founders, server.Member{ID: uint64(i + 1), Peer: services.Addr(t), Client: p.links[i].Addr()})
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for i := range 3 {
		node, err := server.New(server.Config{Dir: t.TempDir(), ID: uint64(i + 1), Founders: founders, Listen: founders[i].Peer})
		if err != nil {
			t.Fatal(err)
		}
		svc := New(node)
		svc.relay.Pulse, svc.relay.Silence = 20*time.Millisecond, silence
		served := make(chan error, 1)
		go func() { served <- Serve(ctx, lns[i], svc, Config{}) }()
		t.Cleanup(func() {
			cancel()
			if err := <-served; err != nil {
				t.Errorf("Serve: %v", err)
			}
			node.Close()
		})
		p.nodes, p.all = append(p.nodes, node), append(p.all, svc)
	}
	var done context.CancelFunc
	p.ctx, done = context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(done)
	return p
}

// leader waits until all nodes agree on the leader.
func (p *pack) leader() int {
	p.t.Helper()
	for p.ctx.Err() == nil {
		first, news1 := p.nodes[0].Leader()
		second, news2 := p.nodes[1].Leader()
		third, news3 := p.nodes[2].Leader()
		if first.ID != 0 && first == second && second == third {
			if st, err := p.nodes[first.ID-1].Status(p.ctx); err == nil && st.Serving {
				return int(first.ID - 1)
			}
		}
		select {
		case <-news1:
		case <-news2:
		case <-news3:
		case <-time.After(20 * time.Millisecond): // it leads, and does not serve yet
		}
	}
	p.t.Fatal("nobody leads")
	return 0
}

// add counts through a node, and tells what its caller would be told.
func (p *pack) add(i int, name string) (*pb.CounterAddResponse, *pb.Failure, codes.Code) {
	in := &pb.CounterAddRequest{Name: name}
	out, st := p.all[i].call(p.ctx, pb.CounterService_Add_FullMethodName, in, func(ctx context.Context, _ any) (any, error) {
		return gateway.Counters{Gateway: p.all[i].gateway}.Add(ctx, in)
	})
	r, _ := out.(*pb.CounterAddResponse)
	return r, wire.FailureOf(st), st.Code()
}

// call is a call by gRPC, with the status of its answer.
func (s *Service) call(ctx context.Context, method string, in any, handle func(context.Context, any) (any, error)) (any, *status.Status) {
	out, err := s.rpc.Call(ctx, method, in, handle)
	if err != nil {
		return nil, wire.StatusOf(err, "")
	}
	return out, nil
}

// A leader behind a port that has gone silent is given up, although it leads: what was sent
// may have been done. When it is back it is asked again.
func TestRelay_Silence(t *testing.T) {
	p := newPack(t, brief)
	at := p.leader()
	follower := (at + 1) % 3
	p.counted(follower)
	p.links[at].Cut(services.ToClient)
	if _, f, code := p.add(follower, "n"); code != codes.Unavailable || f.NotDone || !strings.Contains(f.Cause, "does not answer") {
		t.Errorf("a silent leader: %v %v", code, f)
	}
	p.links[at].Heal()
	if n := p.counted(follower); n < 3 {
		t.Errorf("after that: %d", n)
	}
}

// counted counts through a node until that is answered: the way may not be open yet, and a
// leader on a busy machine silent.
func (p *pack) counted(i int) int64 {
	p.t.Helper()
	r, f, code := p.add(i, "n")
	for code == codes.Unavailable && p.ctx.Err() == nil {
		r, f, code = p.add(i, "n")
	}
	if code != codes.OK {
		p.t.Fatalf("%v %v", code, f)
	}
	return r.Value
}

// A leader that cannot be reached was not asked, and the caller is told that.
func TestRelay_Unreachable(t *testing.T) {
	p := newPack(t, brief)
	at := p.leader()
	follower := (at + 1) % 3
	p.links[at].Cut() // before anybody has connected
	if _, f, code := p.add(follower, "n"); code != codes.Unavailable || !f.NotDone {
		t.Errorf("a leader that cannot be reached: %v %v", code, f)
	}
	p.links[at].Heal()
	for most := int64(1); p.ctx.Err() == nil; {
		r, f, code := p.add(follower, "n")
		if code == codes.OK {
			if r.Value < 1 || r.Value > most {
				t.Errorf("counted to %d, want at most %d", r.Value, most)
			}
			return
		}
		if !f.NotDone {
			most++ // it was sent, and a busy machine has not answered in time
		}
	}
	t.Error("the leader is not asked again")
}

// A leader that takes its time is not silent: its waiters wait on.
func TestRelay_WaitsAreNoSilence(t *testing.T) {
	const silence = 3 * time.Second // a busy machine does not take as long for a sign of life
	p := newPack(t, silence)
	at := p.leader()
	g := p.all[(at+1)%3]
	lock := func(timeout int64) *pb.LockResponse {
		in := &pb.LockRequest{Name: "x", TimeoutMs: &timeout}
		out, st := g.call(p.ctx, pb.LockService_Lock_FullMethodName, in, nil)
		if st.Code() != codes.OK {
			t.Fatal(st)
		}
		return out.(*pb.LockResponse)
	}
	if !lock(0).Acquired {
		t.Fatal("a free lock is not granted")
	}
	began := time.Now()
	if lock((silence + time.Second).Milliseconds()).Acquired || time.Since(began) < silence+time.Second {
		t.Errorf("the wait ended after %s", time.Since(began))
	}
}

// What a leader did before it lost its leadership is not brought before the next one,
// and it is not said that it was not done; what it did not do is.
func TestRelay_PassesOnNothingDone(t *testing.T) {
	p := newPack(t, patient)
	for _, done := range []bool{true, false} {
		name := fmt.Sprint("n", done)
		for try := 0; !p.passedOn(name, done); try++ {
			if p.ctx.Err() != nil {
				t.Fatalf("done %t: no leader stays long enough to be asked, in %d tries", done, try)
			}
			name += "+"
		}
		var n uint64
		if err := p.nodes[p.leader()].Look(p.ctx, func(m *core.Machine, _ int64) { i, _ := m.Inspect("default", name); n = i.Number }); err != nil || n != 1 {
			t.Errorf("done %t: counted to %d, %v", done, n, err)
		}
	}
}

// passedOn is a call that a leader does, or not, before another leads. false: on a busy machine the leader, or the
// next one, lost its leadership too early.
func (p *pack) passedOn(name string, done bool) bool {
	at, early := p.leader(), false
	g, in := p.all[at], &pb.CounterAddRequest{Name: name}
	out, st := g.call(p.ctx, pb.CounterService_Add_FullMethodName, in, func(ctx context.Context, _ any) (any, error) {
		if done {
			_, err := gateway.Counters{Gateway: g.gateway}.Add(ctx, in)
			early = early || err != nil
		}
		p.moveFrom(at)
		return nil, driver.Errorf("add", name, driver.ErrUnavailable, "this node does not lead")
	})
	f := wire.FailureOf(st)
	switch {
	case done && !early && (st.Code() != codes.Unavailable || f.NotDone):
		p.t.Errorf("done, and then: %v %v", out, st)
	case !done && st.Code() == codes.Unavailable:
		return false
	case !done && st.Code() != codes.OK:
		p.t.Errorf("not done, and then: %v %v", out, st)
	}
	return !early
}

// A call with a key that one leader may have done is brought before the next. If that
// one cannot do it, nobody knows whether it was done.
func TestRelay_TriedBefore(t *testing.T) {
	p := newPack(t, brief)
	at := p.leader()
	for i, l := range p.links {
		if i != at {
			l.Cut() // before anybody has connected: the next leader cannot be reached
		}
	}
	g, in := p.all[at], &pb.CounterAddRequest{Name: "n"}
	ctx := metadata.NewIncomingContext(p.ctx, metadata.Pairs(gateway.HeaderKey, "once"))
	_, st := g.call(ctx, pb.CounterService_Add_FullMethodName, in, func(ctx context.Context, _ any) (any, error) {
		if _, err := (gateway.Counters{Gateway: g.gateway}).Add(ctx, in); err != nil {
			t.Error(err)
		}
		p.moveFrom(at)
		return nil, &driver.Error{Kind: driver.ErrUnavailable, Err: errors.New("another node took over")}
	})
	if st.Code() != codes.Unavailable || wire.FailureOf(st).NotDone {
		t.Errorf("done, then not reached: %v %v", st, wire.FailureOf(st))
	}
}

// moveFrom has another node lead.
func (p *pack) moveFrom(at int) {
	for p.ctx.Err() == nil {
		l, changed := p.nodes[at].Leader()
		if l.ID != 0 && l.ID != uint64(at+1) {
			return
		}
		if err := p.nodes[at].Transfer(p.ctx, uint64((at+1)%3+1)); err != nil && !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrConflict) {
			p.t.Error(err)
		}
		select {
		case <-changed:
		case <-time.After(time.Second): // it may be refused for a moment
		}
	}
}

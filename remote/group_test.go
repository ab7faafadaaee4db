package remote_test

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/services"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/remote"
	"github.com/holdfast-io/holdfast/server"
)

// group is some nodes with their services, on addresses of their own.
type group struct {
	t       *testing.T
	cfgs    []server.Config
	nodes   []*node
	watches watches
	wires   *host.Pipes // the network of its clients; nil: the real one
}

// watches counts the subscriptions that its nodes serve.
type watches struct {
	mu          sync.Mutex
	open, begun int
	ended       chan struct{} // has one when the last that was open has ended
}

func (w *watches) intercept(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if info.FullMethod != pb.WatchService_Watch_FullMethodName {
		return next(srv, s)
	}
	w.count(1)
	defer w.count(-1)
	return next(srv, s)
}

func (w *watches) count(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open += n
	w.begun += max(n, 0)
	if w.open == 0 {
		select {
		case w.ended <- struct{}{}:
		default:
		}
	}
}

func (w *watches) seen() (open, begun int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open, w.begun
}

// node is one of them; nil while it is down.
type node struct {
	s   *server.Server
	g   *grpc.Server
	svc *api.Service
}

// The ticks of groups: a starved machine must not keep a group from electing, but
// where no node fails a short tick saves time.
const (
	fast   = 20 * time.Millisecond
	steady = 100 * time.Millisecond
)

func newGroup(t *testing.T, n int, tick time.Duration) *group {
	t.Helper()
	return newGroupOn(t, nil, n, tick)
}

// bubbleNode is a node in a bubble of fake time, where a busy machine takes nothing of a TTL.
func bubbleNode(t *testing.T) *group {
	t.Helper()
	return newGroupOn(t, &host.Pipes{}, 1, steady)
}

func newGroupOn(t *testing.T, wires *host.Pipes, n int, tick time.Duration) *group {
	t.Helper()
	g := &group{t: t, watches: watches{ended: make(chan struct{}, 1)}, wires: wires}
	founders := make([]server.Member, n)
	for i := range founders {
		founders[i] = server.Member{ID: uint64(i + 1), Peer: services.Addr(t), Client: services.Addr(t)}
	}
	for i := range founders {
		cfg := server.Config{Dir: shelf(t), ID: uint64(i + 1), Founders: founders, Tick: tick, SnapshotEntries: 1000}
		if n > 1 {
			cfg.Listen = founders[i].Peer
		}
		g.cfgs = append(g.cfgs, cfg)
		g.nodes = append(g.nodes, nil)
		g.start(i)
	}
	t.Cleanup(func() {
		for i := range g.nodes {
			g.stop(i)
		}
	})
	return g
}

// url names all nodes.
func (g *group) url() string {
	var hosts []string
	for _, e := range g.cfgs[0].Founders {
		hosts = append(hosts, e.Client)
	}
	return "holdfast://" + strings.Join(hosts, ",")
}

func (g *group) listen(addr string) (net.Listener, error) {
	if g.wires != nil {
		return g.wires.Listen(addr)
	}
	return net.Listen("tcp", addr)
}

// client is the configuration of one, on the network of the group.
func (g *group) client() remote.Config {
	cfg := remote.Config{Endpoints: []string{g.cfgs[0].Founders[0].Client}}
	if g.wires != nil {
		host.Put(&cfg, &host.Host{Dial: g.wires.Dial})
	}
	return cfg
}

func (g *group) start(i int) {
	s, err := server.New(g.cfgs[i])
	if err != nil {
		g.t.Error(err)
		return
	}
	ln, err := g.listen(g.cfgs[i].Founders[i].Client)
	if err != nil {
		g.t.Error(err)
		_ = s.Close()
		return
	}
	n := &node{s: s, g: grpc.NewServer(grpc.StreamInterceptor(g.watches.intercept)), svc: api.New(s)}
	n.svc.Register(n.g)
	go func() { _ = n.g.Serve(ln) }()
	g.nodes[i] = n
}

// stop ends a node as a crash would: nobody is told, no leadership handed over.
func (g *group) stop(i int) {
	n := g.nodes[i]
	if n == nil {
		return
	}
	g.nodes[i] = nil
	n.g.Stop()
	n.svc.Close()
	if err := n.s.Close(); err != nil {
		g.t.Error(err)
	}
}

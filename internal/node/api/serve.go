package api

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/internal/node/gateway"
)

// Config says how a node is served. The zero value is a plain port on loopback.
type Config struct {
	// TLS is spoken on the port, beside plain text; nil: plain text only. If it
	// demands certificates of clients, plain text is refused.
	TLS *tls.Config
	// Relay is for calls that are passed on to the port of the leader: they go
	// over TLS, only to a node with a certificate for that address; if the
	// leader demands one too, Relay has it. nil: they go in plain text.
	Relay *tls.Config
	// RelayCAs are the authorities that sign the leader's certificate, asked with each
	// connection, so that it can change while the node runs; nil: Relay.RootCAs.
	RelayCAs func() *x509.CertPool
	// Public allows addresses other than loopback. Any client that reaches the port can
	// do everything but change the members: there are no access rules yet.
	Public bool
	// Hosts are names that callers may call the node by, beside its addresses, which
	// it knows: a call that names another is refused, since a page in a browser may have
	// made it (DNS rebinding).
	Hosts []string
	// PeerCAs are the signers of the nodes' certificates: over TLS the members are changed
	// with one of them only. nil: only from the machine of the node.
	PeerCAs func() *x509.CertPool
	// Admin is where profiles (pprof) and metrics are, on loopback; nil: no
	// profiles. Serve closes it.
	Admin net.Listener
	// Grace is how long calls may go on when the node stops; default 5 s. Waits
	// end at once.
	Grace time.Duration
	// Peek is how long a connection may take to say what it wants: its first
	// bytes, a handshake, the header and the body of a request each; default 10 s.
	Peek time.Duration
	// Calls is how many calls may be under way, default 8,192, beside Waits that
	// wait for a hold, watch or carry sessions, default 32,768. Both fill in the
	// order of package admission; a call that finds no room is told when to come back.
	Calls, Waits int
	// Streams is how many of Waits one connection of gRPC may have, default 4,096; a call
	// beyond them is told so, while other calls on it go on.
	Streams int

	host *host.Host // nil: the real machine
}

func init() { host.Accept(func(c *Config, h *host.Host) { c.host = h }) }

// What Calls, Waits and Streams are by default.
const (
	DefaultCalls   = gateway.DefaultCalls
	DefaultWaits   = gateway.DefaultWaits
	DefaultStreams = gateway.DefaultStreams
)

const defaultGrace = 5 * time.Second

func (c Config) filled() Config {
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.Peek == 0 {
		c.Peek = 10 * time.Second
	}
	c.Calls, c.Waits, c.Streams = cmp.Or(c.Calls, DefaultCalls), cmp.Or(c.Waits, DefaultWaits), cmp.Or(c.Streams, DefaultStreams)
	return c
}

// Check refuses what Serve would refuse on ln, for callers that want to know it before the
// node is there.
func (c Config) Check(ln net.Listener) error {
	switch {
	case c.Calls < 0 || c.Waits < 0 || c.Streams < 0 || c.Streams > 1<<20:
		return driver.Errorf("serve", ln.Addr().String(), fs.ErrInvalid, "limits of %d calls, %d waits and %d streams make no sense: give at least 1, or 0 for the default, and at most 2^20 streams", c.Calls, c.Waits, c.Streams)
	case !c.Public && !loopback(ln.Addr()):
		return driver.Errorf("serve", ln.Addr().String(), fs.ErrPermission, "it is not a loopback address, and there are no access rules yet: listen on 127.0.0.1, or make it public if every client that reaches the port may do everything")
	case c.Admin != nil && !loopback(c.Admin.Addr()):
		return driver.Errorf("serve", c.Admin.Addr().String(), fs.ErrPermission, "the admin address shows the memory of the process: use a loopback address")
	}
	return nil
}

func loopback(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// Serve serves a node on one port: gRPC, HTTP with JSON, health, metrics. It
// returns when ctx ends, after it has handed leadership over to another node if
// there is one and has answered the calls under way, or when the node stops. It
// closes ln, not the node.
func Serve(ctx context.Context, ln net.Listener, svc *Service, cfg Config) error {
	if err := cfg.Check(ln); err != nil {
		ln.Close()
		return err
	}
	cfg = cfg.filled()
	svc.gateway.Limit(cfg.Calls, cfg.Waits, cfg.Streams)
	svc.relay.Limit(cfg.Streams)
	svc.relay.Secure(cfg.Relay, cfg.RelayCAs, cfg.host.Dialer())
	d := svc.callerCheck(&cfg, ln.Addr())
	p := newPort(ln, d.asking(cfg.TLS), cfg.Peek)
	rpc, alive := svc.grpcServer(d, cfg.Peek, cfg.Streams)
	web, admin := httpServer(d, svc.handler(), cfg.Peek), httpServer(d, svc.admin(), cfg.Peek)
	var busy sync.WaitGroup
	busy.Go(func() { _ = p.run() })
	busy.Go(func() { _ = rpc.Serve(p.grpc) })
	busy.Go(func() { _ = web.Serve(p.http) })
	ports := []*port{p}
	if cfg.Admin != nil {
		side := newPort(cfg.Admin, nil, cfg.Peek)
		side.grpc = side.http // HTTP/2 is refused there
		busy.Go(func() { _ = side.run() })
		busy.Go(func() { _ = admin.Serve(side.http) })
		ports = append(ports, side)
	}
	select {
	case <-ctx.Done():
	case <-svc.node.Done():
	}
	alive.Shutdown()
	svc.drain(cfg.Grace) // while this node can still withdraw what they waited for
	svc.handOver(cfg.Grace)
	for _, p := range ports {
		p.close()
	}
	stop(ports, rpc, []*http.Server{web, admin}, cfg.Grace)
	busy.Wait()
	svc.gateway.Close()
	return svc.node.Err()
}

// drain ends the calls that wait.
func (s *Service) drain(grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	s.gateway.Drain(ctx)
}

// stop lets calls end, for a while; then every connection is cut.
func stop(ports []*port, rpc *grpc.Server, web []*http.Server, grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	cut := func() {
		for _, p := range ports {
			p.cut()
		}
	}
	late := context.AfterFunc(ctx, func() {
		cut()
		rpc.Stop()
	})
	defer late()
	rpc.GracefulStop()
	for _, s := range web {
		if s.Shutdown(ctx) != nil {
			s.Close()
		}
	}
	cut() // connections that have not sent anything yet
}

// handOver gives leadership to another voter, and waits until it has it.
func (s *Service) handOver(grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	st, err := s.node.Status(ctx)
	if err != nil || !st.Serving {
		return
	}
	for range 2 * len(st.Members.Conf.GetVoters()) {
		if err := s.node.Transfer(ctx, 0); err != nil || s.deposed(ctx) {
			return
		}
	}
}

// deposed waits for the end of this node's leadership; false: the other node did
// not take it within two election timeouts.
func (s *Service) deposed(ctx context.Context) bool {
	for range 40 {
		if st, err := s.node.Status(ctx); err != nil || !st.Leading {
			return true
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return true
		}
	}
	return false
}

// grpcServer is the gRPC side of the port.
func (s *Service) grpcServer(d *callerCheck, peek time.Duration, streams int) (*grpc.Server, *health.Server) {
	server := s.rpc.Server(peek, streams, maxHeader, visits{insecure.NewCredentials(), d})
	alive := health.NewServer()
	healthpb.RegisterHealthServer(server, alive)
	reflection.Register(server)
	return server, alive
}

// maxHeader is how many bytes of metadata or headers a call may have.
const maxHeader = 16 << 10

// httpServer is the HTTP side of a port. A caller that sends its request too
// slowly is cut off; answers may take as long as a wait does.
func httpServer(d *callerCheck, h http.Handler, peek time.Duration) *http.Server {
	return &http.Server{
		Handler: whileThere(timely(d.around(h), peek)), ConnContext: d.connected, ReadHeaderTimeout: peek, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: maxHeader, ErrorLog: quiet,
	}
}

// admin is profiles and metrics. A request may be as long as one of the services.
func (s *Service) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.Handle("/metrics", s.metrics())
	return http.MaxBytesHandler(mux, gateway.MaxRequest)
}

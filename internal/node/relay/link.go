package relay

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"math"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"

	"github.com/holdfast-io/holdfast/internal/node/gateway"
)

// Relay has the leader answer calls that came to another node.
type Relay struct {
	g *gateway.Gateway
	// Pulse is how often a leader is asked for a sign of life while calls wait for its
	// answer, and Silence how long it may take to give one.
	Pulse, Silence time.Duration

	mu    sync.Mutex
	tls   *tls.Config           // nil: plain text
	cas   func() *x509.CertPool // nil: those of tls
	dial  Dialer
	links map[*gateway.Tenure]*leaderLink
	// laneCalls is how many calls go over one connection to a leader at a time: far
	// fewer than it takes, since some may stay for long.
	laneCalls int
}

// New is the relay of a node.
func New(g *gateway.Gateway) *Relay {
	r := &Relay{g: g, Pulse: 2 * time.Second, Silence: 10 * time.Second, links: map[*gateway.Tenure]*leaderLink{}}
	r.Limit(gateway.DefaultStreams)
	return r
}

// Limit is told how many calls that stay a leader takes on one connection, which gets a
// quarter of them: nodes of one group have the same limits.
func (r *Relay) Limit(streams int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.laneCalls = max(1, streams/4)
}

// Dialer connects to a leader; nil: as usual.
type Dialer func(ctx context.Context, addr string) (net.Conn, error)

// options are those of a connection for gRPC.
func (d Dialer) options(way credentials.TransportCredentials) []grpc.DialOption {
	whole := grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)) // the caller may take it
	opts := []grpc.DialOption{grpc.WithTransportCredentials(way), grpc.WithStatsHandler(sentHandler{}), whole}
	if d != nil {
		opts = append(opts, grpc.WithContextDialer(d))
	}
	return opts
}

// idle is how long a connection for HTTP is kept without a call: not as long as the port of a
// leader keeps it, two minutes, since a call that meets its end may have been done or not.
const idle = 90 * time.Second

// transport is that of a connection for HTTP.
func (d Dialer) transport() *http.Transport {
	t := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: idle}
	if d != nil {
		t.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) { return d(ctx, addr) }
	}
	return t
}

// Secure says how the leader is asked, over TLS or not; it is called before anybody is.
func (r *Relay) Secure(cfg *tls.Config, cas func() *x509.CertPool, dial Dialer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tls, r.cas, r.dial = cfg, cas, dial
}

// trusting is cfg for a connection that begins now.
func trusting(cfg *tls.Config, cas func() *x509.CertPool) *tls.Config {
	if cfg = cfg.Clone(); cas != nil {
		cfg.RootCAs = cas()
	}
	return cfg
}

// current is TLS that asks with each connection which authorities to trust.
type current struct {
	credentials.TransportCredentials
	cfg *tls.Config
	cas func() *x509.CertPool
}

func (c current) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(trusting(c.cfg, c.cas)).ClientHandshake(ctx, authority, raw)
}

// Clone is of credentials.TransportCredentials.
func (c current) Clone() credentials.TransportCredentials { return c }

// leaderLink is the way to a leader, for one tenure.
type leaderLink struct {
	addr  string
	way   credentials.TransportCredentials
	dial  Dialer
	conns []*lane
	web   *http.Transport
	url   url.URL
	uses  int // calls that wait for an answer
	stop  context.CancelFunc
}

// lane is one of the connections of a link.
type lane struct {
	conn *grpc.ClientConn
	uses int
}

// use is the way to the leader of t, for one call; leave has to be called with its
// answer.
func (r *Relay) use(t *gateway.Tenure) (*leaderLink, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.links[t]
	if l == nil {
		l = r.link(t.Addr)
		if _, err := l.lane(r.laneCalls); err != nil { // over which it is watched
			return nil, err
		}
		r.links[t] = l
		context.AfterFunc(t.Context(), func() { r.ended(t) })
	}
	if l.uses++; l.uses == 1 {
		var ctx context.Context
		ctx, l.stop = context.WithCancel(t.Context())
		go r.watch(ctx, t, l.conns[0].conn)
	}
	return l, nil
}

// leave ends a call's use of the way to the leader of t.
func (r *Relay) leave(t *gateway.Tenure, l *leaderLink) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.uses--; l.uses > 0 {
		return
	}
	l.stop()
	if t.Context().Err() != nil {
		r.close(t, l)
	}
}

// invoke runs a call over one of the connections.
func (r *Relay) invoke(ctx context.Context, l *leaderLink, method string, in, out any) error {
	r.mu.Lock()
	x, err := l.lane(r.laneCalls)
	if err == nil {
		x.uses++
	}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	err = x.conn.Invoke(ctx, method, in, out)
	r.mu.Lock()
	defer r.mu.Unlock()
	x.uses--
	return err
}

// ended closes the way to a leader after its tenure. Calls under way end by
// themselves and close it then.
func (r *Relay) ended(t *gateway.Tenure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.links[t]; l != nil && l.uses == 0 {
		r.close(t, l)
	}
}

// close is the end of a way; r is locked.
func (r *Relay) close(t *gateway.Tenure, l *leaderLink) {
	delete(r.links, t)
	for _, x := range l.conns {
		x.conn.Close()
	}
	l.web.CloseIdleConnections()
}

// link is a way to a leader; nothing is sent yet. r is locked.
func (r *Relay) link(addr string) *leaderLink {
	l := &leaderLink{addr: addr, way: insecure.NewCredentials(), dial: r.dial, web: r.dial.transport(), url: url.URL{Scheme: "http", Host: addr}}
	if cfg, cas := r.tls, r.cas; cfg != nil {
		l.way, l.url.Scheme = current{credentials.NewTLS(cfg), cfg, cas}, "https"
		l.web.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&tls.Dialer{Config: trusting(cfg, cas)}).DialContext(ctx, network, addr)
		}
	}
	return l
}

// lane is the first connection with fewer calls than most, or a new one.
func (l *leaderLink) lane(most int) (*lane, error) {
	for _, x := range l.conns {
		if x.uses < most {
			return x, nil
		}
	}
	conn, err := grpc.NewClient(l.addr, l.dial.options(l.way)...)
	if err != nil {
		return nil, err
	}
	x := &lane{conn: conn}
	l.conns = append(l.conns, x)
	return x, nil
}

// watch asks the leader for a sign of life again and again, while calls wait for its
// answer, and gives it up when none comes. What it says is all the same: health need
// not be served there.
func (r *Relay) watch(ctx context.Context, t *gateway.Tenure, conn *grpc.ClientConn) {
	tick := time.NewTicker(r.Pulse)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		within, cancel := context.WithTimeout(ctx, r.Silence)
		_, err := healthpb.NewHealthClient(conn).Check(within, &healthpb.HealthCheckRequest{})
		silent := err != nil && within.Err() != nil && ctx.Err() == nil
		cancel()
		if silent {
			r.g.GiveUp(t)
			return
		}
	}
}

// sentKey is that of a call's mark whether something of it was sent.
type sentKey struct{}

// sentHandler sets that mark. It is set before a call returns, so that a call
// without it certainly did not reach the leader.
type sentHandler struct{}

// HandleRPC is of stats.Handler.
func (sentHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutHeader); ok {
		if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
			sent.Store(true)
		}
	}
}

// TagRPC is of stats.Handler, as are the two others.
func (sentHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn is of stats.Handler.
func (sentHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn is of stats.Handler.
func (sentHandler) HandleConn(context.Context, stats.ConnStats) {}

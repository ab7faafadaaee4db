package api_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/services"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/remote"
	"github.com/holdfast-io/holdfast/server"
)

// both is the TLS of a node that demands a certificate of everybody, and of a
// client that has one.
func both(t *testing.T, a *services.Authority) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{a.Issue(t, "node")}, RootCAs: a.Roots(), ClientCAs: a.Roots(),
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}
}

// locksOver are the locks of a node, over TLS.
func (r *rig) locksOver(cfg *tls.Config) pb.LockServiceClient {
	r.t.Helper()
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return pb.NewLockServiceClient(conn)
}

// postOver is a request over TLS.
func (r *rig) postOver(cfg *tls.Config, path, body string) (*http.Response, error) {
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg}}
	r.t.Cleanup(web.CloseIdleConnections)
	return web.Post("https://"+r.addr+path, "application/json", strings.NewReader(body))
}

// Nodes that serve TLS pass calls on over TLS, with a certificate where one is
// demanded; Holdfast's own client finds the leader over it too.
func TestRelay_TLS(t *testing.T) {
	cfg := both(t, services.NewAuthority(t, "ours"))
	rigs := trioWith(t, api.Config{TLS: cfg, Relay: cfg})
	at := leader(t, rigs)
	r := rigs[(at+1)%3]
	a := must[*pb.LockResponse](t)(r.locksOver(cfg).Lock(r.ctx, &pb.LockRequest{Name: "x"}))
	if a.Header.MemberId != uint64(at+1) {
		t.Errorf("answered by %v", a.Header)
	}
	res, err := r.postOver(cfg, "/v1/locks/x:acquire", `{"timeout_ms":0}`)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 409 {
		t.Errorf("a lock that is held is answered with %s", res.Status)
	}
	s, err := remote.Open(remote.Config{Endpoints: []string{r.addr}, TLS: cfg})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	hold, err := s.Mutex("y").Acquire(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
}

// A leader that the relay does not trust is not asked, and never in plain text.
func TestRelay_LeaderIsNotTrusted(t *testing.T) {
	cfg, strangers := both(t, services.NewAuthority(t, "ours")), both(t, services.NewAuthority(t, "others"))
	plain := &tls.Config{Certificates: cfg.Certificates} // without certificates of clients, plain text would be taken
	rigs := trioWith(t, api.Config{TLS: plain, Relay: strangers})
	at := leader(t, rigs)
	r := rigs[(at+1)%3]
	_, err := r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x"})
	wantCode(t, err, codes.Unavailable)
	r.want(503, "POST", "/v1/locks/x:acquire", "{}")
	rigs[at].holders("x", 0)
}

// Whom the relay trusts is asked with each connection: a leader of an authority that
// was added is asked without a restart.
func TestRelay_AuthorityChanges(t *testing.T) {
	ours, others := services.NewAuthority(t, "ours"), services.NewAuthority(t, "others")
	var trusted atomic.Pointer[x509.CertPool]
	trusted.Store(others.Roots())
	cfg := both(t, ours)
	rigs := trioWith(t, api.Config{TLS: &tls.Config{Certificates: cfg.Certificates}, Relay: &tls.Config{}, RelayCAs: trusted.Load})
	r := rigs[(leader(t, rigs)+1)%3]
	_, err := r.locks().TryLock(r.ctx, &pb.TryLockRequest{Name: "x"})
	wantCode(t, err, codes.Unavailable)
	r.want(503, "POST", "/v1/locks/x:acquire", "{}")
	trusted.Store(ours.Roots())
	r.want(200, "POST", "/v1/locks/y:acquire", "{}")
	for err != nil && r.ctx.Err() == nil { // gRPC waits a while before it connects again
		_, err = r.locks().TryLock(r.ctx, &pb.TryLockRequest{Name: "x"})
	}
	if err != nil {
		t.Error(err)
	}
}

// Where certificates of clients are demanded, nobody gets in without: not in plain
// text, not with another's certificate.
func TestPort_ClientCertificates(t *testing.T) {
	ours := services.NewAuthority(t, "ours")
	cfg, strangers := both(t, ours), both(t, services.NewAuthority(t, "others"))
	r := serveWith(t, api.Config{TLS: cfg})
	strangers.RootCAs = ours.Roots()
	for who, cfg := range map[string]*tls.Config{"nobody": {RootCAs: ours.Roots()}, "a stranger": strangers} {
		if _, err := r.locksOver(cfg).TryLock(r.ctx, &pb.TryLockRequest{Name: "x"}); err == nil {
			t.Errorf("%s is let in by gRPC", who)
		}
		if res, err := r.postOver(cfg, "/v1/locks/x:acquire", "{}"); err == nil {
			res.Body.Close()
			t.Errorf("%s is let in by HTTP: %s", who, res.Status)
		}
	}
	if _, err := r.locks().TryLock(r.ctx, &pb.TryLockRequest{Name: "x"}); err == nil {
		t.Error("plain gRPC is let in")
	}
	res, err := r.web.Post("http://"+r.addr+"/v1/locks/x:acquire", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, _ := io.ReadAll(res.Body); res.StatusCode != 400 || !strings.Contains(string(text), "TLS only") {
		t.Errorf("plain HTTP is answered with %s %s", res.Status, text)
	}
	must[*pb.TryLockResponse](t)(r.locksOver(cfg).TryLock(r.ctx, &pb.TryLockRequest{Name: "x"}))
}

// holdfasts:// believes nobody whom the system does not.
func TestPort_ServerIsVerified(t *testing.T) {
	r := serveWith(t, api.Config{TLS: &tls.Config{Certificates: []tls.Certificate{services.NewAuthority(t, "ours").Issue(t, "node")}}})
	s, err := holdfast.Open(r.ctx, "holdfasts://"+r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(r.ctx, 2*time.Second)
	defer cancel()
	if _, err := s.Mutex("x").Acquire(ctx); err == nil {
		t.Error("a server of an unknown authority is believed")
	}
	r.holders("x", 0)
}

// A follower refuses in the order of the leader what it would pass on, over HTTP as
// by gRPC, and says so in the caller's protocol.
func TestRelay_TooManyCalls(t *testing.T) {
	rigs := trio(t)
	node := rigs[(leader(t, rigs)+1)%3].node
	r := serveNode(t, node, api.Config{Calls: 1})
	_, err := r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x"})
	exhausted(t, err, "--max-calls")
	for path, want := range map[string]int{
		"/v1/locks/x:acquire": 429, "/v1/leases/:open": 429, "/v1/nonsense/x:do": 429, "/v1/locks/x:release": 400,
		"/holdfast.v1.LockService/Lock": 429, "/holdfast.v1.Nonsense/Do": 429, "/holdfast.v1.LockService/Unlock": 400,
	} {
		answer := r.want(want, "POST", path, "{}")
		if want == 429 && answer["kind"] != "exhausted" && answer["code"] != "resource_exhausted" {
			t.Errorf("%s is answered with %v", path, answer)
		}
	}
	r.want(413, "POST", "/v1/locks/x:acquire", strings.Repeat(" ", 1<<17))
	metrics := strings.Join(r.typed("curl -s localhost:7420/metrics", 1000), "\n")
	if strings.Contains(metrics, "onsense") || !strings.Contains(metrics, `code="ResourceExhausted",method="locks.acquire POST"`) {
		t.Errorf("the metrics are\n%s", metrics)
	}
}

// A waiter at the leader does not keep others out of the follower, as long as it
// has room for waits; then releases still pass.
func TestRelay_Waits(t *testing.T) {
	rigs := trio(t)
	at := leader(t, rigs)
	hold := must[*pb.LockResponse](t)(rigs[at].locks().Lock(t.Context(), &pb.LockRequest{Name: "x"}))
	r := serveNode(t, rigs[(at+1)%3].node, api.Config{Calls: 8, Waits: 8})
	ctx, cancel := context.WithCancel(r.ctx)
	ended := make(chan bool, 12)
	for i := range cap(ended) { // six rest, six work
		go func() { ended <- r.locked(ctx, "x", i%2 == 0) }()
		rigs[at].waiters("x", i+1)
		if i == 6 {
			r.want(200, "POST", "/v1/counters/n:add", `{"amount":1}`)
		}
	}
	r.want(429, "POST", "/v1/counters/n:add", `{"amount":1}`)
	r.want(200, "POST", "/v1/locks/x:release", fmt.Sprintf(`{"token":%d}`, hold.FencingToken))
	if !<-ended {
		t.Error("who waited first did not get the lock")
	}
	cancel()
	for range cap(ended) - 1 {
		<-ended
	}
}

// locked waits for a lock, over HTTP or by gRPC.
func (r *rig) locked(ctx context.Context, name string, web bool) bool {
	if !web {
		_, err := r.locks().Lock(ctx, &pb.LockRequest{Name: name})
		return err == nil
	}
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+r.addr+"/v1/locks/"+name+":acquire", strings.NewReader("{}"))
	if err != nil {
		return false
	}
	res, err := r.web.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	return res.StatusCode == 200
}

// overheard are the metadata of calls.
type overheard struct {
	mu    sync.Mutex
	calls []metadata.MD
}

func (o *overheard) unary(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	o.mu.Lock()
	o.calls = append(o.calls, md)
	o.mu.Unlock()
	return next(ctx, r)
}

// A call that is passed on belongs to the trace of its caller: interceptors around
// the leader's services see it.
func TestRelay_Trace(t *testing.T) {
	heard := make([]overheard, 3)
	rigs := make([]*rig, 3)
	lns := []net.Listener{listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")}
	for i, node := range founded(t, func(i int) string { return lns[i].Addr().String() }) {
		g, svc := grpc.NewServer(grpc.UnaryInterceptor(heard[i].unary)), api.New(node)
		svc.Register(g)
		go func() { _ = g.Serve(lns[i]) }()
		t.Cleanup(func() { g.Stop(); svc.Close() })
		rigs[i] = &rig{t: t, ctx: t.Context(), node: node, addr: lns[i].Addr().String()}
	}
	at := leader(t, rigs)
	conn, err := grpc.NewClient(rigs[(at+1)%3].addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	must[*pb.LockResponse](t)(pb.NewLockServiceClient(conn).Lock(metadata.AppendToOutgoingContext(t.Context(), trace...), &pb.LockRequest{Name: "x"}))
	heard[at].mu.Lock()
	defer heard[at].mu.Unlock()
	for i := 0; i < len(trace); i += 2 {
		if !slices.ContainsFunc(heard[at].calls, func(md metadata.MD) bool { return slices.Equal(md.Get(trace[i]), trace[i+1:i+2]) }) {
			t.Errorf("the leader is not told %s: %v", trace[i], heard[at].calls)
		}
	}
}

// So does a request over HTTP.
func TestRelay_TraceOverHTTP(t *testing.T) {
	headers := make(chan http.Header, 1)
	stand := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header
		_, _ = io.WriteString(w, "{}")
	}))
	defer stand.Close()
	var rigs []*rig
	for _, node := range founded(t, func(int) string { return stand.Listener.Addr().String() }) {
		rigs = append(rigs, serveNode(t, node, api.Config{}))
	}
	at := leader(t, rigs)
	other := rigs[(at+1)%3]
	for st := must[replica.Status](t)(other.node.Status(t.Context())); st.Leader == 0; { // until it knows a leader
		st = must[replica.Status](t)(other.node.Status(t.Context()))
	}
	other.want(200, "POST", "/v1/locks/x:acquire", "{}", trace...)
	var got http.Header
	select {
	case got = <-headers:
	case <-other.ctx.Done():
		t.Fatal("nothing was passed on")
	}
	for i := 0; i < len(trace); i += 2 {
		if got.Get(trace[i]) != trace[i+1] {
			t.Errorf("the leader is not told %s: %v", trace[i], got)
		}
	}
}

// trace is what a caller says about its trace.
var trace = []string{"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate", "vendor=1", "baggage", "user=7"}

// founded are three nodes, with the addresses for clients that others are told.
func founded(t *testing.T, client func(i int) string) (nodes []*server.Server) {
	t.Helper()
	var founders []server.Member
	for i := range 3 {
		founders = append(founders, server.Member{ID: uint64(i + 1), Peer: services.Addr(t), Client: client(i)})
	}
	for i := range 3 {
		node, err := server.New(server.Config{Dir: t.TempDir(), ID: uint64(i + 1), Founders: founders, Listen: founders[i].Peer})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { node.Close() })
		nodes = append(nodes, node)
	}
	return nodes
}

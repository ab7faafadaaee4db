package api_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/services"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// gRPC and HTTP, plain and over TLS, are spoken on the same port.
func TestOnePort(t *testing.T) {
	ours := services.NewAuthority(t, "ours")
	r := serveWith(t, api.Config{TLS: &tls.Config{Certificates: []tls.Certificate{ours.Issue(t, "node")}}})
	roots := ours.Roots()
	must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: "plain grpc"}))
	r.want(200, "POST", "/v1/locks/plain-http:acquire", "")

	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	must[*pb.LockResponse](t)(pb.NewLockServiceClient(conn).Lock(r.ctx, &pb.LockRequest{Name: "grpc over TLS"}))
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
	defer web.CloseIdleConnections()
	res, err := web.Post("https://"+r.addr+"/v1/locks/https:acquire", "application/json", strings.NewReader("{}"))
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("https: %v, %v", res, err)
	}
	res.Body.Close()
	for _, name := range []string{"plain grpc", "plain-http", "grpc over TLS", "https"} {
		r.holders(name, 1)
	}
}

func TestHealthAndReflection(t *testing.T) {
	r := serve(t)
	h := must[*healthpb.HealthCheckResponse](t)(healthpb.NewHealthClient(r.conn).Check(r.ctx, &healthpb.HealthCheckRequest{}))
	if h.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health %v", h)
	}
	s := must[reflectionpb.ServerReflection_ServerReflectionInfoClient](t)(reflectionpb.NewServerReflectionClient(r.conn).ServerReflectionInfo(r.ctx))
	if err := s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	list := must[*reflectionpb.ServerReflectionResponse](t)(s.Recv())
	if n := len(list.GetListServicesResponse().GetService()); n < 15 {
		t.Errorf("%d services", n)
	}
	_ = s.CloseSend()
	_, _ = s.Recv()
}

// dial opens a bare connection and sends something.
func (r *rig) dial(text string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// A client that says nothing, or garbage, is cut off; others do not notice.
func TestGarbageAndSilence(t *testing.T) {
	r := serveWith(t, api.Config{Peek: 100 * time.Millisecond})
	for _, text := range []string{
		"", "G", "GE", "\x16", "\x16\x03\x01", "\x16\x03\x01\x00\x05hello", "\x00\x00\x00\x00", "PRI * HTTP/2.0\r\n\r\nnonsense\r\n\r\n" + strings.Repeat("x", 100),
		"\xff\xfe\xfd garbage\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "POST /v1/locks/x:acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
		"POST /v1/locks/x:acquire HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"POST /v1/locks/x:acquire HTTP/1.1\r\nHost: elsewhere.example\r\nContent-Length: 5\r\n\r\n{",
		"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n{",
		"POST /v1/locks/x:acquire HTTP/1.1\r\nHost: localhost\r\nOrigin: http://elsewhere.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
		"GET /" + strings.Repeat("a", 40_000) + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		c := r.dial(text)
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			t.Errorf("%.20q was not cut off", text)
		}
	}
	r.untouched()
	must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x"}))
}

func isTimeout(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}

// Callers that never finish their request keep nobody else from being served, and
// a stop does not wait for them.
func TestSlowCallers(t *testing.T) {
	r := serveWith(t, api.Config{Grace: 100 * time.Millisecond})
	for range 100 {
		r.dial("")
		r.dial("POST /v1/locks/x:acquire HTTP/1.1\r\nHo")
		r.dial("POST /v1/locks/x:acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
		r.dial("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	}
	r.want(200, "POST", "/v1/locks/y:acquire", "")
	must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: "z"}))
	r.holders("x", 0)
	r.stop()
}

// A stop does not wait for a client that has said nothing.
func TestStopWithSilentCallers(t *testing.T) {
	r := serveWith(t, api.Config{Peek: time.Hour, Grace: time.Minute})
	r.dial("")
	r.dial("GE")
	r.want(200, "POST", "/v1/locks/x:acquire", "") // they have been accepted
	r.stop()
}

// A client whose connection breaks while it waits is taken out of the queue.
func TestBrokenConnection(t *testing.T) {
	r := serve(t)
	r.want(200, "POST", "/v1/locks/x:acquire", "")
	c := r.dial("POST /v1/locks/x:acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
	r.waiters("x", 1)
	c.Close()
	r.waiters("x", 0)
}

func TestOnlyLoopback(t *testing.T) {
	node, err := server.New(server.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	ln, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Serve(t.Context(), ln, api.New(node), api.Config{}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("served on all addresses: %v", err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
	any, admin := listen(t, "127.0.0.1:0"), listen(t, "0.0.0.0:0")
	if err := api.Serve(t.Context(), any, api.New(node), api.Config{Admin: admin}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("profiles on all addresses: %v", err)
	}
}

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func TestAdminAddress(t *testing.T) {
	ln := listen(t, "127.0.0.1:0")
	r := serveWith(t, api.Config{Admin: ln})
	for _, path := range []string{"/debug/pprof/cmdline", "/metrics"} {
		res, err := r.web.Get("http://" + ln.Addr().String() + path)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%s: %v, %v", path, res, err)
		}
		res.Body.Close()
	}
	if code, _ := r.status("/debug/pprof/cmdline"); code != 404 {
		t.Errorf("profiles are on the public port: %d", code)
	}
}

// The admin address has the limits of the port: a caller that says nothing, does not end its header or its body, or leaves its
// answer unread is cut off, and what is too long is refused.
func TestAdminLimits(t *testing.T) {
	ln := listen(t, "127.0.0.1:0")
	r := serveWith(t, api.Config{Admin: ln, Peek: 100 * time.Millisecond})
	side := &rig{t: t, ctx: r.ctx, addr: ln.Addr().String()}
	for _, text := range []string{
		"", "G", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /metrics HTTP/1.1\r\nHo", "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n{",
		"POST /debug/pprof/symbol HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n0x1",
		"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 40_000) + "\r\n\r\n",
	} {
		c := side.dial(text)
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			t.Errorf("%.30q was not cut off", text)
		}
	}
	for asked, want := range map[string]string{"GET trace?seconds=0.3": "trace\x00", "POST symbol": "too large"} { // an answer may take longer than a request
		method, path, _ := strings.Cut(asked, " ")
		req, _ := http.NewRequestWithContext(r.ctx, method, "http://"+side.addr+"/debug/pprof/"+path, nil)
		if method == "POST" {
			req.Body = io.NopCloser(strings.NewReader(strings.Repeat("0x1+", 17_000)))
		}
		res, err := r.web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if text, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %.100q, %v", asked, text, err)
		}
	}
}

func (r *rig) status(path string) (int, error) {
	res, err := r.web.Get("http://" + r.addr + path)
	if err != nil {
		return 0, err
	}
	res.Body.Close()
	return res.StatusCode, nil
}

// A page of another site cannot use the node behind its user's back.
func TestCrossOrigin(t *testing.T) {
	r := serve(t)
	code, _ := r.postFrom("https://evil.example")
	if code != 403 {
		t.Errorf("status %d", code)
	}
	r.holders("x", 0)
}

func (r *rig) postFrom(origin string) (int, error) {
	req, _ := http.NewRequestWithContext(r.ctx, "POST", "http://"+r.addr+"/v1/locks/x:acquire", nil)
	req.Header.Set("Origin", origin)
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	res, err := r.web.Do(req)
	if err != nil {
		return 0, err
	}
	res.Body.Close()
	return res.StatusCode, nil
}

// trio is three nodes with their ports.
func trio(t *testing.T) []*rig {
	t.Helper()
	return trioWith(t, api.Config{})
}

// trioWith is three nodes with the default tick: with a shorter one a busy machine
// lets them elect another leader in the midst of a case.
func trioWith(t *testing.T, cfg api.Config) []*rig {
	t.Helper()
	var founders []server.Member
	var lns []net.Listener
	for i := range 3 {
		lns = append(lns, listen(t, "127.0.0.1:0"))
		founders = append(founders, server.Member{ID: uint64(i + 1), Peer: services.Addr(t), Client: lns[i].Addr().String()})
	}
	var rigs []*rig
	for i := range 3 {
		node, err := server.New(server.Config{Dir: t.TempDir(), ID: uint64(i + 1), Founders: founders, Listen: founders[i].Peer})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { node.Close() })
		rigs = append(rigs, serveOn(t, lns[i], node, cfg))
	}
	return rigs
}

// Every node serves everybody: a follower asks the leader.
func TestRelay(t *testing.T) {
	rigs := trio(t)
	at := leader(t, rigs)
	r := rigs[(at+1)%3]
	team := r.as("holdfast-namespace", "team", "idempotency-key", "k")
	a := must[*pb.LockResponse](t)(r.locks().Lock(team, &pb.LockRequest{Name: "x", Owner: "me"}))
	if a.Header.MemberId != uint64(at+1) {
		t.Errorf("answered by %v", a.Header)
	}
	f := r.want(409, "POST", "/v1/locks/x:acquire", `{"timeout_ms":0}`, "Holdfast-Namespace", "team")
	if f["holder"] != "me" {
		t.Errorf("refused with %v", f)
	}
	r.want(200, "POST", "/holdfast.v1.LockService/TryLock", `{"name":"other"}`)
	_, err := r.locks().Unlock(r.ctx, &pb.UnlockRequest{Key: a.Key})
	wantCode(t, err, codes.FailedPrecondition) // another namespace
	_, err = r.locks().Lock(team, &pb.LockRequest{Name: "other"})
	wantCode(t, err, codes.Aborted) // the key of another request
	st := must[*pb.StatusResponse](t)(pb.NewAdminServiceClient(r.conn).Status(r.ctx, &pb.StatusRequest{}))
	if st.Header.MemberId == uint64(at+1) || st.Leader != uint64(at+1) {
		t.Errorf("status %v", st)
	}
	c := r.dial("POST /v1/locks/other:acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
	rigs[at].waiters("other", 1)
	c.Close()
	rigs[at].waiters("other", 0)
}

// leader waits until a node leads.
func leader(t *testing.T, rigs []*rig) (at int) {
	t.Helper()
	for ; ; news(rigs[0].node) {
		for i, r := range rigs {
			if st, err := r.node.Status(t.Context()); err == nil && st.Serving {
				return i
			}
		}
	}
}

// A follower says where the leader is. A leader that stops hands over first: what
// it granted is known to the next, and leases live on there.
func TestFollowersAndHandOver(t *testing.T) {
	rigs := trio(t)
	at := leader(t, rigs)
	l := rigs[at]
	must[*pb.LeaseGrantResponse](t)(l.locks().LeaseGrant(l.ctx, &pb.LeaseGrantRequest{Ttl: 60, Id: 9}))
	a := must[*pb.LockResponse](t)(l.locks().Lock(l.ctx, &pb.LockRequest{Name: "x", LeaseId: 9}))
	other := rigs[(at+1)%3]
	relayed := other.as("holdfast-relayed", "1")
	_, err := other.locks().Lock(relayed, &pb.LockRequest{Name: "y"})
	if f := wantCode(t, err, codes.Unavailable); f.Leader != l.addr || !f.NotDone {
		t.Errorf("a follower answered %v", f)
	}
	if f := other.want(503, "POST", "/v1/locks/y:acquire", "", "Holdfast-Relayed", "1"); f["leader"] != l.addr {
		t.Errorf("a follower answered %v", f)
	}
	waits := make(chan error, 1)
	go func() {
		_, err := l.locks().Lock(l.ctx, &pb.LockRequest{Name: "x"})
		waits <- err
	}()
	l.waiters("x", 1)
	l.stop()
	wantCode(t, <-waits, codes.Unavailable)
	next := leader(t, rigs)
	if next == at {
		t.Fatal("the node that stopped still leads")
	}
	n := rigs[next]
	x := must[*pb.InspectResponse](t)(pb.NewInspectServiceClient(n.conn).Inspect(n.ctx, &pb.InspectRequest{Name: "x"}))
	if len(x.GetResource().GetWaiters()) != 0 {
		t.Errorf("the wait of a call that was answered goes on: %v", x)
	}
	b := must[*pb.LockResponse](t)(n.locks().Lock(n.ctx, &pb.LockRequest{Name: "x", LeaseId: 9}))
	if b.FencingToken != a.FencingToken {
		t.Errorf("the lease's lock has another token: %d, then %d", a.FencingToken, b.FencingToken)
	}
	must[*pb.UnlockResponse](t)(n.locks().Unlock(n.ctx, &pb.UnlockRequest{Key: a.Key}))
	c := must[*pb.LockResponse](t)(n.locks().Lock(n.ctx, &pb.LockRequest{Name: "x", LeaseId: 9}))
	if c.FencingToken <= a.FencingToken {
		t.Errorf("token %d after %d", c.FencingToken, a.FencingToken)
	}
}

// A node that is told to stop stops, however many calls begin meanwhile and fail: here
// there is no leader that could do them.
func TestStop_CallsThatFail(t *testing.T) {
	var founders []server.Member
	for i := range 3 {
		founders = append(founders, server.Member{ID: uint64(i + 1), Peer: services.Addr(t)})
	}
	node, err := server.New(server.Config{Dir: t.TempDir(), ID: 1, Founders: founders, Listen: founders[0].Peer, Tick: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	r := serveNode(t, node, api.Config{Grace: time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	defer callers.Wait()
	defer cancel()
	failed := make(chan struct{}, 100)
	for range 50 {
		callers.Go(func() {
			for ctx.Err() == nil {
				select { // at random, so that there are always some under way
				case <-time.After(rand.N(3 * time.Second)):
				case <-ctx.Done():
				}
				_, _ = r.locks().Lock(ctx, &pb.LockRequest{Name: "x"})
				select {
				case failed <- struct{}{}:
				default:
				}
			}
		})
	}
	<-failed
	stopped := make(chan struct{})
	go func() { r.stop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(30 * time.Second):
		cancel()
		t.Error("it has not stopped after 30 s, and does only when nobody calls")
		<-stopped
	}
}

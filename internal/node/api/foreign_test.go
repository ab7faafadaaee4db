package api_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/node/api"
	"github.com/holdfast-io/holdfast/internal/services"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// ask sends a request that names a host, and returns the status and the answer.
func (r *rig) ask(method, path, host string, headers ...string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.ctx, method, "http://"+r.addr+path, strings.NewReader("{}"))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Host = host
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := r.web.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

// naming is a connection by gRPC whose calls name a host.
func (r *rig) naming(host string) *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(host))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

// called is a node that is also known by a name of its own.
func called(t *testing.T, advertised string, cfg api.Config) *rig {
	t.Helper()
	node, err := server.New(server.Config{Dir: t.TempDir(), Tick: 20 * time.Millisecond, Client: advertised})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	return serveNode(t, node, cfg)
}

// A call that names a host other than the node is refused in every dialect, before it is
// read: a page in a browser can be sent to a node under any name.
func TestForeignHost(t *testing.T) {
	r := called(t, "node1.example:7420", api.Config{Hosts: []string{"locks.example"}})
	for _, host := range []string{"evil.example", "evil.example:7420", "localhost.evil.example", "127.0.0.1.evil.example:80", "10.1.2.3", "xlocks.example", "[2001:db8::1]:7420"} {
		for _, path := range []string{"/v1/locks/x:acquire", "/holdfast.v1.LockService/TryLock", "/holdfast.v1.AdminService/Status", "/metrics", "/healthz", "/nothing"} {
			if code, text := r.ask("POST", path, host); code != http.StatusMisdirectedRequest || !strings.Contains(text, "--host "+strings.Split(strings.Trim(host, "["), "]")[0][:4]) || !strings.Contains(text, `"not_done":true`) {
				t.Errorf("%s with the host %s: %d %s", path, host, code, text)
			}
		}
		conn := r.naming(host)
		_, err := pb.NewLockServiceClient(conn).TryLock(r.ctx, &pb.TryLockRequest{Name: "x"})
		if f := wantCode(t, err, codes.PermissionDenied); !f.NotDone {
			t.Errorf("a call by gRPC with the host %s: %v", host, err)
		}
		_, err = healthpb.NewHealthClient(conn).Check(r.ctx, &healthpb.HealthCheckRequest{})
		wantCode(t, err, codes.PermissionDenied)
		events, err := pb.NewWatchServiceClient(conn).Watch(r.ctx, &pb.WatchRequest{})
		if err == nil {
			_, err = events.Recv()
		}
		wantCode(t, err, codes.PermissionDenied)
	}
	r.holders("x", 0)
	for i, host := range []string{"localhost", "LocalHost.:99", "127.0.0.1", "127.8.8.8:1", "[::1]:7420", r.addr, "locks.example", "LOCKS.example:80", "node1.example", "node1.example:7420"} {
		if code, text := r.ask("POST", fmt.Sprintf("/v1/locks/own%d:acquire", i), host); code != 200 {
			t.Errorf("the host %s: %d %s", host, code, text)
		}
		must[*pb.TryLockResponse](t)(pb.NewLockServiceClient(r.naming(host)).TryLock(r.ctx, &pb.TryLockRequest{Name: fmt.Sprint("rpc", i)}))
	}
	c := r.dial("GET /healthz HTTP/1.0\r\n\r\n") // without a host: no browser
	if b, err := io.ReadAll(c); err != nil || !strings.Contains(string(b), "200 OK") {
		t.Errorf("a request without a host: %s %v", b, err)
	}
}

// Callers of profiles are judged alike.
func TestForeignHost_Admin(t *testing.T) {
	admin := listen(t, "127.0.0.1:0")
	r := serveWith(t, api.Config{Admin: admin})
	r.addr = admin.Addr().String()
	if code, text := r.ask("GET", "/debug/pprof/cmdline", "evil.example"); code != http.StatusMisdirectedRequest {
		t.Errorf("%d %s", code, text)
	}
	if code, _ := r.ask("GET", "/debug/pprof/cmdline", "localhost:1"); code != 200 {
		t.Errorf("the own name: %d", code)
	}
}

// A page of another host may neither change nor read anything.
func TestForeignOrigin(t *testing.T) {
	r := serve(t)
	for _, origin := range []string{"http://evil.example", "null", "https://" + r.addr + ".evil.example", "http://localhost:1", "nonsense"} {
		for _, method := range []string{"GET", "POST"} {
			for _, path := range []string{"/v1/locks/x:acquire", "/v1/watch", "/holdfast.v1.LockService/TryLock", "/metrics"} {
				if code, text := r.ask(method, path, r.addr, "Origin", origin); code != http.StatusForbidden || !strings.Contains(text, "not_done") {
					t.Errorf("%s %s from %s: %d %s", method, path, origin, code, text)
				}
			}
		}
		_, err := r.locks().TryLock(r.as("origin", origin), &pb.TryLockRequest{Name: "x"})
		wantCode(t, err, codes.PermissionDenied)
	}
	if code, _ := r.ask("POST", "/v1/locks/x:acquire", r.addr, "Sec-Fetch-Site", "cross-site"); code != http.StatusForbidden {
		t.Errorf("another site without its name: %d", code)
	}
	r.holders("x", 0)
	if code, text := r.ask("POST", "/v1/locks/x:acquire", r.addr, "Origin", "http://"+r.addr, "Sec-Fetch-Site", "same-origin"); code != 200 {
		t.Errorf("the own page: %d %s", code, text)
	}
}

// A page of a follower's own address is judged there: the leader takes its calls.
func TestForeignOrigin_Relay(t *testing.T) {
	rigs := trio(t)
	at := leader(t, rigs)
	r := rigs[(at+1)%3]
	for host, code := range map[string]int{r.addr: 200, "evil.example": 421} {
		if got, text := r.ask("POST", "/v1/locks/x:acquire", host, "Origin", "http://"+host, "Sec-Fetch-Site", "same-origin"); got != code {
			t.Errorf("through a follower, %s: %d %s", host, got, text)
		}
	}
	rigs[at].holders("x", 1)
}

// strangers is a listener whose callers come from another machine.
type strangers struct{ net.Listener }

func (s strangers) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return stranger{c}, nil
}

type stranger struct{ net.Conn }

func (stranger) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4711} }

// orders are calls that only operators may make, in every dialect; each is its code by
// gRPC.
func (r *rig) orders(id uint64, client string) map[string]func() codes.Code {
	update := fmt.Sprintf(`{"update":[{"id":"%d","peerAddress":"127.0.0.1:1","clientAddress":%q}]}`, id, client)
	admin := pb.NewAdminServiceClient(r.conn)
	posted := func(path, body string, headers ...string) func() codes.Code {
		return func() codes.Code {
			code, _ := r.do("POST", path, body, append(headers, "holdfast-relayed", "1")...)
			return map[int]codes.Code{200: codes.OK, 403: codes.PermissionDenied, 503: codes.Unavailable}[code]
		}
	}
	relayed := metadata.AppendToOutgoingContext(r.ctx, "holdfast-relayed", "1")
	change := &pb.ChangeMembersRequest{Update: []*pb.Member{{Id: id, PeerAddress: "127.0.0.1:1", ClientAddress: client}}}
	return map[string]func() codes.Code{
		"gRPC":                 func() codes.Code { _, err := admin.ChangeMembers(r.ctx, change); return status.Code(err) },
		"gRPC as if passed on": func() codes.Code { _, err := admin.ChangeMembers(relayed, change); return status.Code(err) },
		"gRPC, leader": func() codes.Code {
			_, err := admin.MoveLeader(r.ctx, &pb.MoveLeaderRequest{Id: id})
			return status.Code(err)
		},
		"gRPC, check": func() codes.Code {
			_, err := admin.CheckState(r.ctx, &pb.CheckStateRequest{})
			return status.Code(err)
		},
		"gRPC, unfreeze": func() codes.Code {
			_, err := admin.Unfreeze(r.ctx, &pb.UnfreezeRequest{})
			return status.Code(err)
		},
		"HTTP, check":           posted("/holdfast.v1.AdminService/CheckState", "{}"),
		"HTTP, unfreeze":        posted("/holdfast.v1.AdminService/Unfreeze", "{}"),
		"HTTP":                  posted("/holdfast.v1.AdminService/ChangeMembers", update),
		"HTTP, escaped":         posted("/holdfast.v1.AdminService/Change%4Dembers", update),
		"HTTP, leader":          posted("/holdfast.v1.AdminService/MoveLeader", fmt.Sprintf(`{"id":"%d"}`, id)),
		"HTTP, Connect version": posted("/holdfast.v1.AdminService/ChangeMembers", update, "Connect-Protocol-Version", "1"),
	}
}

// membership is what a node knows of its group.
func (r *rig) membership() string {
	r.t.Helper()
	st, err := r.node.Status(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return fmt.Sprint(st.Leader, st.Term, st.Members.Endpoints)
}

// Members are changed from the machine of a node only, in every dialect, on the leader
// and on another node, which passes the change on; what a stranger claims counts for
// nothing.
func TestMembersFromOtherMachines(t *testing.T) {
	rigs := trio(t)
	at := leader(t, rigs)
	before := rigs[at].membership()
	for _, of := range []int{at, (at + 1) % 3} {
		r := serveOn(t, strangers{listen(t, "127.0.0.1:0")}, rigs[of].node, api.Config{})
		for what, order := range r.orders(uint64((at+2)%3+1), "x:1") {
			if code := order(); code != codes.PermissionDenied {
				t.Errorf("a stranger at node %d of leader %d, %s: %v", of+1, at+1, what, code)
			}
		}
		r.want(200, "POST", "/v1/counters/n:add", "{}") // everything else is taken
	}
	if now := rigs[at].membership(); now != before || t.Failed() {
		t.Fatalf("a stranger has changed %s to %s", before, now)
	}
	follower, third := rigs[(at+1)%3], uint64((at+2)%3+1)
	st, err := follower.node.Status(follower.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range st.Members.Endpoints {
		if e.ID == third {
			change := &pb.ChangeMembersRequest{Update: []*pb.Member{{Id: third, PeerAddress: e.Peer, ClientAddress: "moved:7420"}}}
			must[*pb.ChangeMembersResponse](t)(pb.NewAdminServiceClient(follower.conn).ChangeMembers(follower.ctx, change))
		}
	}
	if now := rigs[at].membership(); !strings.Contains(now, "moved:7420") {
		t.Errorf("what a follower was asked for is not done: %s", now)
	}
	_, err = pb.NewAdminServiceClient(follower.conn).ChangeMembers(follower.ctx, &pb.ChangeMembersRequest{Promote: []uint64{99}})
	if f := wantCode(t, err, codes.InvalidArgument); !f.NotDone || !strings.Contains(err.Error(), "99") {
		t.Errorf("a refusal of the leader through a follower: %v", err)
	}
	follower.want(200, "POST", "/holdfast.v1.AdminService/MoveLeader", fmt.Sprintf(`{"id":"%d"}`, third))
	for leader(t, rigs) != int(third-1) {
		news(follower.node)
	}
}

// A caller from another machine may change members with a certificate of the nodes'
// authority, and with no other.
func TestMembersByCertificate(t *testing.T) {
	ours, others := services.NewAuthority(t, "nodes"), services.NewAuthority(t, "others")
	own := &tls.Config{Certificates: []tls.Certificate{services.NewAuthority(t, "web").Issue(t, "node")}}
	node, err := server.New(server.Config{Dir: t.TempDir(), Tick: 20 * time.Millisecond, Listen: services.Addr(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	r := serveOn(t, strangers{listen(t, "127.0.0.1:0")}, node, api.Config{TLS: own, PeerCAs: ours.Roots})
	change := func(shown ...tls.Certificate) error {
		conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(shown) == 0 {
				return &tls.Certificate{}, nil
			}
			return &shown[0], nil
		}})))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		must[*pb.StatusResponse](t)(pb.NewAdminServiceClient(conn).Status(r.ctx, &pb.StatusRequest{}))
		return promote(r.ctx, conn)
	}
	wantCode(t, change(), codes.PermissionDenied)
	wantCode(t, change(others.Issue(t, "node")), codes.PermissionDenied)
	wantCode(t, promote(r.ctx, r.conn), codes.PermissionDenied) // plain text
	leader(t, []*rig{r})
	if err := change(ours.Issue(t, "node")); status.Code(err) != codes.InvalidArgument {
		t.Errorf("with a certificate of the nodes: %v", err)
	}
}

// promote asks for a change that makes no sense, if it is taken at all.
func promote(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := pb.NewAdminServiceClient(conn).ChangeMembers(ctx, &pb.ChangeMembersRequest{Promote: []uint64{99}})
	return err
}

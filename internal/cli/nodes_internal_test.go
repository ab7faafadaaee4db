package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/child"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// operated is a node that answers orders as it is told, and counts them.
type operated struct {
	pb.UnimplementedAdminServiceServer
	err    error
	orders int
}

func (o *operated) ChangeMembers(context.Context, *pb.ChangeMembersRequest) (*pb.ChangeMembersResponse, error) {
	o.orders++
	return &pb.ChangeMembersResponse{}, o.err
}

// bound is an address that takes connections.
func bound(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func (o *operated) start(t *testing.T) string {
	ln, s := bound(t), grpc.NewServer()
	pb.RegisterAdminServiceServer(s, o)
	go s.Serve(ln)
	t.Cleanup(s.Stop)
	return ln.Addr().String()
}

func order(ctx context.Context, a *app, again func(error) bool) error {
	end := time.Now().Add(a.timeout)
	return a.onNodes(ctx, func() time.Duration { return time.Until(end) }, again, func(c *grpc.ClientConn) error {
		_, err := pb.NewAdminServiceClient(c).ChangeMembers(ctx, &pb.ChangeMembersRequest{})
		return err
	})
}

// A change that a node may have made before it went away is not asked of the next, which
// would say that it makes no sense; what nobody has heard is.
func TestOnNodes_MayBeDone(t *testing.T) {
	gone := bound(t)
	gone.Close()
	first, second := &operated{err: status.Error(codes.Unavailable, "the connection broke")}, &operated{}
	a := &app{url: "holdfast://" + gone.Addr().String() + "," + first.start(t) + "," + second.start(t), timeout: time.Minute}
	err := order(t.Context(), a, holdfast.NotDone)
	if err == nil || !strings.Contains(err.Error(), "may be done") || first.orders != 1 || second.orders != 0 {
		t.Errorf("the nodes were asked %d and %d times: %v", first.orders, second.orders, err)
	}
	if err := order(t.Context(), a, always); err != nil || second.orders != 1 {
		t.Errorf("what may be asked twice: %v", err)
	}
}

// A machine that takes a connection and says nothing leaves time for the next.
func TestOnNodes_Silent(t *testing.T) {
	t.Parallel()
	live := &operated{}
	a := &app{url: "holdfast://" + bound(t).Addr().String() + "," + live.start(t), timeout: 10 * time.Second}
	ctx, cancel := context.WithTimeout(t.Context(), a.timeout)
	defer cancel()
	if err := order(ctx, a, holdfast.NotDone); err != nil || live.orders != 1 {
		t.Errorf("the live node was asked %d times: %v", live.orders, err)
	}
}

func (o *operated) Backup(_ *pb.BackupRequest, to grpc.ServerStreamingServer[pb.BackupResponse]) error {
	o.orders++
	_ = to.Send(&pb.BackupResponse{Piece: []byte("a piece")})
	if o.err == nil {
		<-to.Context().Done()
	}
	return o.err
}

// A node that says nothing, or nothing more, is a timeout, and told as one.
func TestOnNodes_TimeoutIsTold(t *testing.T) {
	silent, stops := "holdfast://"+bound(t).Addr().String(), "holdfast://"+(&operated{}).start(t)
	for url, commands := range map[string][]string{silent: {"member ls", "member promote 3", "snapshot save new"}, stops: {"snapshot save new"}} {
		for _, command := range commands {
			t.Chdir(t.TempDir())
			code, said := runApp(t, t.TempDir(), append([]string{"--url", url, "--timeout", "300ms"}, strings.Fields(command)...)...)
			if code != exitTimeout || !strings.Contains(said, "hint: is the backend up?") {
				t.Errorf("%s: %d: %s", command, code, said)
			}
		}
	}
}

// Exit codes of what could not begin.
func TestExit_NotBegun(t *testing.T) {
	slow := &driver.Error{Kind: context.DeadlineExceeded}
	h := &holding{a: &app{}}
	for _, tt := range []struct {
		err  error
		want int
	}{
		{unopened(slow), exitTimeout},
		{unopened(errTimeout), exitTimeout},
		{unopened(errors.New("refused")), exitFailed},
		{h.outcome(child.Status{}, fmt.Errorf("%w: %w", child.ErrNoWarden, syscall.EAGAIN), nil), exitFailed},
		{h.outcome(child.Status{}, syscall.ENOEXEC, nil), exitCannotRun},
		{h.outcome(child.Status{}, syscall.EAGAIN, nil), exitCannotRun},
	} {
		if f := failureOf(tt.err); f.code != tt.want || strings.Contains(f.hint, "#!") != errors.Is(tt.err, syscall.ENOEXEC) {
			t.Errorf("%v: %d, want %d; hint: %s", tt.err, f.code, tt.want, f.hint)
		}
	}
}

// A node with a full disk says so beside its role.
func TestStatus_FullDisk(t *testing.T) {
	for _, full := range []bool{false, true} {
		row := nodeRow(&nodeJSON{ID: 1, Leader: 1, Serving: true, DiskFull: full})
		if strings.Contains(row[2], "; its disk is full") != full {
			t.Errorf("full %v: %q", full, row)
		}
	}
}

// A node that waits for its group has no version 0, and does not support versions 0 to 0.
func TestStatus_NoGroupYet(t *testing.T) {
	for want, n := range map[string]nodeJSON{"- -": {ID: 1}, "10 2-10": {ID: 1, Version: 10, Least: 2, Newest: 10}, "- 2-4": {ID: 1, Least: 2, Newest: 4}} {
		if row := nodeRow(&n); row[8]+" "+row[9] != want {
			t.Errorf("%+v is told as %q", n, row)
		}
	}
}

// Every node that does not answer is named, with why.
func TestStatus_NamesAllThatAreSilent(t *testing.T) {
	live, first, second := (&telling{}).start(t), bound(t), bound(t)
	first.Close()
	second.Close()
	url := "holdfast://" + first.Addr().String() + "," + live + "," + second.Addr().String()
	code, said := runApp(t, t.TempDir(), "--url", url, "--timeout", "10s", "status")
	for _, gone := range []net.Listener{first, second} {
		if !strings.Contains(said, gone.Addr().String()+" does not answer: ") {
			t.Errorf("%s is not named: %s", gone.Addr(), said)
		}
	}
	if code != exitNo || strings.Contains(said, live+" does not answer") {
		t.Errorf("%d: %s", code, said)
	}
}

// Nodes are asked at once: one that takes its time does not use up that of the others.
func TestStatus_AsksAtOnce(t *testing.T) {
	later := make(chan struct{})
	first := (&telling{asked: func() { <-later }}).start(t)
	second := (&telling{asked: sync.OnceFunc(func() { close(later) })}).start(t)
	if code, said := runApp(t, t.TempDir(), "--url", "holdfast://"+first+","+second, "--timeout", "10s", "status"); code != 0 {
		t.Errorf("%d: %s", code, said)
	}
}

// Any node of a list may have an IPv6 address; the namespace is beside it.
func TestNodes_IPv6(t *testing.T) {
	for url, want := range map[string]string{
		"holdfast://[::1]:1,[::1]:2/a":      "[::1]:1 [::1]:2",
		"holdfasts://[::1]:1,127.0.0.1:2/a": "[::1]:1 127.0.0.1:2",
		"holdfast://127.0.0.1:1,[::1]:2/a":  "127.0.0.1:1 [::1]:2",
		"holdfast://[::1],[::2]/a":          "[::1]:7420 [::2]:7420",
	} {
		a := &app{url: url}
		if hosts, _, err := a.nodes(); err != nil || strings.Join(hosts, " ") != want || a.namespace() != "a" {
			t.Errorf("%s: %q, namespace %q, %v", url, hosts, a.namespace(), err)
		}
		if err := a.isThere(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// An address that is empty, as from a variable that is not set, is none.
func TestNodeAt_Addresses(t *testing.T) {
	for _, args := range [][]string{{"4", "a:1", ""}, {"4", "", "a:1"}, {"4", "a:1"}, {"0", "a:1", "a:2"}} {
		if m, err := nodeAt(args); err == nil {
			t.Errorf("%q: %v is taken", args, m)
		}
	}
	for _, args := range [][]string{{"4", "a:1", "a:2"}, {"4"}} {
		if m, err := nodeAt(args); err != nil || m.GetId() != 4 {
			t.Errorf("%q: %v, %v", args, m, err)
		}
	}
}

// Certificates, keys and authorities that belong together are given together: what is missing is named.
func TestServe_PartsOfTLS(t *testing.T) {
	_, _, noKey := serverTLS("cert.pem", "", "", nil)
	_, _, noCert := serverTLS("", "key.pem", "", nil)
	for missing, err := range map[string]error{
		"--tls-key is missing":   noKey,
		"--tls-cert is missing":  noCert,
		"--peer-key is missing":  (&serving{peerCert: "cert.pem", peerCA: "ca.pem"}).peerTLS(nil, nil),
		"--peer-cert is missing": (&serving{peerKey: "key.pem", peerCA: "ca.pem"}).peerTLS(nil, nil),
		"--peer-ca is missing":   (&serving{peerCert: "cert.pem", peerKey: "key.pem"}).peerTLS(nil, nil),
	} {
		if f, is := errors.AsType[*failure](err); !is || f.code != exitUsage || !strings.Contains(err.Error(), missing) {
			t.Errorf("%v, want a word of %s", err, missing)
		}
	}
}

// A URL with hosts and wrong parameters is to be corrected; one without a host is to name a server.
func TestNodes_WrongURL(t *testing.T) {
	for url, want := range map[string]string{
		"holdfast://127.0.0.1:1?holdfast_tls_ca=ca.pem": "correct --url",
		"holdfasts://127.0.0.1:1?holdfast_tls_cert=a":   "correct --url",
		"redis://127.0.0.1:1":                           "name a server",
		"postgres://127.0.0.1:1/a?sslmode=disable":      "name a server",
	} {
		_, _, err := (&app{url: url}).nodes()
		f, is := errors.AsType[*failure](err)
		if !is || f.code != exitUsage || !strings.HasPrefix(f.hint, want) {
			t.Errorf("%s: %v with the hint %+v, want %q", url, err, f, want)
		}
	}
}

// A node that denies an order has done nothing: another may be on this machine. If none is, that
// is told, whatever else was wrong.
func TestOnNodes_Denied(t *testing.T) {
	gone := bound(t)
	gone.Close()
	denied := status.Error(codes.PermissionDenied, "only from the machine of a node")
	first, second := &operated{err: denied}, &operated{}
	a := &app{url: "holdfast://" + first.start(t) + "," + second.start(t), timeout: time.Minute}
	if err := order(t.Context(), a, holdfast.NotDone); err != nil || first.orders != 1 || second.orders != 1 {
		t.Errorf("the nodes were asked %d and %d times: %v", first.orders, second.orders, err)
	}
	second.err = denied
	a.url += "," + gone.Addr().String()
	if err := order(t.Context(), a, holdfast.NotDone); !errors.Is(err, fs.ErrPermission) || second.orders != 2 {
		t.Errorf("by nobody: %v", err)
	}
}

// Only the leader has the clock that ends the wait of a restore.
func TestCheck_Waits(t *testing.T) {
	for _, serving := range []bool{true, false} {
		n := nodeJSON{Serving: serving, Frozen: true, HeldMs: 20_000}
		if got := n.check(); strings.Contains(got, "20s") != serving || strings.Contains(got, "the leader tells") == serving || strings.Contains(got, "frozen") {
			t.Errorf("leads: %v: %s", serving, got)
		}
	}
}

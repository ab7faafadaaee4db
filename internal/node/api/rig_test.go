package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/internal/node/api"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// TestMain lets the test binary be a node of its own.
func TestMain(m *testing.M) {
	if role := roles[os.Getenv("API_TEST_ROLE")]; role != nil {
		if err := role(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// roles are what another process can be.
var roles = map[string]func() error{}

// rig is a node with its port.
type rig struct {
	t    *testing.T
	ctx  context.Context
	node *server.Server
	addr string
	conn *grpc.ClientConn
	web  *http.Client
	stop func()
	// revision is that of the new machine.
	revision uint64
}

// serve starts a node on its own directory.
func serve(t *testing.T) *rig { return serveWith(t, api.Config{}) }

func serveWith(t *testing.T, cfg api.Config) *rig {
	t.Helper()
	return serveNode(t, lone(t), cfg).begun()
}

// inBubble runs a test of a node, on its own directory, in fake time: a busy machine takes nothing of a TTL.
func inBubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		wires := &host.Pipes{}
		ln, err := wires.Listen("127.0.0.1:7420")
		if err != nil {
			t.Fatal(err)
		}
		test(t, serveOver(t, wires.Dial, ln, lone(t), api.Config{}).begun())
	})
}

// lone is a node on its own directory.
func lone(t *testing.T) *server.Server {
	t.Helper()
	node, err := server.New(server.Config{Dir: t.TempDir(), Tick: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	return node
}

// begun waits until the node of a rig serves.
func (r *rig) begun() *rig {
	r.t.Helper()
	for ; ; news(r.node) {
		st, err := r.node.Status(r.ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		if r.revision = st.Revision; st.Serving && st.Revision != 0 {
			return r
		}
	}
}

// news waits until a node hears of another leader, or for some milliseconds: nothing
// tells when a leader begins to serve.
func news(node *server.Server) {
	_, changed := node.Leader()
	select {
	case <-changed:
	case <-time.After(5 * time.Millisecond):
	}
}

func serveNode(t *testing.T, node *server.Server, cfg api.Config) *rig {
	t.Helper()
	return serveOn(t, listen(t, "127.0.0.1:0"), node, cfg)
}

func serveOn(t *testing.T, ln net.Listener, node *server.Server, cfg api.Config) *rig {
	t.Helper()
	return serveOver(t, func(ctx context.Context, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}, ln, node, cfg)
}

// serveOver is serveOn with the network of the clients.
func serveOver(t *testing.T, dial func(ctx context.Context, addr string) (net.Conn, error), ln net.Listener, node *server.Server, cfg api.Config) *rig {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, ln, api.New(node), cfg) }()
	r := &rig{t: t, node: node, addr: ln.Addr().String(), web: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr) },
	}}}
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
	var err error
	r.conn, err = grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
	if err != nil {
		t.Fatal(err)
	}
	within, done := context.WithTimeout(t.Context(), time.Minute)
	r.ctx = within
	t.Cleanup(func() {
		done()
		r.conn.Close()
		r.web.CloseIdleConnections()
		r.stop()
	})
	return r
}

// as is the context of a call with metadata.
func (r *rig) as(pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(r.ctx, pairs...)
}

// do sends JSON and returns the status and the answer.
func (r *rig) do(method, path, body string, headers ...string) (int, map[string]any) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.ctx, method, "http://"+r.addr+path, bytes.NewReader([]byte(body)))
	if err != nil {
		r.t.Fatal(err)
	}
	if !slices.Contains(headers, "Content-Type") {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := r.web.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(b, &out); err != nil && len(b) > 0 {
		r.t.Fatalf("%s %s: %s", method, path, b)
	}
	return res.StatusCode, out
}

// want sends JSON and expects a status.
func (r *rig) want(code int, method, path, body string, headers ...string) map[string]any {
	r.t.Helper()
	got, out := r.do(method, path, body, headers...)
	if got != code {
		r.t.Fatalf("%s %s %s: status %d instead of %d: %v", method, path, body, got, code, out)
	}
	return out
}

func (r *rig) locks() pb.LockServiceClient { return pb.NewLockServiceClient(r.conn) }

// must is a call that has to succeed.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// wantCode expects a call to fail with a code.
func wantCode(t *testing.T, err error, code codes.Code) *pb.Failure {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("got %v, want the code %v", err, code)
	}
	for _, d := range status.Convert(err).Details() {
		if f, ok := d.(*pb.Failure); ok {
			return f
		}
	}
	return &pb.Failure{}
}

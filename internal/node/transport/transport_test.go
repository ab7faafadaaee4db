package transport_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/node/transport"
	"github.com/holdfast-io/holdfast/internal/services"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a transport with everything it hears in channels.
type node struct {
	*transport.Transport
	addr  string
	heard chan string
	lost  chan uint64
	snaps chan string
}

func start(t *testing.T, cfg transport.Config) *node {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{addr: ln.Addr().String(), heard: make(chan string, 10000), lost: make(chan uint64, 10000), snaps: make(chan string, 10)}
	if cfg.Cluster == 0 {
		cfg.Cluster = 7
	}
	cfg.Deliver = func(from uint64, data []byte) { n.heard <- fmt.Sprintf("%d:%s", from, data) }
	cfg.Unreachable = func(peer uint64) {
		select {
		case n.lost <- peer:
		default:
		}
	}
	if cfg.Snapshot == nil {
		cfg.Snapshot = func(from uint64, meta []byte, next func() ([]byte, error)) error {
			var body []byte
			for {
				p, err := next()
				if err == io.EOF {
					n.snaps <- fmt.Sprintf("%d:%s:%d", from, meta, len(body))
					return nil
				}
				if err != nil {
					return err
				}
				body = append(body, p...)
			}
		}
	}
	if n.Transport, err = transport.New(cfg, ln); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

func pair(t *testing.T, tlsCfg *tls.Config) (a, b *node) {
	a, b = start(t, transport.Config{ID: 1, TLS: tlsCfg}), start(t, transport.Config{ID: 2, TLS: tlsCfg})
	a.SetPeers(map[uint64]string{1: a.addr, 2: b.addr})
	b.SetPeers(map[uint64]string{1: a.addr, 2: b.addr})
	return a, b
}

// sendUntilHeard sends until the connection stands: what is sent before may be
// lost.
func sendUntilHeard(t *testing.T, from, to *node, id uint64, text string) string {
	t.Helper()
	for {
		from.Send(id, []byte(text))
		select {
		case s := <-to.heard:
			return s
		case <-time.After(20 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("nothing arrived")
		}
	}
}

func TestMessagesArriveInOrder(t *testing.T) {
	for _, secured := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%v", secured), func(t *testing.T) {
			var cfg *tls.Config
			if secured {
				cfg = mutualTLS(t)
			}
			a, b := pair(t, cfg)
			if got := sendUntilHeard(t, a, b, 2, "0"); got != "1:0" {
				t.Fatalf("heard %q", got)
			}
			for i := 1; i <= 1000; i++ {
				a.Send(2, fmt.Appendf(nil, "%d", i))
			}
			for want := 1; want <= 1000; {
				got := <-b.heard
				if got == "1:0" {
					continue
				}
				if got != fmt.Sprintf("1:%d", want) {
					t.Fatalf("heard %q, want %d", got, want)
				}
				want++
			}
		})
	}
}

func TestSnapshot(t *testing.T) {
	a, b := pair(t, nil)
	body := bytes.Repeat([]byte("x"), 3<<20)
	if err := a.SendSnapshot(2, []byte("meta"), bytes.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	if got, want := <-b.snaps, fmt.Sprintf("1:meta:%d", len(body)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := a.SendSnapshot(3, nil, bytes.NewReader(nil)); err == nil {
		t.Error("a snapshot to a stranger was sent")
	}
}

// The sender hears why its snapshot was not taken.
func TestSnapshotRefused(t *testing.T) {
	a := start(t, transport.Config{ID: 1})
	b := start(t, transport.Config{ID: 2, Snapshot: func(uint64, []byte, func() ([]byte, error)) error { return errors.New("no room") }})
	a.SetPeers(map[uint64]string{2: b.addr})
	for range 20 {
		if err := a.SendSnapshot(2, []byte("meta"), bytes.NewReader(make([]byte, 3<<20))); err == nil || !strings.Contains(err.Error(), "no room") {
			t.Errorf("got %v", err)
		}
	}
}

func TestStrangersAreRefused(t *testing.T) {
	b := start(t, transport.Config{ID: 2})
	for name, cfg := range map[string]transport.Config{
		"another cluster": {ID: 1, Cluster: 8},
		"another group":   {ID: 1, Group: 1},
		"our own name":    {ID: 2},
	} {
		t.Run(name, func(t *testing.T) {
			a := start(t, cfg)
			a.SetPeers(map[uint64]string{2: b.addr, 9: b.addr})
			for _, id := range []uint64{2, 9} {
				if err := a.SendSnapshot(id, []byte("meta"), strings.NewReader("x")); err == nil {
					t.Errorf("node %d was let in", id)
				}
			}
		})
	}
	a := start(t, transport.Config{ID: 1})
	a.SetPeers(map[uint64]string{9: b.addr})
	if err := a.SendSnapshot(9, []byte("meta"), strings.NewReader("x")); !errors.Is(err, transport.ErrHandshake) {
		t.Errorf("node 2 answered for node 9: %v", err)
	}
	select {
	case s := <-b.snaps:
		t.Errorf("a stranger's snapshot arrived: %s", s)
	default:
	}
}

func TestPlainOnlyOnLoopback(t *testing.T) {
	ln, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, err := transport.New(transport.Config{ID: 1}, ln); !errors.Is(err, fs.ErrInvalid) { // else holdfast serve would advise another directory
		t.Errorf("unauthenticated peers from everywhere: %v", err)
	}
}

// TLS without a certificate of the cluster's authority gets nowhere.
func TestUnknownCertificate(t *testing.T) {
	b := start(t, transport.Config{ID: 2, TLS: mutualTLS(t)})
	a := start(t, transport.Config{ID: 1, TLS: mutualTLS(t)})
	a.SetPeers(map[uint64]string{2: b.addr})
	if err := a.SendSnapshot(2, []byte("meta"), strings.NewReader("x")); err == nil {
		t.Error("a node of another authority was let in")
	}
}

// heard is what was told; the time is only against a test that never ends.
func heard(t *testing.T, told <-chan error) error {
	t.Helper()
	select {
	case err := <-told:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was told")
		return nil
	}
}

// A certificate that one side refuses is told there, and on the other side if that hears of it: one that
// dials may only see that the connection ended.
func TestUnknownCertificate_Told(t *testing.T) {
	others := services.NewAuthority(t, "others").Roots
	told := func(c chan error) func(uint64, error) {
		return func(_ uint64, err error) {
			select {
			case c <- err:
			default:
			}
		}
	}
	for _, strict := range []string{"dials", "answers"} {
		dials, answers := make(chan error, 1), make(chan error, 1)
		cfg := mutualTLS(t)
		from, to := transport.Config{ID: 1, TLS: cfg, Refused: told(dials)}, transport.Config{ID: 2, TLS: cfg, Refused: told(answers)}
		if strict == "dials" {
			from.CAs = others
		} else {
			to.CAs = others
		}
		b, a := start(t, to), start(t, from)
		a.SetPeers(map[uint64]string{2: b.addr})
		if err := heard(t, answers); !strings.Contains(err.Error(), "127.0.0.1: ") || !strings.Contains(err.Error(), "--peer-ca") {
			t.Errorf("the one that is dialled, as the other %s: %v", strict, err)
		}
		if strict == "dials" {
			if err := heard(t, dials); !strings.Contains(err.Error(), b.addr) || !strings.Contains(err.Error(), "unknown authority") {
				t.Errorf("the one that dials: %v", err)
			}
		}
		a.Close()
	}
}

// Whom to trust is asked with each connection, on both ends.
func TestAuthorityChanges(t *testing.T) {
	cfg, others := mutualTLS(t), services.NewAuthority(t, "others").Roots()
	good := cfg.RootCAs
	var ours atomic.Pointer[x509.CertPool]
	ours.Store(good)
	for _, end := range []struct {
		name string
		cas  [2]func() *x509.CertPool
	}{{"dials", [2]func() *x509.CertPool{ours.Load, nil}}, {"answers", [2]func() *x509.CertPool{nil, ours.Load}}} {
		a, b := start(t, transport.Config{ID: 1, TLS: cfg, CAs: end.cas[0]}), start(t, transport.Config{ID: 2, TLS: cfg, CAs: end.cas[1]})
		a.SetPeers(map[uint64]string{2: b.addr})
		for _, trusted := range []*x509.CertPool{others, good, others} {
			ours.Store(trusted)
			if err := a.SendSnapshot(2, []byte("meta"), strings.NewReader("x")); (err == nil) != (trusted == good) {
				t.Errorf("the end that %s trusts the other's authority: %v; the connection: %v", end.name, trusted == good, err)
			}
		}
	}
}

func TestGarbageIsClosed(t *testing.T) {
	b := start(t, transport.Config{ID: 2})
	for _, garbage := range []string{"GET / HTTP/1.1\r\nHost: a.b.c.d.e.f.g\r\nX: y\r\n\r\n", strings.Repeat("\x00", 100)} {
		c, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte(garbage))
		if _, err := io.ReadAll(c); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("not closed: %v", err)
		}
		c.Close()
	}
}

// A peer that does not answer costs bounded memory, and raft is told.
func TestFullQueueIsTold(t *testing.T) {
	a := start(t, transport.Config{ID: 1, QueueBytes: 1000})
	a.SetPeers(map[uint64]string{2: "127.0.0.1:1"})
	for range 100 {
		a.Send(2, make([]byte, 100))
	}
	if got := <-a.lost; got != 2 {
		t.Errorf("told of %d", got)
	}
	a.Send(5, nil)
	for got := range a.lost {
		if got == 5 {
			break
		}
	}
}

// When a peer comes back, possibly elsewhere, messages flow again.
func TestReconnects(t *testing.T) {
	a, b := pair(t, nil)
	sendUntilHeard(t, a, b, 2, "x")
	b.Close()
	b = start(t, transport.Config{ID: 2})
	a.SetPeers(map[uint64]string{2: b.addr})
	sendUntilHeard(t, a, b, 2, "y")
}

// mutualTLS makes a configuration with an authority of its own, good for any
// number of nodes on loopback.
func mutualTLS(t *testing.T) *tls.Config {
	t.Helper()
	a := services.NewAuthority(t, "test")
	return &tls.Config{
		Certificates: []tls.Certificate{a.Issue(t, "node")}, RootCAs: a.Roots(), ClientCAs: a.Roots(), ClientAuth: tls.RequireAndVerifyClientCert,
	}
}

func Example() {
	ln, _ := net.Listen("tcp", "127.0.0.1:0")
	heard := make(chan string)
	two, _ := transport.New(transport.Config{Cluster: 7, ID: 2,
		Deliver:     func(from uint64, data []byte) { heard <- fmt.Sprintf("%s from node %d", data, from) },
		Unreachable: func(uint64) {},
	}, ln)
	defer two.Close()

	ln2, _ := net.Listen("tcp", "127.0.0.1:0")
	one, _ := transport.New(transport.Config{Cluster: 7, ID: 1, Unreachable: func(uint64) {}}, ln2)
	defer one.Close()
	one.SetPeers(map[uint64]string{2: ln.Addr().String()})

	one.Send(2, []byte("hello"))
	fmt.Println(<-heard)
	// Output: hello from node 1
}

// lossy is a connection that loses everything once it is told to, as one does with
// lost packets: no side is told.
type lossy struct {
	net.Conn
	lost *atomic.Bool
}

func (l lossy) Write(p []byte) (int, error) {
	if l.lost.Load() {
		return len(p), nil
	}
	return l.Conn.Write(p)
}

// A connection that brings no answer any more is replaced by a new one.
func TestConnectionThatLosesEverything(t *testing.T) {
	var lost atomic.Bool
	var dials atomic.Int32
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err == nil && dials.Add(1) == 1 {
			c = lossy{c, &lost}
		}
		return c, err
	}
	a := start(t, transport.Config{ID: 1, Timeout: 300 * time.Millisecond, Dial: dial})
	b := start(t, transport.Config{ID: 2})
	a.SetPeers(map[uint64]string{2: b.addr})
	b.SetPeers(map[uint64]string{1: a.addr})
	sendUntilHeard(t, a, b, 2, "old")
	lost.Store(true)
	for send, end := time.Tick(10*time.Millisecond), time.After(10*time.Second); dials.Load() < 2; {
		select {
		case <-send:
			a.Send(2, []byte("new"))
		case <-end:
			t.Fatal("no second connection")
		}
	}
	for sendUntilHeard(t, a, b, 2, "new") != "1:new" {
	}
}

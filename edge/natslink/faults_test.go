//go:build unix

package natslink_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/edge"
	"github.com/holdfast-io/holdfast/edge/natslink"
	"github.com/holdfast-io/holdfast/internal/services"
)

// faulted is the load under which links are cut and servers killed, over all nodes.
const faulted = 120

// TestCut: a node that was cut off for some seconds under load knows all soon after, also if its
// connection broke.
func TestCut(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, harm := range map[string]func(*services.Link){
		"cut":    func(l *services.Link) { l.Cut() },
		"broken": func(l *services.Link) { l.Cut(); l.Break() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := services.SharedNATS(t)
			path := services.Proxy(t, server.Addr())
			rare := fast
			rare.State = 10 * time.Minute // by itself none would come in time
			a, b := nodeOf(t, rare, "a", link(t, server.URL(), nil)), nodeOf(t, rare, "b", link(t, path.URL(server.URL()), nil))
			counter(t, a, "x").Add(1)
			agree(t, 1, a, b)
			harm(path)
			counter(t, a, "y").Add(7) // told once, while nobody hears it
			l := load{nodes: 2, counters: 5, perSecond: faulted}
			total := l.run(t, []*edge.Node{a, b}, *cut)
			path.Heal()
			took := l.agree(t, []*edge.Node{a, b}, total) + agreeOn(t, "y", 7, b)
			t.Logf("proof: edge: healed %s after %s for %s under %d additions a second, %d in all", took.Round(time.Millisecond), name, *cut, faulted, total)
			if took > 2*time.Second && *cut >= 30*time.Second { // a proof, on a machine of its own
				t.Errorf("healing took %s", took)
			}
		})
	}
}

// TestServerKilled: without a server nodes under load count on; when it is back, with its stream or
// without, they agree.
func TestServerKilled(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, memory := range map[string]bool{"file": false, "memory": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := services.NATS(t)
			var nodes []*edge.Node
			for _, name := range []string{"a", "b", "c"} {
				nodes = append(nodes, node(t, name, link(t, server.URL(), &natslink.Options{Memory: memory})))
			}
			counter(t, nodes[0], "x").Add(1)
			agree(t, 1, nodes...)
			server.Kill()
			l := load{nodes: 3, counters: 5, perSecond: faulted}
			total := l.run(t, nodes, *outage)
			server.Restart()
			took := l.agree(t, nodes, total)
			t.Logf("proof: edge: %s after an outage of %s under %d additions a second nodes agree on %d, stream in %s", took.Round(time.Millisecond), *outage, faulted, total, name)
			if took > 30*time.Second {
				t.Errorf("agreeing took %s", took)
			}
		})
	}
}

// TestServerComesLater: a node starts, counts and stops without a server, and agrees
// with others when there is one.
func TestServerComesLater(t *testing.T) {
	server := services.NATS(t)
	server.Kill()
	l := link(t, server.URL(), nil)
	a := node(t, "a", l)
	counter(t, a, "x").Add(3)
	if err := l.Err(); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("without a server: %v", err)
	}
	server.Restart()
	b := node(t, "b", link(t, server.URL(), nil))
	counter(t, b, "x").Add(4)
	agree(t, 7, a, b)
	eventually(t, func() bool { return l.Err() == nil }, func() string { return fmt.Sprintf("with a server: %v", l.Err()) })
}

// TestSilentServer: a server that accepts connections and answers no request is as one that cannot be reached: a node
// starts and counts, and the link tells what is wrong.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for c, err := server.Accept(); err == nil; c, err = server.Accept() {
			go greet(c)
		}
	}()
	l := link(t, "nats://"+server.Addr().String(), nil)
	if err := l.Err(); err == nil || !strings.Contains(err.Error(), "no answer from NATS") {
		t.Errorf("the link tells %v", err)
	}
	a := node(t, "a", l)
	counter(t, a, "x").Add(3)
	agree(t, 3, a)
}

// greet says what a server of NATS says to a client that connects, and answers its pings alone.
func greet(c net.Conn) {
	defer c.Close()
	io.WriteString(c, "INFO {\"server_id\":\"x\",\"version\":\"2.10.0\",\"headers\":true,\"max_payload\":1048576}\r\n")
	for lines := bufio.NewScanner(c); lines.Scan(); {
		if lines.Text() == "PING" {
			io.WriteString(c, "PONG\r\n")
		}
	}
}

// TestPurged: a stream that was purged or deleted is filled by the nodes that run, also
// with what those counted that are gone.
func TestPurged(t *testing.T) {
	for name, harm := range map[string]func(nats.JetStreamContext, string) error{
		"purged":  func(js nats.JetStreamContext, stream string) error { return js.PurgeStream(stream) },
		"deleted": func(js nats.JetStreamContext, stream string) error { return js.DeleteStream(stream) },
	} {
		t.Run(name, func(t *testing.T) {
			url := services.SharedNATS(t).URL()
			gone := link(t, url, nil)
			nodes := three(t, url)
			first := node(t, "gone", gone)
			counter(t, first, "x").Add(5)
			for _, n := range nodes {
				counter(t, n, "x").Add(1)
			}
			agree(t, 8, nodes...)
			first.Close()
			gone.Close()
			if err := harm(stream(t, url), strings.ReplaceAll(t.Name(), "/", "_")); err != nil {
				t.Fatal(err)
			}
			counter(t, nodes[1], "x").Add(1)
			agree(t, 9, nodes...)
			agree(t, 9, node(t, "late", link(t, url, nil)))
		})
	}
}

// TestKilledNode: a process that is killed and starts again under its name: the counts
// are what callers were told, less at most what was counted since the last message.
func TestKilledNode(t *testing.T) {
	t.Parallel()
	url := services.SharedNATS(t).URL()
	witness := node(t, "witness", link(t, url, nil))
	var told, sent uint64
	for range 3 {
		a, b := runChild(t, url, 500)
		told, sent = told+a, sent+b
		x := counter(t, witness, "x")
		eventually(t, func() bool { return x.Value() >= sent }, func() string { return fmt.Sprintf("%d arrived, %d were sent: %v", x.Value(), sent, x.ByActor()) })
		if x.Value() > told {
			t.Fatalf("%d arrived, callers were told %d", x.Value(), told)
		}
	}
	x := counter(t, witness, "x")
	t.Logf("proof: edge: a node killed and restarted 3 times: callers were told %d, %d of them before the last flush, %d are counted", told, sent, x.Value())
	if len(x.ByActor()) != 3 {
		t.Errorf("three incarnations counted, not %v", x.ByActor())
	}
}

// runChild runs a node until it has told callers of that many counts, and kills it.
func runChild(t *testing.T, url string, until uint64) (told, sent uint64) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childURL+"="+url)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		kind, number, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseUint(number, 10, 64)
		switch {
		case err != nil:
			t.Fatalf("the child said %q", lines.Text())
		case kind == "told":
			told = n
		default:
			sent = n
		}
		if told == until {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	if told < until {
		t.Fatalf("the child ended after %d", told)
	}
	return told, sent
}

// child counts, and says after each count what it is, and after each message what was
// in it.
func child(url string) {
	l, err := natslink.Open(context.Background(), url, &natslink.Options{Stream: "TestKilledNode", Subject: "test.TestKilledNode"})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s := &saying{Link: l}
	c := fast
	c.Actor, c.Link = "child", s
	n, err := edge.Open(c)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	x, _ := n.Counter("x")
	for {
		x.Add(1)
		s.say("told", s.count.Add(1))
		time.Sleep(time.Millisecond)
	}
}

// saying is a link that says what was sent.
type saying struct {
	*natslink.Link
	count atomic.Uint64
	mu    sync.Mutex
}

func (s *saying) say(kind string, n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	os.Stdout.WriteString(fmt.Sprintln(kind, n))
}

func (s *saying) Send(m []byte) error {
	// The last Add may not be in the message: it is marked after it was counted.
	before := s.count.Load()
	err := s.Link.Send(m)
	if err == nil && before > 1 && s.Link.Flush() == nil {
		s.say("sent", before-1)
	}
	return err
}

package natsconn

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// server is an address at which each connection is served by serve until the test ends.
func server(t *testing.T, serve func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go serve(c)
		}
	}()
	return l.Addr().String()
}

// greet says what a server of NATS says to a client that connects.
func greet(c net.Conn) {
	c.Write([]byte("INFO {\"server_id\":\"x\",\"version\":\"2.10.0\",\"max_payload\":1048576}\r\n"))
	for lines := bufio.NewScanner(c); lines.Scan(); {
		if lines.Text() == "PING" {
			c.Write([]byte("PONG\r\n"))
		}
	}
}

// hurried has less time than a connection may take. It does not end: a busy machine may need more.
type hurried struct{ context.Context }

func (hurried) Deadline() (time.Time, bool) { return time.Now().Add(Patience / 2), true }

// TestLaterConnections: the time that is left to Open bounds Open alone, not every
// connection that is made later.
func TestLaterConnections(t *testing.T) {
	c, err := Dial(hurried{t.Context()}, Settings{Addrs: []string{server(t, greet)}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Opts.Timeout != Patience {
		t.Errorf("later connections have %s, not %s", c.Opts.Timeout, Patience)
	}
}

// TestSilentServer: a server that takes a connection and says nothing is waited for no
// longer than the context lasts.
func TestSilentServer(t *testing.T) {
	for _, later := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		began := time.Now()
		_, err := Dial(ctx, Settings{Addrs: slices.Repeat([]string{server(t, func(net.Conn) {})}, 10), Later: later})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) >= 5*Patience { // of the 10 that it would take to ask all
			t.Errorf("later %v: %v after %s", later, err, time.Since(began))
		}
	}
}

// TestRefusedByName: a right that is missing for one subject ends no call to another
// whose name it begins with.
func TestRefusedByName(t *testing.T) {
	c := &Conn{calls: map[*call]struct{}{}}
	ended := map[string]bool{}
	for _, subject := range []string{"$KV.b.l.job", "$KV.b.l.jobs", "$JS.API.CONSUMER.CREATE.KV_b"} {
		c.note(&call{subject, func(error) { ended[subject] = true }}, true)
	}
	for _, subject := range []string{"$KV.b.l.jobs", "$JS.API.CONSUMER.CREATE.KV_b.x.y"} {
		c.refused(fmt.Errorf("%w: Permissions Violation for Publish to %q", nats.ErrPermissionViolation, subject))
	}
	if ended["$KV.b.l.job"] || !ended["$KV.b.l.jobs"] || !ended["$JS.API.CONSUMER.CREATE.KV_b"] {
		t.Errorf("ended: %v", ended)
	}
}

//go:build unix

package services_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/services"
)

// accepting is a server whose connections the test handles itself.
func accepting(t testing.TB) (addr string, conns <-chan *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, l, err)
	accepted := make(chan *net.TCPConn, 100)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c.(*net.TCPConn)
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
		close(accepted)
		for c := range accepted {
			c.Close()
		}
	})
	return l.Addr().String(), accepted
}

// dial opens a connection through the link.
func dial(t testing.TB, l *services.Link) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	must(t, c, err)
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// joined returns both ends of one connection through a fresh link.
func joined(t testing.TB) (l *services.Link, client, server *net.TCPConn) {
	t.Helper()
	addr, conns := accepting(t)
	l = services.Proxy(t, addr)
	client = dial(t, l)
	server = next(t, conns)
	t.Cleanup(func() { server.Close() })
	return l, client, server
}

func next(t testing.TB, conns <-chan *net.TCPConn) *net.TCPConn {
	t.Helper()
	return arrives(t, result(func() (*net.TCPConn, error) { return <-conns, nil }))
}

func say(t testing.TB, c net.Conn, text string) {
	t.Helper()
	n, err := c.Write([]byte(text))
	must(t, n, err)
}

func hear(t testing.TB, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("heard %q, %v; want %q", got, err, want)
	}
}

func hearEnd(t testing.TB, c net.Conn, want error) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, want) {
		t.Fatalf("heard %d bytes, %v; want %v", n, err, want)
	}
}

func hearNothing(t testing.TB, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(silence)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("heard %d bytes, %v; want silence", n, err)
	}
}

func TestLinkForwardsAndEndsEachWay(t *testing.T) {
	t.Parallel()
	_, client, server := joined(t)
	say(t, client, "question")
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	hear(t, server, "question")
	hearEnd(t, server, io.EOF)
	say(t, server, "answer")
	hear(t, client, "answer")
	server.Close()
	hearEnd(t, client, io.EOF)
}

func TestLinkCut(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name               string
		ways               []services.Direction
		toServer, toClient bool // what still gets through
	}{
		{"both by default", nil, false, false},
		{"to server", []services.Direction{services.ToServer}, false, true},
		{"to client", []services.Direction{services.ToClient}, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l, client, server := joined(t)
			l.Cut(test.ways...)
			say(t, client, "ping")
			say(t, server, "pong")
			flows(t, server, "ping", test.toServer)
			flows(t, client, "pong", test.toClient)
			l.Heal()
			flows(t, server, "ping", !test.toServer)
			flows(t, client, "pong", !test.toClient)
		})
	}
}

func flows(t testing.TB, c net.Conn, text string, expected bool) {
	t.Helper()
	if expected {
		hear(t, c, text)
	} else {
		hearNothing(t, c)
	}
}

func TestLinkCutHoldsBackTheEndOfAConnection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		linger int
		want   error
	}{"closed": {-1, io.EOF}, "reset": {0, syscall.ECONNRESET}} {
		t.Run(name, func(t *testing.T) {
			l, client, server := joined(t)
			l.Cut()
			if err := client.SetLinger(test.linger); err != nil {
				t.Fatal(err)
			}
			client.Close()
			hearNothing(t, server)
			l.Heal()
			hearEnd(t, server, test.want)
		})
	}
}

func TestLinkCutHoldsForNewConnections(t *testing.T) {
	t.Parallel()
	addr, conns := accepting(t)
	l := services.Proxy(t, addr)
	l.Cut()
	client := dial(t, l)
	say(t, client, "hello")
	select {
	case <-conns:
		t.Fatal("the server saw a connection through the cut")
	case <-time.After(silence):
	}
	l.Heal()
	server := next(t, conns)
	defer server.Close()
	hear(t, server, "hello")
}

func TestLinkBreak(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*services.Link){
		"open": func(*services.Link) {},
		"cut":  func(l *services.Link) { l.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			l, client, server := joined(t)
			before(l)
			say(t, client, "lost")
			l.Break()
			hearEnd(t, client, syscall.ECONNRESET)
			if _, err := io.Copy(io.Discard, server); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("server side ended with %v", err)
			}
		})
	}
}

func TestLinkWorksAfterBreak(t *testing.T) {
	t.Parallel()
	addr, conns := accepting(t)
	l := services.Proxy(t, addr)
	first := dial(t, l)
	next(t, conns).Close()
	l.Break()
	_, _ = io.Copy(io.Discard, first)
	second := dial(t, l)
	server := next(t, conns)
	defer server.Close()
	say(t, second, "again")
	hear(t, server, "again")
}

func TestLinkToNobodyResets(t *testing.T) {
	t.Parallel()
	s := services.Redis(t)
	l := services.Proxy(t, s.Addr())
	s.Kill()
	client, err := net.Dial("tcp", l.Addr())
	if err == nil {
		defer client.Close()
		_, err = client.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("connection to nobody ended with %v", err)
	}
	s.Restart()
	do(t, redisClient(t, l.URL(s.URL())), "PING")
}

func TestLinkDelay(t *testing.T) {
	t.Parallel()
	const delay, messages = 600 * time.Millisecond, 10 // as long as all of them together, a busy machine does not take
	l, client, server := joined(t)
	l.Delay(delay)
	began := time.Now()
	for range messages {
		say(t, client, "x")
		time.Sleep(delay / messages) // spread, so that the messages travel apart
	}
	for range messages {
		hear(t, server, "x")
	}
	spread := delay / messages * messages
	if took := time.Since(began); took < delay+spread-delay/messages || took >= messages*delay {
		t.Errorf("%d messages sent within %v arrived after %v, each delayed by %v", messages, spread, took, delay)
	}
	began = time.Now()
	say(t, server, "y")
	hear(t, client, "y")
	if took := time.Since(began); took < delay {
		t.Errorf("answer took %v, less than %v", took, delay)
	}
}

func TestLinkHealEndsDelayOfWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	l, client, server := joined(t)
	l.Delay(time.Hour, services.ToServer)
	say(t, client, "slow")
	say(t, server, "quick")
	hear(t, client, "quick")
	hearNothing(t, server)
	l.Heal()
	hear(t, server, "slow")
}

// TestLinkCutInterruptsAWriteThatHangs fills all buffers of a receiver that
// does not read, and then wants every byte.
func TestLinkCutInterruptsAWriteThatHangs(t *testing.T) {
	t.Parallel()
	const size = 32 << 20
	l, client, server := joined(t)
	data := bytes.Repeat([]byte("0123456789abcde\n"), size/16)
	sent := result(func() (int, error) {
		n, err := client.Write(data)
		return n, errors.Join(err, client.CloseWrite())
	})
	hear(t, server, string(data[:16]))
	silent(t, sent)
	cut := result(func() (bool, error) { l.Cut(); l.Heal(); l.Cut(); return true, nil })
	arrives(t, cut)
	rest := result(func() ([]byte, error) { return io.ReadAll(server) })
	silent(t, rest)
	l.Heal()
	if got := arrives(t, rest); sha256.Sum256(got) != sha256.Sum256(data[16:]) {
		t.Errorf("%d bytes arrived changed, want %d", len(got), size-16)
	}
	arrives(t, sent)
}

// TestLinkKeepsStreamsWhole disturbs many connections at random; every one must
// carry its own lines, all of them, in order.
func TestLinkKeepsStreamsWhole(t *testing.T) {
	t.Parallel()
	const clients, lines = 8, 500
	addr, conns := accepting(t)
	l := services.Proxy(t, addr)
	var working sync.WaitGroup
	for range clients {
		client := dial(t, l)
		working.Go(func() { chatter(t, client, lines) })
		server := next(t, conns)
		t.Cleanup(func() { server.Close() })
		go func() { _, _ = io.Copy(server, server); _ = server.CloseWrite() }()
	}
	finished := make(chan struct{})
	go func() { working.Wait(); close(finished) }()
	random := rand.New(rand.NewPCG(1, 2))
	for {
		disturb(l, random)
		select {
		case <-finished:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func disturb(l *services.Link, random *rand.Rand) {
	way := services.Direction(random.IntN(2))
	switch random.IntN(4) {
	case 0:
		l.Cut(way)
	case 1:
		l.Delay(time.Duration(random.IntN(3))*time.Millisecond, way)
	default:
		l.Heal()
	}
}

func chatter(t *testing.T, c *net.TCPConn, lines int) {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Error(err)
		return
	}
	go func() {
		for i := range lines {
			fmt.Fprintf(c, "%s line %d\n", c.LocalAddr(), i)
		}
		_ = c.CloseWrite()
	}()
	echo := bufio.NewScanner(c)
	for i := range lines {
		if want := fmt.Sprintf("%s line %d", c.LocalAddr(), i); !echo.Scan() || echo.Text() != want {
			t.Errorf("echo %q, %v; want %q", echo.Text(), echo.Err(), want)
			return
		}
	}
	if echo.Scan() {
		t.Errorf("echo %q after the last line", echo.Text())
	}
}

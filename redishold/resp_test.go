package redishold_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/kthtrip"
)

// respProxy is a path to a server that knows as much of Redis' protocol as it
// takes to count round trips, and disturbs one: every request that a client sends
// is one, pipelined or not.
type respProxy struct {
	url       string
	listeners []net.Listener
	work      sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[*respConn]struct{}
	left   int // round trips until the fault; 0: it is not armed
	fault  kthtrip.Fault
	struck bool
}

var _ kthtrip.Proxy = (*respProxy)(nil)

// refusals are what a server can answer instead of doing what it is asked.
var refusals = map[kthtrip.Fault]string{
	"BUSY":        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	"READONLY":    "READONLY You can't write against a read only replica.",
	"OOM":         "OOM command not allowed when used memory > 'maxmemory'.",
	"LOADING":     "LOADING Redis is loading the dataset in memory",
	"MASTERDOWN":  "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	"MOVED":       "MOVED 1 127.0.0.1:1",
	"ASK":         "ASK 1 127.0.0.1:1",
	"NOSCRIPT":    "NOSCRIPT No matching script. Please use EVAL.",
	"TRYAGAIN":    "TRYAGAIN Multiple keys request during rehashing of slot",
	"CLUSTERDOWN": "CLUSTERDOWN The cluster is down",
	"UNKILLABLE":  "UNKILLABLE Sorry the script already executed write commands against the dataset.",
	"MISCONF":     "MISCONF Errors writing to the AOF file: No space left on device",
	"NOREPLICAS":  "NOREPLICAS Not enough good replicas to write.",
	"NOPERM":      "NOPERM this user has no permissions to run the 'evalsha' command",
	"ERR":         "ERR something that nobody has heard of",
	"max clients": "ERR max number of clients reached",
}

// newRESPProxy is a path to the servers at some addresses, as they stand in a URL.
func newRESPProxy(t testing.TB, rawURL string, targets ...string) *respProxy {
	p := &respProxy{url: rawURL, conns: map[*respConn]struct{}{}}
	for _, target := range targets {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p.listeners = append(p.listeners, l)
		for _, form := range []func(string) string{func(s string) string { return s }, url.QueryEscape} {
			p.url = strings.ReplaceAll(p.url, form(target), form(l.Addr().String()))
		}
		p.work.Go(func() { p.accept(l, target) })
	}
	t.Cleanup(p.close)
	return p
}

func (p *respProxy) URL() string { return p.url }

func (p *respProxy) Arm(k int, f kthtrip.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.fault, p.struck = k, f, false
}

func (p *respProxy) Disarm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = 0
	return p.struck
}

func (p *respProxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// trip counts a round trip, and is what happens to it.
func (p *respProxy) trip() kthtrip.Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 {
		return ""
	}
	if p.left--; p.left > 0 {
		return ""
	}
	p.struck = true
	return p.fault
}

func (p *respProxy) accept(l net.Listener, target string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.serve(&respConn{p: p, client: client, server: server, ended: make(chan struct{})})
	}
}

func (p *respProxy) serve(c *respConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.end()
		return
	}
	p.conns[c] = struct{}{}
	var both sync.WaitGroup
	both.Go(c.requests)
	both.Go(c.replies)
	p.work.Go(func() {
		both.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	})
}

func (p *respProxy) close() {
	for _, l := range p.listeners {
		_ = l.Close()
	}
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.end()
	}
	p.mu.Unlock()
	p.work.Wait()
}

// respConn is one connection through the proxy.
type respConn struct {
	p              *respProxy
	client, server net.Conn
	once           sync.Once
	ended          chan struct{}

	mu      sync.Mutex
	waiting []reply // in the order of their requests
}

// reply is one that the client waits for.
type reply struct {
	instead string        // of the server's; "": the server answers
	fault   kthtrip.Fault // of the answer
}

// end resets both sides.
func (c *respConn) end() {
	c.once.Do(func() {
		close(c.ended)
		for _, side := range []net.Conn{c.client, c.server} {
			_ = side.(*net.TCPConn).SetLinger(0)
			_ = side.Close()
		}
	})
}

// requests passes on what the client asks.
func (c *respConn) requests() {
	defer c.end()
	in := bufio.NewReader(c.client)
	for {
		request, err := readRESP(in)
		if err != nil {
			return
		}
		fault := c.p.trip()
		if fault == "NOSCRIPT" && !bytes.Contains(bytes.ToUpper(request[:min(len(request), 24)]), []byte("EVALSHA")) {
			fault = "" // no server says so then
		}
		instead, refused := refusals[fault]
		switch {
		case fault == kthtrip.CutBefore:
			return
		case refused:
			c.expect(reply{instead, fault})
			continue
		}
		c.expect(reply{"", fault})
		if _, err := c.server.Write(request); err != nil {
			return
		}
	}
}

// expect has the client wait for one more reply.
func (c *respConn) expect(r reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, r)
	c.refuse()
}

// refuse writes what the server is not asked for; the lock is held.
func (c *respConn) refuse() {
	for len(c.waiting) > 0 && c.waiting[0].instead != "" {
		_, _ = fmt.Fprintf(c.client, "-%s\r\n", c.waiting[0].instead)
		if c.waiting[0].fault == "max clients" {
			c.end()
		}
		c.waiting = c.waiting[1:]
	}
}

// replies passes on what the server answers.
func (c *respConn) replies() {
	defer c.end()
	out := bufio.NewReader(c.server)
	for {
		answer, err := readRESP(out)
		if err != nil || !c.answer(answer) {
			return
		}
	}
}

// answer passes one on; false: the connection is over.
func (c *respConn) answer(answer []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var r reply
	if isReply(answer) && len(c.waiting) > 0 {
		r, c.waiting = c.waiting[0], c.waiting[1:]
	}
	switch r.fault {
	case kthtrip.CutAfter:
		return false
	case kthtrip.Delay:
		select {
		case <-time.After(kthtrip.Late):
		case <-c.ended:
			return false
		}
	}
	_, err := c.client.Write(answer)
	c.refuse()
	return err == nil
}

// isReply tells an answer from what a server says unasked. A subscription is
// answered so, too.
func isReply(answer []byte) bool {
	if answer[0] != '>' {
		return true
	}
	head := answer[:min(len(answer), 40)]
	return bytes.Contains(head, []byte("\r\nsubscribe\r\n")) || bytes.Contains(head, []byte("\r\nunsubscribe\r\n"))
}

// readRESP reads one value as it stands.
func readRESP(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil || len(line) < 3 {
		return line, err
	}
	n, _ := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	switch line[0] {
	case '$', '=', '!':
		if n < 0 {
			return line, nil
		}
		body := make([]byte, n+2)
		_, err := io.ReadFull(r, body)
		return append(line, body...), err
	case '%', '|':
		n *= 2
	case '*', '~', '>':
	default:
		return line, nil
	}
	for range max(n, 0) {
		item, err := readRESP(r)
		if err != nil {
			return nil, err
		}
		line = append(line, item...)
	}
	return line, nil
}

package kthtrip

import (
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// Path is a [Proxy] for engines that are reached over TCP. It knows connections, and
// counts; a [Protocol] tells it what a round trip is.
type Path struct {
	url       string
	speaks    Protocol
	listeners []net.Listener
	work      sync.WaitGroup

	toClient, toServer Gate

	mu     sync.Mutex
	closed bool
	conns  map[*Conn]struct{}
	left   int // round trips until the fault; 0: it is not armed
	fault  Fault
	struck bool
}

var _ Proxy = (*Path)(nil)

// Protocol passes on what is said over a connection: the result has a function for
// each direction, which ends with the connection.
type Protocol func(c *Conn) (requests, replies func())

// Conn is one connection through a Path.
type Conn struct {
	Client, Server net.Conn

	path  *Path
	once  sync.Once
	ended chan struct{}
	last  atomic.Bool // what goes to the server next is the last that passes
}

// NewPath is a path to the servers at some addresses, as they stand in a URL. It ends
// with the test.
func NewPath(t testing.TB, p Protocol, rawURL string, targets ...string) *Path {
	path := &Path{url: rawURL, speaks: p, conns: map[*Conn]struct{}{}}
	for _, target := range targets {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		path.listeners = append(path.listeners, l)
		for _, form := range []func(string) string{func(s string) string { return s }, url.QueryEscape} {
			path.url = strings.ReplaceAll(path.url, form(target), form(l.Addr().String()))
		}
		path.work.Go(func() { path.accept(l, target) })
	}
	t.Cleanup(path.End)
	return path
}

// URL is what the client opens.
func (p *Path) URL() string { return p.url }

// Open opens it.
func (p *Path) Open(ctx context.Context) (driver.Driver, error) { return driver.Open(ctx, p.url) }

// Killed is false: the client lives on.
func (p *Path) Killed() bool { return false }

// Arm has the k-th round trip meet f.
func (p *Path) Arm(k int, f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.fault, p.struck = k, f, false
}

// Disarm ends that.
func (p *Path) Disarm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = 0
	p.toClient.Open()
	p.toServer.Open()
	return p.struck
}

// Conns is how many connections are open.
func (p *Path) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

func (p *Path) accept(l net.Listener, target string) {
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
		p.serve(p.between(client.(*net.TCPConn), server.(*net.TCPConn)))
	}
}

func (p *Path) between(client, server *net.TCPConn) *Conn {
	c := &Conn{path: p, ended: make(chan struct{})}
	c.Client = gatedConn{client, &p.toClient, c.ended, func() bool { return false }}
	c.Server = gatedConn{server, &p.toServer, c.ended, func() bool { return c.last.Swap(false) }}
	return c
}

func (p *Path) serve(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.End()
		return
	}
	p.conns[c] = struct{}{}
	requests, replies := p.speaks(c)
	var both sync.WaitGroup
	for _, pass := range []func(){requests, replies} {
		both.Go(func() {
			defer c.End()
			pass()
		})
	}
	p.work.Go(func() {
		both.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	})
}

// End closes all connections, and takes no more.
func (p *Path) End() {
	for _, l := range p.listeners {
		_ = l.Close()
	}
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.End()
	}
	p.mu.Unlock()
	p.work.Wait()
}

// Trip counts a round trip that meets a fault if one is due that fits, and tells which.
// One that does not fit comes to nothing.
func (c *Conn) Trip(fits func(Fault) bool) Fault {
	p := c.path
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 {
		return ""
	}
	if p.left--; p.left > 0 {
		return ""
	}
	p.struck = true
	if !fits(p.fault) {
		return ""
	}
	switch p.fault {
	case Silence:
		p.toClient.Shut()
		c.last.Store(true)
	case Deafness:
		p.toClient.Shut()
		p.toServer.Shut()
	}
	return p.fault
}

// Wait holds a direction up for [Late]; false: the connection has ended.
func (c *Conn) Wait() bool {
	select {
	case <-time.After(Late):
		return true
	case <-c.ended:
		return false
	}
}

// End resets both sides.
func (c *Conn) End() {
	c.once.Do(func() {
		close(c.ended)
		for _, side := range []net.Conn{c.Client, c.Server} {
			_ = side.(gatedConn).SetLinger(0)
			_ = side.Close()
		}
	})
}

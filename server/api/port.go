package api

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// port shares one listener between gRPC and HTTP: the first bytes of a connection
// say what it speaks.
type port struct {
	ln   net.Listener
	tls  *tls.Config // nil: TLS is not spoken
	peek time.Duration
	grpc *handed
	http *handed

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{} // not handed on yet
	busy   sync.WaitGroup
}

// maxPeeked is how many connections may be silent at a time; more are closed.
const maxPeeked = 4096

func newPort(ln net.Listener, cfg *tls.Config, peek time.Duration) *port {
	return &port{ln: ln, tls: byProtocol(cfg), peek: peek, grpc: newHanded(ln.Addr()), http: newHanded(ln.Addr()), open: map[net.Conn]struct{}{}}
}

// byProtocol lets the client's list of protocols decide: who offers only HTTP/2
// is a gRPC client, everybody else gets HTTP/1.1.
func byProtocol(cfg *tls.Config) *tls.Config {
	if cfg == nil {
		return nil
	}
	h1, h2 := cfg.Clone(), cfg.Clone()
	h1.NextProtos, h2.NextProtos = []string{"http/1.1"}, []string{"h2"}
	out := cfg.Clone()
	out.GetConfigForClient = func(i *tls.ClientHelloInfo) (*tls.Config, error) {
		if len(i.SupportedProtos) == 0 || slices.Contains(i.SupportedProtos, "http/1.1") {
			return h1, nil
		}
		return h2, nil
	}
	return out
}

// run accepts until the listener is closed.
func (p *port) run() error {
	defer p.busy.Wait()
	for pause := time.Duration(0); ; {
		c, err := p.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil { // such as too many open files: it passes
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			time.Sleep(pause)
			continue
		}
		pause = 0
		if !p.enter(c) {
			c.Close()
			continue
		}
		p.busy.Go(func() { p.route(c) })
	}
}

func (p *port) enter(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.open) >= maxPeeked {
		return false
	}
	p.open[c] = struct{}{}
	return true
}

func (p *port) leave(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// route hands a connection to whoever speaks its language. One that says nothing
// for the time of a peek, or garbage instead of a handshake, is closed.
func (p *port) route(c net.Conn) {
	defer p.leave(c)
	_ = c.SetDeadline(time.Now().Add(p.peek))
	first := make([]byte, 3)
	if _, err := io.ReadFull(c, first); err != nil {
		c.Close()
		return
	}
	to, conn := p.http, net.Conn(&peeked{Conn: c, first: first})
	switch {
	case first[0] == 0x16:
		if conn = p.shake(conn); conn == nil {
			c.Close()
			return
		}
		if conn.(*tls.Conn).ConnectionState().NegotiatedProtocol == "h2" {
			to = p.grpc
		}
	case string(first) == "PRI":
		to = p.grpc
	}
	_ = c.SetDeadline(time.Time{})
	to.give(conn)
}

// shake is the TLS handshake; nil: it failed, or TLS is not spoken here.
func (p *port) shake(c net.Conn) net.Conn {
	if p.tls == nil {
		return nil
	}
	t := tls.Server(c, p.tls)
	if t.Handshake() != nil {
		return nil
	}
	return t
}

// close stops accepting and drops who has not said anything yet.
func (p *port) close() {
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.ln.Close()
}

// peeked is a connection whose first bytes have been read.
type peeked struct {
	net.Conn
	first []byte
}

func (p *peeked) Read(b []byte) (int, error) {
	if len(p.first) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.first)
	p.first = p.first[n:]
	return n, nil
}

// handed is a listener that gets its connections from a port.
type handed struct {
	addr  net.Addr
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newHanded(a net.Addr) *handed {
	return &handed{addr: a, conns: make(chan net.Conn), done: make(chan struct{})}
}

func (h *handed) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.done:
		c.Close()
	}
}

// Accept is of net.Listener.
func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close is of net.Listener.
func (h *handed) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr is of net.Listener.
func (h *handed) Addr() net.Addr { return h.addr }

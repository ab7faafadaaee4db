package api

import (
	"container/list"
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
	silent list.List // connections that have not said anything yet, oldest first
	most   int       // of them
	open   map[net.Conn]struct{}
	busy   sync.WaitGroup
}

// maxPeeked is how many connections may be silent at a time. One more, and the
// one that has been so for longest is closed: an honest client speaks at once.
const maxPeeked = 4096

func newPort(ln net.Listener, cfg *tls.Config, peek time.Duration) *port {
	return &port{most: maxPeeked, ln: ln, tls: byProtocol(cfg), peek: peek, grpc: newHanded(ln.Addr()), http: newHanded(ln.Addr()), open: map[net.Conn]struct{}{}}
}

// byProtocol lets the client's list of protocols decide: a client that offers only HTTP/2
// is a gRPC client, everybody else gets HTTP/1.1.
func byProtocol(cfg *tls.Config) *tls.Config {
	if cfg == nil {
		return nil
	}
	out := cfg.Clone()
	out.GetConfigForClient = func(i *tls.ClientHelloInfo) (*tls.Config, error) {
		now, err := currentTLS(cfg, i)
		if err != nil {
			return nil, err
		}
		now.NextProtos = []string{"h2"}
		if len(i.SupportedProtos) == 0 || slices.Contains(i.SupportedProtos, "http/1.1") {
			now.NextProtos = []string{"http/1.1"}
		}
		return now, nil
	}
	return out
}

// currentTLS is a copy of the configuration that holds for a client now.
func currentTLS(cfg *tls.Config, i *tls.ClientHelloInfo) (*tls.Config, error) {
	if cfg.GetConfigForClient != nil {
		switch now, err := cfg.GetConfigForClient(i); {
		case err != nil:
			return nil, err
		case now != nil:
			cfg = now
		}
	}
	cfg = cfg.Clone()
	cfg.GetConfigForClient = nil
	return cfg, nil
}

// tlsOnly: clients have to show a certificate, which plain text cannot.
func (p *port) tlsOnly() bool {
	return p.tls != nil && (p.tls.ClientAuth == tls.RequireAndVerifyClientCert || p.tls.ClientAuth == tls.RequireAnyClientCert)
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
		if x := (&peeked{Conn: c, p: p}); p.enter(x) {
			p.busy.Go(func() { p.route(x) })
		}
	}
}

// enter takes a connection in; false: it came too late, and is closed.
func (p *port) enter(c *peeked) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.Conn.Close()
		return false
	}
	if p.silent.Len() >= p.most {
		oldest := p.silent.Front().Value.(*peeked)
		p.unlist(oldest)
		oldest.Conn.Close() // its reader sees that
	}
	c.place = p.silent.PushBack(c)
	p.open[c.Conn] = struct{}{}
	return true
}

// unlist takes a connection from those that are silent.
func (p *port) unlist(c *peeked) {
	if c.place != nil {
		p.silent.Remove(c.place)
		c.place = nil
	}
}

// spoken notes that a connection has said something, or will not.
func (p *port) spoken(c *peeked) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unlist(c)
}

func (p *port) leave(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// route hands a connection to the server of its protocol. One that says nothing
// for the time of a peek, or garbage instead of a handshake, is closed.
func (p *port) route(c *peeked) {
	defer p.spoken(c)
	_ = c.SetDeadline(time.Now().Add(p.peek))
	first := make([]byte, 3)
	if _, err := io.ReadFull(c, first); err != nil {
		c.Close()
		return
	}
	c.first = first
	to, conn := p.http, net.Conn(c)
	switch {
	case first[0] == 0x16:
		if conn = p.shake(c); conn == nil {
			c.Close()
			return
		}
		if conn.(*tls.Conn).ConnectionState().NegotiatedProtocol == "h2" {
			to = p.grpc
		}
	case p.tlsOnly():
		_, _ = c.Conn.Read(make([]byte, 4096)) // what is unread would reset the answer
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\nthis port speaks TLS only, with a certificate of the client\n")
		c.Close()
		return
	case string(first) == "PRI":
		to = p.grpc
	}
	_ = c.SetDeadline(time.Time{})
	if to == p.http {
		conn = attend(conn)
	}
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

// close stops accepting.
func (p *port) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.ln.Close()
}

// cut closes every connection.
func (p *port) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.Close()
	}
}

// peeked is a connection after its first bytes have been read.
type peeked struct {
	net.Conn
	p     *port
	first []byte
	place *list.Element // among the silent ones; of the port
}

// Close is of net.Conn.
func (p *peeked) Close() error {
	p.p.leave(p.Conn)
	return p.Conn.Close()
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

package toyhold

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"sync"
	"time"
)

// maxLine is the longest message in bytes.
const maxLine = 64 << 20

// conn is one connection to the server.
type conn struct {
	net.Conn
	in *bufio.Scanner
}

func dial(ctx context.Context, addr string) (*conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	in := bufio.NewScanner(c)
	in.Buffer(nil, maxLine)
	return &conn{c, in}, nil
}

// send and receive are one line each way.
func (c *conn) send(m *message) error { return json.NewEncoder(c).Encode(m) }

func (c *conn) receive() (m message, err error) {
	if !c.in.Scan() {
		return m, orEOF(c.in.Err())
	}
	err = json.Unmarshal(c.in.Bytes(), &m)
	return m, err
}

func orEOF(err error) error {
	if err == nil {
		return net.ErrClosed
	}
	return err
}

// until ends the use of the connection with ctx; call the result when done.
func (c *conn) until(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
}

// pool keeps connections that nobody uses.
type pool struct {
	addr string

	mu     sync.Mutex
	idle   []*conn
	closed bool
}

// ask sends a request and waits for the answer. A connection on which anything
// went wrong is not used again: an answer that comes late would be taken for the
// next one.
func (p *pool) ask(ctx context.Context, m *message) (message, error) {
	c, err := p.get(ctx)
	if err != nil {
		return message{}, err
	}
	stop := c.until(ctx)
	err = c.send(m)
	var reply message
	if err == nil {
		reply, err = c.receive()
	}
	if !stop() || err != nil {
		_ = c.Close()
	} else {
		p.put(c)
	}
	return reply, err
}

func (p *pool) get(ctx context.Context) (*conn, error) {
	p.mu.Lock()
	n := len(p.idle)
	if n == 0 {
		p.mu.Unlock()
		return dial(ctx, p.addr)
	}
	defer p.mu.Unlock()
	c := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return c, nil
}

func (p *pool) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return
	}
	p.idle = append(p.idle, c)
}

// close closes what nobody uses; what is in use closes when it is put back.
func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		_ = c.Close()
	}
	p.idle = nil
	return nil
}

package host

import (
	"context"
	"errors"
	"net"
	"sync"
)

// Pipes is a network within the process. Nothing on it waits for the kernel, so nodes and clients
// that have it as Listen and Dial can live in a bubble of testing/synctest, where a busy machine
// takes nothing of their time.
//
//	wires := &host.Pipes{}
//	host.Put(&cfg, &host.Host{Listen: wires.Listen, Dial: wires.Dial})
type Pipes struct {
	mu    sync.Mutex
	ports map[string]*port
}

// port is a listener.
type port struct {
	of    *Pipes
	addr  net.Addr
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

// Listen opens a port. addr is an IP address and a number that is not 0.
func (p *Pipes) Listen(addr string) (net.Listener, error) {
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ports[addr] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: at, Err: errors.New("the address is in use")}
	}
	if p.ports == nil {
		p.ports = map[string]*port{}
	}
	l := &port{of: p, addr: at, conns: make(chan net.Conn), over: make(chan struct{})}
	p.ports[addr] = l
	return l, nil
}

// Dial connects to a port.
func (p *Pipes) Dial(ctx context.Context, addr string) (net.Conn, error) {
	p.mu.Lock()
	l := p.ports[addr]
	p.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("nobody listens at " + addr)}
	}
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.over:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: l.addr, Err: ctx.Err()}
	}
}

// Accept is of net.Listener.
func (l *port) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

// Close is of net.Listener.
func (l *port) Close() error {
	l.once.Do(func() {
		close(l.over)
		l.of.mu.Lock()
		defer l.of.mu.Unlock()
		delete(l.of.ports, l.addr.String())
	})
	return nil
}

// Addr is of net.Listener.
func (l *port) Addr() net.Addr { return l.addr }

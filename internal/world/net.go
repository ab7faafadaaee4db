package world

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// network carries connections between machines, which are told apart by their IP.
// A direction that is cut delivers when the cut is over, as TCP does; connections
// break only when they are reset.
type network struct {
	mu        sync.Mutex
	rng       *rand.Rand
	listeners map[string]*listener
	cuts      map[direction]time.Time // until when
	slow      map[direction]time.Duration
	port      int
	// transfer is asked what is to become of a snapshot that is sent to an address; nil: nothing.
	transfer func(to string) mishap
}

// mishap is what happens to one direction of a connection.
type mishap struct {
	flip  int           // flips a bit of the so-manieth byte to come; 0: of none
	end   int           // the connection breaks after so many bytes; 0: it does not
	drags time.Duration // each write takes so much longer
}

// direction is a way between two machines.
type direction struct{ from, to string }

func newNetwork(rng *rand.Rand) *network {
	return &network{rng: rng, listeners: map[string]*listener{}, cuts: map[direction]time.Time{}, slow: map[direction]time.Duration{}, port: 30000}
}

// cut stops a direction for a while.
func (n *network) cut(from, to string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if until := time.Now().Add(d); until.After(n.cuts[direction{from, to}]) {
		n.cuts[direction{from, to}] = until
	}
}

// delay adds to the time that a direction takes; 0: no more.
func (n *network) delay(from, to string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow[direction{from, to}] = d
}

// arrival is when something that is sent now arrives.
func (n *network) arrival(from, to string) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	way := direction{from, to}
	at := time.Now()
	if until := n.cuts[way]; until.After(at) {
		at = until
	}
	return at.Add(100*time.Microsecond + n.slow[way] + time.Duration(n.rng.Int64N(int64(time.Millisecond))))
}

// machine is the network as one machine sees it, from its start to its end.
type machine struct {
	n  *network
	ip string

	mu    sync.Mutex
	dead  bool
	conns map[*conn]struct{}
	ports map[string]*listener
}

func (n *network) machine(ip string) *machine {
	return &machine{n: n, ip: ip, conns: map[*conn]struct{}{}, ports: map[string]*listener{}}
}

// listener is a port of a machine.
type listener struct {
	m    *machine
	addr *net.TCPAddr
	come chan *conn
	once sync.Once
	done chan struct{}
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

// listen opens a port.
func (m *machine) listen(addr string) (net.Listener, error) {
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n.mu.Lock()
	defer m.n.mu.Unlock()
	if m.dead || m.n.listeners[addr] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	l := &listener{m: m, addr: tcp, come: make(chan *conn, 64), done: make(chan struct{})}
	m.n.listeners[addr], m.ports[addr] = l, l
	return l, nil
}

// Accept is of net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.come:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close is of net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.m.n.mu.Lock()
		defer l.m.n.mu.Unlock()
		if addr := l.addr.String(); l.m.n.listeners[addr] == l {
			delete(l.m.n.listeners, addr)
		}
	})
	return nil
}

// Addr is of net.Listener.
func (l *listener) Addr() net.Addr { return l.addr }

// dial connects, once a packet there and one back have found their way.
func (m *machine) dial(ctx context.Context, addr string) (net.Conn, error) {
	to, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	for _, way := range []direction{{m.ip, to}, {to, m.ip}} {
		if err := sleep(ctx, time.Until(m.n.arrival(way.from, way.to))); err != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
		}
	}
	m.n.mu.Lock()
	l := m.n.listeners[addr]
	m.n.port++
	local := &net.TCPAddr{IP: net.ParseIP(m.ip), Port: m.n.port}
	m.n.mu.Unlock()
	if l == nil {
		return nil, errRefused
	}
	here, there := m.n.pair(local, l.addr, m, l.m)
	if !m.own(here) || !l.m.own(there) {
		here.reset(0, 0)
		return nil, errRefused
	}
	select {
	case l.come <- there:
		return here, nil
	default:
		here.reset(0, 0)
		return nil, errRefused
	}
}

// own notes a connection of a machine; false: it is no more.
func (m *machine) own(c *conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dead {
		m.conns[c] = struct{}{}
	}
	return !m.dead
}

func (m *machine) disown(c *conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.conns, c)
}

// unplug ends the machine's part in the network at once. With silence the others hear
// of it only when the machine is started again, or after that time.
func (m *machine) unplug(silence time.Duration) {
	m.mu.Lock()
	m.dead = true
	conns, ports := m.conns, m.ports
	m.conns, m.ports = map[*conn]struct{}{}, map[string]*listener{}
	m.mu.Unlock()
	for _, l := range ports {
		l.Close()
	}
	for c := range conns {
		c.in.mute()
		c.in.close(errReset)
		c.out.mute()
		time.AfterFunc(silence, func() { c.reset(0, 0) })
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// conn is one end of a connection.
type conn struct {
	local, remote *net.TCPAddr
	m             *machine
	other         *conn
	in, out       *pipe
}

func (n *network) pair(a, b *net.TCPAddr, of, to *machine) (here, there *conn) {
	forth, back := newPipe(n, of.ip, to.ip), newPipe(n, to.ip, of.ip)
	here = &conn{local: a, remote: b, m: of, in: back, out: forth}
	there = &conn{local: b, remote: a, m: to, in: forth, out: back, other: here}
	here.other = there
	return here, there
}

var errReset = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}

// reset breaks a connection. Of what is on its way so many bytes still arrive.
func (c *conn) reset(forth, back int) {
	c.out.fail(errReset, forth)
	c.in.fail(errReset, back)
	c.m.disown(c)
	c.other.m.disown(c.other)
}

// Read is of net.Conn, as are the following.
func (c *conn) Read(p []byte) (int, error) { return c.in.read(p) }
func (c *conn) LocalAddr() net.Addr        { return c.local }
func (c *conn) RemoteAddr() net.Addr       { return c.remote }

// Write fails only after a reset has come, after which nothing can be read any more.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		c.in.fail(err, 0)
	}
	return n, err
}

// Close ends both directions: the other end reads what was sent, then EOF.
func (c *conn) Close() error {
	c.in.close(net.ErrClosed)
	c.out.end()
	c.m.disown(c)
	return nil
}

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.deadline(&c.in.readBy, t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.deadline(&c.out.writeBy, t)
	return nil
}

// window is how many bytes may be on their way in one direction.
const window = 256 << 10

// pipe is one direction of a connection.
type pipe struct {
	n        *network
	from, to string

	mu              sync.Mutex
	parts           []part
	size            int
	ended           bool  // nothing more is written
	failed          error // of both ends, once what is left was read
	closed          error // of the reader
	muted           bool  // what is written is lost
	readBy, writeBy time.Time
	changed         chan struct{} // closed with the next change
	begun           bool          // something was written
	bad             mishap
}

// part is what one write has sent.
type part struct {
	data []byte
	at   time.Time // it arrives
}

func newPipe(n *network, from, to string) *pipe {
	return &pipe{n: n, from: from, to: to, changed: make(chan struct{})}
}

// tell wakes both ends; p is locked.
func (p *pipe) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pipe) deadline(which *time.Time, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*which = t
	p.tell()
}

// end is the writer's close.
func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.tell()
}

// close is the reader's: what is still written breaks the connection.
func (p *pipe) close(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.parts, p.size = err, nil, 0
	p.tell()
}

// fail breaks the pipe after so many of the bytes that are on their way.
func (p *pipe) fail(err error, keep int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed, p.size = cmp.Or(p.failed, err), 0
	for i := range p.parts {
		x := &p.parts[i]
		x.data = x.data[:min(len(x.data), keep)]
		keep -= len(x.data)
		p.size += len(x.data)
	}
	p.tell()
}

// mute loses what is written from now on.
func (p *pipe) mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = true
	p.tell()
}

// befall has something happen to the bytes to come.
func (p *pipe) befall(m mishap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bad = m
}

// wait waits for a change or for one of two times; p is locked, and is afterwards.
func (p *pipe) wait(a, b time.Time) {
	changed := p.changed
	p.mu.Unlock()
	defer p.mu.Lock()
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		a = b
	}
	if a.IsZero() {
		<-changed
		return
	}
	t := time.NewTimer(time.Until(a))
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	}
}

func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for len(p.parts) > 0 && len(p.parts[0].data) == 0 {
			p.parts = p.parts[1:]
		}
		var at time.Time
		switch {
		case p.closed != nil:
			return 0, p.closed
		case passed(p.readBy):
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case len(p.parts) > 0 && passed(p.parts[0].at):
			return p.take(b), nil
		case len(p.parts) > 0:
			at = p.parts[0].at
		case p.failed != nil:
			return 0, p.failed
		case p.ended:
			return 0, io.EOF
		}
		p.wait(at, p.readBy)
	}
}

// take reads from what has arrived.
func (p *pipe) take(b []byte) (n int) {
	for n < len(b) && len(p.parts) > 0 && passed(p.parts[0].at) {
		k := copy(b[n:], p.parts[0].data)
		p.parts[0].data = p.parts[0].data[k:]
		n += k
		if len(p.parts[0].data) == 0 {
			p.parts = p.parts[1:]
		}
	}
	p.size -= n
	n = p.spoil(b[:n])
	p.tell()
	return n
}

// spoil does to what is read what is to happen to it, and returns how much of it is
// left.
func (p *pipe) spoil(b []byte) int {
	n := len(b)
	if flip := p.bad.flip; flip > 0 && flip <= n {
		b[flip-1] ^= 4
	}
	p.bad.flip = max(0, p.bad.flip-n)
	if end := p.bad.end; end > 0 && end <= n {
		n = end
		p.failed, p.parts, p.size = errReset, nil, 0
	}
	p.bad.end = max(0, p.bad.end-n)
	return n
}

func (p *pipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := 0
	for {
		switch {
		case p.failed != nil:
			return done, p.failed
		case p.ended:
			return done, net.ErrClosed
		case passed(p.writeBy):
			return done, os.ErrDeadlineExceeded
		case p.muted:
			return len(b), nil
		case p.closed != nil:
			return done, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
		case done == len(b):
			return done, nil
		case p.size < window:
			k := min(len(b)-done, window-p.size)
			p.send(b[done : done+k])
			done += k
			continue
		}
		p.wait(p.writeBy, time.Time{})
	}
}

// send puts bytes on their way, behind those that are.
func (p *pipe) send(b []byte) {
	if !p.begun {
		p.begun = true
		if len(b) > 5 && string(b[:4]) == "HFPT" && b[5] == 2 && p.n.transfer != nil {
			p.bad = p.n.transfer(p.to)
		}
	}
	at := p.n.arrival(p.from, p.to).Add(p.bad.drags)
	if n := len(p.parts); n > 0 && p.parts[n-1].at.After(at) {
		at = p.parts[n-1].at
	}
	p.parts = append(p.parts, part{append([]byte(nil), b...), at})
	p.size += len(b)
	p.tell()
}

// all are the connections of a machine.
func (m *machine) all() map[*conn]struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.conns)
}

package transport

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// peer is the road to one other node: a bounded queue and a connection that is
// made anew whenever it breaks.
type peer struct {
	t    *Transport
	id   uint64
	addr string

	mu     sync.Mutex
	queue  [][]byte
	bytes  int
	closed bool
	wake   chan struct{}

	unanswered atomic.Int64 // since when nothing was heard after something was sent, in ns; 0: it was
}

func newPeer(t *Transport, id uint64, addr string) *peer {
	return &peer{t: t, id: id, addr: addr, wake: make(chan struct{}, 1)}
}

// enqueue takes a message; false: there is no room.
func (p *peer) enqueue(data []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.bytes+len(data) > p.t.cfg.QueueBytes {
		return false
	}
	p.queue = append(p.queue, data)
	p.bytes += len(data)
	p.poke()
	return true
}

func (p *peer) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *peer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.queue, p.bytes = true, nil, 0
	p.poke()
}

// take empties the queue; false: the peer is forgotten.
func (p *peer) take() ([][]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queue
	p.queue, p.bytes = nil, 0
	return q, !p.closed
}

// The pause between two tries to connect.
const (
	firstPause = 20 * time.Millisecond
	longPause  = time.Second
)

func (p *peer) run() {
	pause := firstPause
	for p.t.ctx.Err() == nil && !p.gone() {
		conn, err := p.t.dial(p, forMessages)
		if err != nil {
			p.drop()
			p.t.pause(pause)
			pause = min(2*pause, longPause)
			continue
		}
		pause = firstPause
		p.pump(conn)
		conn.Close()
		p.drop()
	}
}

func (p *peer) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// drop forgets what could not be sent: by the time a connection stands again
// raft will have newer things to say.
func (p *peer) drop() {
	if q, ok := p.take(); ok && len(q) > 0 {
		p.t.cfg.Unreachable(p.id)
	}
}

// sent notes that an answer may come from now on.
func (p *peer) sent() { p.unanswered.CompareAndSwap(0, time.Now().UnixNano()) }

// mute reports that the peer has answered nothing for a whole timeout, whatever was sent
// to it. Its connection may be one of which only packets are lost: the system would send
// them again after minutes, and a new connection stands at once when the network is back.
func (p *peer) mute() bool {
	since := p.unanswered.Load()
	return since != 0 && time.Now().UnixNano()-since > int64(p.t.cfg.Timeout)
}

// pump writes what is queued until the connection breaks, or brings no answer. The peer
// never writes on it, so a read tells when it is gone.
func (p *peer) pump(conn net.Conn) {
	p.unanswered.Store(0)
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		var b [1]byte
		conn.Read(b[:])
	}()
	defer func() {
		conn.Close()
		<-broken
	}()
	w := bufio.NewWriterSize(conn, 256<<10)
	var buf []byte
	for {
		select {
		case <-p.wake:
		case <-broken:
			return
		case <-p.t.ctx.Done():
			return
		}
		q, ok := p.take()
		if !ok {
			return
		}
		conn.SetWriteDeadline(time.Now().Add(p.t.cfg.Timeout))
		for _, m := range q {
			buf = appendFrame(buf[:0], m)
			w.Write(buf)
		}
		if w.Flush() != nil || p.mute() {
			p.t.cfg.Unreachable(p.id)
			return
		}
		p.sent()
	}
}

// serveMessages delivers what a peer sends, in order.
func (t *Transport) serveMessages(c net.Conn, from uint64) {
	r := bufio.NewReaderSize(c, 256<<10)
	for {
		p, err := readFrame(r)
		if err != nil {
			return
		}
		if q := t.peer(from); q != nil {
			q.unanswered.Store(0)
		}
		t.cfg.Deliver(from, p)
	}
}

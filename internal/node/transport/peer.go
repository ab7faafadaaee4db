package transport

import (
	"bufio"
	"cmp"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// peer is the road to one other node: a bounded queue, and a connection that is made anew
// whenever it breaks. The way back on a connection that the other node has made is one, too:
// it has no address, and ends with its connection.
type peer struct {
	t    *Transport
	id   uint64
	addr string

	mu     sync.Mutex
	queue  [][]byte
	bytes  int
	closed bool
	wake   chan struct{}

	up         atomic.Bool  // it has a connection
	strayed    atomic.Bool  // it was found elsewhere when it was last looked for
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
	for p.t.begins() && !p.gone() {
		conn, err := p.reach(forMessages)
		if err != nil {
			p.drop()
			p.t.pause(pause)
			pause = min(2*pause, longPause)
			continue
		}
		pause = firstPause
		p.use(conn)
		p.drop()
	}
}

// use sends and hears on a connection that this node has made, until it breaks.
func (p *peer) use(conn net.Conn) {
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		p.t.receive(conn, p.id, func() {})
	}()
	p.up.Store(true)
	p.pump(conn, broken, appendFrame(nil, nil)) // the other side may answer on it
	p.up.Store(false)
	conn.Close()
	<-broken
}

// reach connects to a peer: at its address, or where it may have moved if it is not found there.
func (p *peer) reach(why purpose) (net.Conn, error) {
	conn, err := p.direct(why)
	if err == nil {
		p.strayed.Store(false)
		return conn, nil
	}
	addr := p.t.cfg.Elsewhere[p.id]
	if addr == "" || addr == p.addr || p.t.Known(p.id) == 0 || p.gone() {
		return nil, err
	}
	conn, there := p.t.dial(&peer{id: p.id, addr: addr}, why)
	if there != nil {
		return nil, err
	}
	p.strayed.Store(true)
	return conn, nil
}

// direct connects to a peer at its address.
func (p *peer) direct(why purpose) (net.Conn, error) {
	if p.addr == "" {
		return nil, fmt.Errorf("transport: it is not known where node %d is", p.id)
	}
	return p.t.dial(p, why)
}

// ping sees whether a peer answers where it was found last: at its address another may answer by now.
func (p *peer) ping() error {
	c, err := p.t.dial(&peer{id: p.id, addr: cmp.Or(p.t.FoundAt(p.id), p.addr)}, forQuestion)
	if err != nil {
		return err
	}
	return c.Close()
}

// FoundAt is where a peer was found that is not where SetPeers says; "": it is there, or was not
// found at all.
func (t *Transport) FoundAt(id uint64) string {
	if p := t.peer(id); p != nil && p.strayed.Load() {
		return t.cfg.Elsewhere[id]
	}
	return ""
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

// pump writes first, and then what is queued, until the connection breaks, or brings no answer.
func (p *peer) pump(conn net.Conn, broken <-chan struct{}, first []byte) {
	p.unanswered.Store(0)
	w := bufio.NewWriterSize(conn, 256<<10)
	conn.SetWriteDeadline(time.Now().Add(p.t.cfg.Timeout))
	w.Write(first)
	if w.Flush() != nil {
		return
	}
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

// serveMessages delivers what a peer sends on a connection that it has made, and if the peer
// listens there, sends on it what has no better road: this node may not know yet that the peer is a
// member, or where it has moved, and the group may need the answer before it can tell.
func (t *Transport) serveMessages(c net.Conn, from uint64) {
	back, broken := newPeer(t, from, ""), make(chan struct{})
	var writer sync.WaitGroup
	t.receive(c, from, func() {
		if t.open(back) {
			writer.Go(func() { back.pump(c, broken, nil); c.Close() })
		}
	})
	close(broken)
	c.Close()
	t.shut(back)
	writer.Wait()
}

// receive delivers what a peer sends, in order, until the connection breaks. An empty frame says
// that the peer listens on a connection that it has made.
func (t *Transport) receive(c net.Conn, from uint64, listens func()) {
	r := bufio.NewReaderSize(c, 256<<10)
	for {
		p, err := readFrame(r)
		if err != nil {
			return
		}
		t.heard(from)
		if len(p) == 0 {
			listens()
			continue
		}
		t.cfg.Deliver(from, p)
	}
}

// heard notes that a node answers, on whichever road.
func (t *Transport) heard(from uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.peers[from]; p != nil {
		p.unanswered.Store(0)
	}
	for _, p := range t.back[from] {
		p.unanswered.Store(0)
	}
}

// open makes the way back on a connection the one to its node; false: it is already.
func (t *Transport) open(back *peer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if back.up.Swap(true) {
		return false
	}
	t.back[back.id] = append(t.back[back.id], back) // an older connection is on its way out, as a rule
	return true
}

// shut is the end of the way back on a connection. Another of that node is used again, as when it was an image that came
// and went.
func (t *Transport) shut(back *peer) {
	t.mu.Lock()
	t.back[back.id] = slices.DeleteFunc(t.back[back.id], func(p *peer) bool { return p == back })
	if len(t.back[back.id]) == 0 {
		delete(t.back, back.id)
	}
	t.mu.Unlock()
	back.drop()
	back.close()
}

//go:build unix

package services

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	chunkSize  = 32 << 10 // bytes read at once
	chunkQueue = 256      // chunks under way in one direction
)

// A way is the state of one direction of a link.
type way struct {
	mu      sync.RWMutex // held for reading during each write
	cut     bool
	delay   time.Duration
	changed chan struct{} // closed and replaced by each change
}

func (w *way) change(alter func(*way)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	alter(w)
	close(w.changed)
	w.changed = make(chan struct{})
}

// pass runs act when the way is open for something sent at the given time.
// Otherwise it returns how long to wait, at most, before asking again, with a
// channel that ends the wait early.
func (w *way) pass(sent time.Time, act func()) (wait time.Duration, changed <-chan struct{}) {
	const untilChange = time.Hour
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.cut {
		return untilChange, w.changed
	}
	if wait := time.Until(sent.Add(w.delay)); w.delay > 0 && wait > 0 {
		return wait, w.changed
	}
	act()
	return 0, nil
}

// await runs act when the way is open, and reports false when done ends first.
func (w *way) await(done <-chan struct{}, sent time.Time, act func()) bool {
	for {
		wait, changed := w.pass(sent, act)
		if changed == nil {
			return true
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-done:
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// A pair is one connection through a link. ends[d] is where the bytes of
// direction d go to.
type pair struct {
	ends   [2]*net.TCPConn
	ctx    context.Context // ends with the pair
	cancel context.CancelFunc
}

// A chunk is what one read gave: bytes, or the end of the stream (io.EOF) or of
// the connection (any other error).
type chunk struct {
	data []byte
	err  error
	sent time.Time
}

// reset ends the pair with a TCP reset on both sides. For it and for close, the
// caller holds the link's lock. They fail only on what has ended already.
func (p *pair) reset() {
	for _, end := range p.ends {
		if end != nil {
			_ = end.SetLinger(0)
		}
	}
	p.close()
}

func (p *pair) close() {
	p.cancel()
	for _, end := range p.ends {
		if end != nil {
			_ = end.Close()
		}
	}
}

// serve forwards one connection until it ends.
func (l *Link) serve(client *net.TCPConn) {
	p := l.admit(client)
	defer l.dismiss(p)
	l.ways[ToServer].await(p.ctx.Done(), time.Time{}, func() {})
	if !l.connect(p) {
		l.reset(p)
		return
	}
	var flows sync.WaitGroup
	for _, d := range bothWays {
		from, to, queue := p.ends[1-d], p.ends[d], make(chan chunk, chunkQueue)
		flows.Go(func() { p.read(from, queue) })
		flows.Go(func() { l.write(p, &l.ways[d], to, queue) })
	}
	flows.Wait()
}

func (l *Link) admit(client *net.TCPConn) *pair {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &pair{}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.ends[ToClient] = client
	l.pairs[p] = struct{}{}
	if l.ended {
		p.reset()
	}
	return p
}

// dismiss forgets a pair after its flows have ended. The last bytes that were
// written to it still arrive.
func (l *Link) dismiss(p *pair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pairs, p)
	p.close()
}

func (l *Link) reset(p *pair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.reset()
}

// connect opens the server's side. A Break that comes in between resets it.
func (l *Link) connect(p *pair) bool {
	dialer := net.Dialer{Control: resetOnClose}
	conn, err := dialer.DialContext(p.ctx, "tcp", l.target)
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p.ends[ToServer] = conn.(*net.TCPConn)
	return p.ctx.Err() == nil && p.ends[ToServer].SetLinger(-1) == nil
}

// resetOnClose is for sockets that the dialer closes by itself when it is
// interrupted: the server may have accepted by then and must see a reset.
func resetOnClose(_, _ string, socket syscall.RawConn) error {
	var failed error
	err := socket.Control(func(fd uintptr) {
		failed = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
	})
	return errors.Join(err, failed)
}

func (p *pair) read(from *net.TCPConn, queue chan<- chunk) {
	for {
		data := make([]byte, chunkSize)
		n, err := from.Read(data)
		sent := time.Now()
		if n > 0 && !p.enqueue(queue, chunk{data: data[:n], sent: sent}) {
			return
		}
		if err != nil {
			p.enqueue(queue, chunk{err: err, sent: sent})
			return
		}
	}
}

func (p *pair) enqueue(queue chan<- chunk, c chunk) bool {
	select {
	case queue <- c:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// write delivers one direction in order, through cuts and delays.
func (l *Link) write(p *pair, w *way, to *net.TCPConn, queue <-chan chunk) {
	for {
		select {
		case c := <-queue:
			if !p.deliver(w, to, c) {
				l.reset(p)
				return
			}
			if c.err != nil {
				return
			}
		case <-p.ctx.Done():
			return
		}
	}
}

// deliver reports false when the connection is over in both directions.
func (p *pair) deliver(w *way, to *net.TCPConn, c chunk) bool {
	var n int
	err := os.ErrDeadlineExceeded // what a change of the way interrupts writes with
	for errors.Is(err, os.ErrDeadlineExceeded) {
		if !w.await(p.ctx.Done(), c.sent, func() { n, err = forward(to, c) }) {
			return false
		}
		c.data = c.data[n:]
	}
	return err == nil
}

func forward(to *net.TCPConn, c chunk) (int, error) {
	switch c.err {
	case nil:
		return to.Write(c.data)
	case io.EOF:
		return 0, to.CloseWrite()
	default:
		return 0, c.err
	}
}

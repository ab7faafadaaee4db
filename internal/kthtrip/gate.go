package kthtrip

import (
	"net"
	"sync"
)

// Gate lets everything through until it is shut, and again from when it is opened. The zero value is open.
type Gate struct {
	mu   sync.Mutex
	shut chan struct{} // closed when it opens again; nil: it is open
	over bool          // it was opened
}

// Shut has callers of Pass wait, until Open is called.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil && !g.over {
		g.shut = make(chan struct{})
	}
}

// Open ends that for good: a fault that is under way when it is disarmed shuts nothing any more.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over = true; g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// Pass waits until the gate is open; false: ended came first.
func (g *Gate) Pass(ended <-chan struct{}) bool {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut == nil {
		return true
	}
	select {
	case <-shut:
		return true
	case <-ended:
		return false
	}
}

// gatedConn is a side of a connection that is written to through a gate.
type gatedConn struct {
	*net.TCPConn
	gate  *Gate
	ended <-chan struct{}
	last  func() bool // what is written now is the last that passes
}

func (c gatedConn) Write(p []byte) (int, error) {
	if !c.gate.Pass(c.ended) {
		return 0, net.ErrClosed
	}
	n, err := c.TCPConn.Write(p)
	if c.last() {
		c.gate.Shut()
	}
	return n, err
}

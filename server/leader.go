package server

import (
	"errors"
	"sync"
)

// ErrNotLeader is the cause of the error of a call that only the leader can answer.
var ErrNotLeader = errors.New("this node does not lead")

// Leader is the leader of a group, as far as one of its nodes knows.
type Leader struct {
	ID   uint64 // 0: none is known
	Addr string // where clients find it; "": that is not known
}

// Leader tells the leader, as far as this node knows; the channel is closed when that
// changes. It does not wait for the node.
func (s *Server) Leader() (Leader, <-chan struct{}) { return s.loop.lead.get() }

// ID is the number of this node in its group.
func (s *Server) ID() uint64 { return s.cfg.ID }

// leadership is what a loop says about the leader.
type leadership struct {
	mu      sync.Mutex
	now     Leader
	changed chan struct{} // nil: nobody waits for a change
}

func (l *leadership) set(id uint64, addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == (Leader{id, addr}) {
		return
	}
	l.now = Leader{id, addr}
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

func (l *leadership) get() (Leader, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.now, l.changed
}

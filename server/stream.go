package server

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// Stream carries messages of package session between clients and the node; any
// number of sessions can share one.
type Stream struct {
	l  *loop
	id replica.Caller
}

// Stream opens a stream. deliver gets what the node sends, in order and never
// twice at the same time, and must not keep it; if next is not nil, the node has
// more, which it sends when next is called: after the client has taken data. closed is called
// once when nothing more will come, as when this node stops leading. None may block.
func (s *Server) Stream(ctx context.Context, deliver func(data []byte, next func()), closed func()) (*Stream, error) {
	st := &Stream{l: s.loop}
	err := s.loop.do(ctx, func() {
		st.id = s.loop.newCaller()
		s.loop.streams[st.id] = &stream{deliver: deliver, closed: closed}
	})
	if err != nil {
		st.Close() // behind what was posted, which may still be done
		return nil, err
	}
	return st, nil
}

// Send hands messages to the node. It does not block; data must not change
// afterwards.
func (st *Stream) Send(data []byte) error {
	if !st.l.receive(inFrame{st.id, data}) {
		return &driver.Error{Op: "send", Kind: driver.ErrClosed, Outcome: driver.NotDone, Err: errStopped}
	}
	return nil
}

// maxInbox is how many bytes may lie before the node's loop; a sender of more waits
// for it. It is less than the queue behind the loop takes: what comes at once
// should not be refused while there is nothing else to do.
const maxInbox = 256 << 10

// Room waits until the node has taken most of what was sent to it, over all
// streams. A reader from a network calls it before Send, so that what a client
// sends too fast stays with the client.
func (st *Stream) Room(ctx context.Context) error {
	l := st.l
	for {
		l.mu.Lock()
		if l.inbox.bytes <= maxInbox || l.stop {
			l.mu.Unlock()
			return nil
		}
		if l.taken == nil {
			l.taken = make(chan struct{})
		}
		taken := l.taken
		l.mu.Unlock()
		select {
		case <-taken:
		case <-l.stopped:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// next asks for the next page of a stream.
func (l *loop) next(c replica.Caller) {
	l.post(func(in *inbox) { in.todo = append(in.todo, func() { l.node.More(l.now(), c) }) })
}

// Close ends the stream; its sessions live on.
func (st *Stream) Close() {
	st.l.post(func(in *inbox) { in.todo = append(in.todo, func() { st.l.drop(st.id) }) })
}

// newCaller numbers a caller that waits for something.
func (l *loop) newCaller() replica.Caller {
	l.caller++
	return l.caller
}

// do runs f on the loop's goroutine and waits for it.
func (l *loop) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	ok := l.post(func(in *inbox) {
		in.todo = append(in.todo, func() {
			f()
			close(done)
		})
	})
	if !ok {
		return &driver.Error{Op: "ask", Kind: driver.ErrClosed, Outcome: driver.NotDone, Err: errStopped}
	}
	select {
	case <-done:
		return nil
	case <-l.stopped:
		return &driver.Error{Op: "ask", Kind: driver.ErrClosed, Err: errStopped}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// halt asks the loop to end.
func (l *loop) halt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop = true
	l.signal()
}

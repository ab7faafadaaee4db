package rpc

import (
	"context"
	"io/fs"
	"sync"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/session"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// maxBehind is how many bytes may wait for a client when there is more to say to it.
// A client that has left so much unread does not read: its stream is closed, never
// thinned, and its sessions attach anew and get their claim tables. One answer may be
// larger than that, so what comes is not judged by its own size: a client that asks for
// it again would never get it.
const maxBehind = 16 << 20

// maxPiece is how many bytes of whole messages are sent at once. Each batch that arrives
// is a sign of life, and a slow link must not wait for the last byte of a large answer.
const maxPiece = 1 << 20

// maxUnread is how many bytes may wait for a client before nothing more is read
// from it: a client that asks faster than it takes the answers is slowed down.
const maxUnread = 1 << 20

// sessionStream is pb.SessionStream.
type sessionStream struct {
	pb.UnsafeSessionStreamServer
	s *server.Server
}

// Attach carries sessions between a client and the node.
func (s sessionStream) Attach(client grpc.BidiStreamingServer[pb.Batch, pb.Batch]) error {
	if err := client.SetHeader(wire.ClusterMetadata(s.s.ClusterID())); err != nil {
		return err
	}
	out := newOutbox()
	node, err := s.s.Stream(client.Context(), out.add, out.end)
	if err != nil {
		return err
	}
	defer node.Close()
	go receive(client, node, out)
	return out.carry(client)
}

// receive hands what the client sends to the node. It ends with the client's
// stream, which Attach's return ends at the latest.
func receive(client grpc.BidiStreamingServer[pb.Batch, pb.Batch], node *server.Stream, out *outbox) {
	defer out.end()
	for {
		b, err := client.Recv()
		if err != nil {
			return
		}
		if len(b.GetMessages()) == 0 {
			continue
		}
		if out.room(client.Context()) != nil || node.Room(client.Context()) != nil || node.Send(b.GetMessages()) != nil {
			return
		}
	}
}

// outbox is what the node has to say to a client.
type outbox struct {
	mu    sync.Mutex
	data  []byte
	next  func() // nil: the node has no more to send by now
	ended bool
	full  chan struct{} // closed when the client does not read
	wake  chan struct{}
	taken chan struct{} // what there was is being sent
}

func newOutbox() *outbox {
	return &outbox{full: make(chan struct{}), wake: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
}

// carry sends until nothing more comes. A client that does not read keeps a sender waiting
// for ever, so its stream ends beside the sender, which the end of the stream ends too.
func (o *outbox) carry(client grpc.BidiStreamingServer[pb.Batch, pb.Batch]) error {
	sent := make(chan error, 1)
	go func() { sent <- o.run(client) }()
	select {
	case err := <-sent:
		if err != nil || !o.isFull() {
			return err
		}
	case <-o.full:
	}
	return driver.Errorf("attach", "", driver.ErrExhausted, "the client does not read: attach anew")
}

func (o *outbox) isFull() bool {
	select {
	case <-o.full:
		return true
	default:
		return false
	}
}

// room waits until there is not too much for the client to read; an error: nothing more
// need be read from it.
func (o *outbox) room(ctx context.Context) error {
	for {
		o.mu.Lock()
		unread, ended := len(o.data), o.ended
		o.mu.Unlock()
		switch {
		case ended:
			return fs.ErrClosed
		case unread <= maxUnread:
			return nil
		}
		select {
		case <-o.taken:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// add runs on the node's loop and never waits. After the end nothing is kept.
func (o *outbox) add(data []byte, next func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ended:
		return
	case len(o.data) > maxBehind:
		o.data, o.ended = nil, true
		close(o.full)
	default:
		o.data = append(o.data, data...)
	}
	if next != nil {
		o.next = next
	}
	o.signal()
}

func (o *outbox) end() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take is what has come since the last time.
func (o *outbox) take(empty []byte) (data []byte, next func(), ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	data, next, o.data, o.next = o.data, o.next, empty, nil
	select {
	case o.taken <- struct{}{}:
	default:
	}
	return data, next, o.ended
}

// run sends what there is, as far as possible in one batch each time: the busier the
// node, the larger they are.
func (o *outbox) run(client grpc.BidiStreamingServer[pb.Batch, pb.Batch]) error {
	var spare []byte
	for range o.wake {
		data, next, ended := o.take(spare[:0])
		if err := send(client, data); err != nil {
			return err
		}
		if ended {
			return nil
		}
		if next != nil {
			next()
		}
		if spare = data; cap(spare) > maxPiece {
			spare = nil // the room of one large answer is not kept for all to come
		}
	}
	return fs.ErrClosed
}

// send sends messages, in pieces.
func send(client grpc.BidiStreamingServer[pb.Batch, pb.Batch], data []byte) error {
	var batch pb.Batch
	for len(data) > 0 {
		batch.Messages, data = session.Cut(data, maxPiece)
		if err := client.Send(&batch); err != nil {
			return err
		}
	}
	return nil
}

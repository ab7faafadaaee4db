package rpc

import (
	"context"
	"io/fs"
	"sync"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/driver"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// maxBehind is how many bytes may wait for a client that does not read. A stream
// that exceeds it is closed, never thinned: its sessions attach anew and get
// their claim tables.
const maxBehind = 16 << 20

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
	out := &outbox{wake: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
	node, err := s.s.Stream(client.Context(), out.add, out.end)
	if err != nil {
		return err
	}
	defer node.Close()
	go receive(client, node, out)
	return out.run(client)
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
	full  bool
	wake  chan struct{}
	taken chan struct{} // what there was is being sent
}

// room waits until there is not too much for the client to read.
func (o *outbox) room(ctx context.Context) error {
	for {
		o.mu.Lock()
		ok := len(o.data) <= maxUnread || o.ended
		o.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-o.taken:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// add runs on the node's loop and never waits.
func (o *outbox) add(data []byte, next func()) {
	o.mu.Lock()
	if next != nil {
		o.next = next
	}
	o.data = append(o.data, data...)
	if len(o.data) > maxBehind {
		o.data, o.ended, o.full = nil, true, true
	}
	o.mu.Unlock()
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
func (o *outbox) take(empty []byte) (data []byte, next func(), ended, full bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	data, next, o.data, o.next = o.data, o.next, empty, nil
	select {
	case o.taken <- struct{}{}:
	default:
	}
	return data, next, o.ended, o.full
}

// run sends what there is, in one batch each time: the busier the node, the
// larger they are.
func (o *outbox) run(client grpc.BidiStreamingServer[pb.Batch, pb.Batch]) error {
	var batch pb.Batch
	var spare []byte
	for range o.wake {
		data, next, ended, full := o.take(spare[:0])
		if full {
			return driver.Errorf("attach", "", driver.ErrExhausted, "the client does not read: attach anew")
		}
		if len(data) > 0 {
			batch.Messages = data
			if err := client.Send(&batch); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
		if next != nil {
			next()
		}
		spare = data
	}
	return fs.ErrClosed
}

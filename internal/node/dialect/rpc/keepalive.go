package rpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-io/holdfast/internal/node/gateway"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// How many messages of one LeaseKeepAlive are under way at the same time, and of all of a node:
// they share writes, so that a stream keeps as many leases as the node can renew.
const (
	streamKeeps = 256
	allKeeps    = 4096
)

// LeaseKeepAlive renews one lease a message, wherever the leader is. An unknown lease
// is answered with a ttl of 0, and the stream goes on for the others.
func (l lockServer) LeaseKeepAlive(stream pb.LockService_LeaseKeepAliveServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	k := keeper{recv: stream.Recv, keep: l.keepAlive, all: l.s.keeps, answers: make(chan chan kept, streamKeeps)}
	go k.receive(ctx)
	return k.run(ctx, stream.Send)
}

// keeper renews the leases of one stream, and answers in the order of the messages.
type keeper struct {
	recv    func() (*pb.LeaseKeepAliveRequest, error)
	keep    func(context.Context, *pb.LeaseKeepAliveRequest) (*pb.LeaseKeepAliveResponse, error)
	all     chan struct{} // the places of the node
	answers chan chan kept
}

// kept is what became of a message.
type kept struct {
	r   *pb.LeaseKeepAliveResponse
	err error
}

// receive begins to renew with every message. It ends with the client's stream, which the
// return of LeaseKeepAlive ends at the latest.
func (k *keeper) receive(ctx context.Context) {
	defer close(k.answers)
	for {
		m, err := k.recv()
		if errors.Is(err, io.EOF) {
			return
		}
		answer := make(chan kept, 1)
		select {
		case k.answers <- answer:
		case <-ctx.Done():
			return
		}
		if err != nil {
			answer <- kept{err: err}
			return
		}
		select {
		case k.all <- struct{}{}:
		case <-ctx.Done():
			return
		}
		go k.renew(ctx, m, answer)
	}
}

func (k *keeper) renew(ctx context.Context, m *pb.LeaseKeepAliveRequest, answer chan<- kept) {
	defer func() { <-k.all }()
	r, err := k.keep(ctx, m)
	answer <- kept{r, err}
}

// run sends the answers, until one is an error or there are no more.
func (k *keeper) run(ctx context.Context, send func(*pb.LeaseKeepAliveResponse) error) error {
	for answer := range k.answers {
		select {
		case a := <-answer:
			if a.err != nil {
				return a.err
			}
			if err := send(a.r); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (l lockServer) keepAlive(ctx context.Context, m *pb.LeaseKeepAliveRequest) (*pb.LeaseKeepAliveResponse, error) {
	kept, err := l.keep(ctx, &pb.KeepRequest{LeaseId: m.Id})
	if err == nil && kept.TtlMs < 1000 { // which is 0 in whole seconds, as of a lease that is gone
		kept, err = l.keep(ctx, &pb.KeepRequest{LeaseId: m.Id, TtlMs: 1000})
	}
	switch l.s.status(err).Code() {
	case codes.OK:
		return &pb.LeaseKeepAliveResponse{Header: kept.Header, Id: m.Id, Ttl: kept.TtlMs / 1000}, nil
	case codes.NotFound:
		return &pb.LeaseKeepAliveResponse{Header: l.Header(ctx, 0), Id: m.Id}, nil
	}
	return nil, err
}

// keep renews a lease, wherever the leader is.
func (l lockServer) keep(ctx context.Context, in *pb.KeepRequest) (*pb.KeepResponse, error) {
	c := gateway.CallOf(pb.SessionService_Keep_FullMethodName, in, metadataOf(ctx), nil)
	out, err := l.Anywhere(ctx, c, func(ctx context.Context) (any, error) {
		return gateway.Sessions{Gateway: l.Gateway}.Keep(ctx, in)
	}, l.s.relay.Ask(c.Method, in))
	if err != nil {
		return nil, err
	}
	return out.(*pb.KeepResponse), nil
}

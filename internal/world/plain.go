package world

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// plain speaks gRPC, to whichever node it finds.
type plain struct {
	p     *party
	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

func newPlain(p *party) *plain { return &plain{p: p, conns: map[string]*grpc.ClientConn{}} }

func (x *plain) protocol() string { return "grpc" }

func (x *plain) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.conns {
		_ = c.Close()
	}
}

// conn is a connection to some node.
func (x *plain) conn() *grpc.ClientConn {
	x.mu.Lock()
	defer x.mu.Unlock()
	addr := x.p.node()
	if x.conns[addr] == nil {
		c, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(x.p.m.dial),
			grpc.WithDefaultCallOptions(grpc.WaitForReady(x.p.rng.IntN(3) > 0)))
		if err != nil {
			panic(err) // nothing is dialled yet
		}
		x.conns[addr] = c
	}
	return x.conns[addr]
}

func keyed(ctx context.Context, key string) context.Context {
	if key == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "idempotency-key", key)
}

func (x *plain) add(ctx context.Context, name string, amount int64, key string) (int64, error) {
	c := pb.NewCounterServiceClient(x.conn())
	if amount < 0 {
		r, err := c.Subtract(keyed(ctx, key), &pb.CounterSubtractRequest{Name: name, Amount: new(uint64(-amount))})
		return r.GetValue(), wire.Error(err)
	}
	r, err := c.Add(keyed(ctx, key), &pb.CounterAddRequest{Name: name, Amount: new(uint64(amount))})
	return r.GetValue(), wire.Error(err)
}

// lasting is the belief of a hold that lasts for some time from when it was asked for.
type lasting struct{ end atomic.Int64 }

func until(asked time.Time, ms int64) *lasting {
	l := &lasting{}
	l.renewed(asked, ms)
	return l
}

func (l *lasting) renewed(asked time.Time, ms int64) {
	l.end.Store(max(l.end.Load(), asked.Add(time.Duration(ms)*time.Millisecond).UnixNano()))
}

func (l *lasting) holds() bool { return time.Now().UnixNano() < l.end.Load() }

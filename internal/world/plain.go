package world

import (
	"context"
	"sync"
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
		c, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(x.p.m.dial))
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

func (x *plain) lock(ctx context.Context, name string, try bool) (*grip, error) {
	c, ttl, asked := pb.NewLockServiceClient(x.conn()), x.p.ttl(), time.Now()
	r := &pb.LockRequest{Name: name, TtlMs: ttl.Milliseconds(), Owner: x.p.String()}
	if try {
		r.TimeoutMs = new(int64(0))
	}
	got, err := c.Lock(ctx, r)
	if err != nil {
		return nil, wire.Error(err)
	}
	if !got.Acquired {
		return nil, errNotAcquired
	}
	return &grip{
		token: uint64(got.FencingToken),
		holds: until(asked, got.TtlMs),
		release: func(ctx context.Context) error {
			_, err := pb.NewLockServiceClient(x.conn()).Unlock(ctx, &pb.UnlockRequest{Name: name, FencingToken: got.FencingToken})
			return wire.Error(err)
		},
	}, nil
}

// until is the belief of a hold that lasts so many milliseconds from when it was
// asked for.
func until(asked time.Time, ms int64) func() bool {
	end := asked.Add(time.Duration(ms) * time.Millisecond)
	return func() bool { return time.Now().Before(end) }
}

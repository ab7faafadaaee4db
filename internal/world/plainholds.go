package world

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

func (x *plain) terms(w want) *pb.Terms {
	t := &pb.Terms{LeaseId: w.lease, Owner: x.p.owner()}
	if w.lease == 0 {
		t.TtlMs = x.p.ttl().Milliseconds()
	}
	if w.try {
		t.TimeoutMs = new(int64(0))
	}
	return t
}

func (x *plain) acquire(ctx context.Context, w want) (*holding, error) {
	conn, t, asked := x.conn(), x.terms(w), time.Now()
	var h *pb.Hold
	var err error
	switch w.kind {
	case mutex:
		var r *pb.LockResponse
		r, err = pb.NewLockServiceClient(conn).Lock(ctx, &pb.LockRequest{Name: w.name, LeaseId: t.LeaseId, TtlMs: t.TtlMs, TimeoutMs: t.TimeoutMs, Owner: t.Owner})
		if err == nil && !r.Acquired {
			return nil, errNotAcquired
		}
		h = &pb.Hold{Token: uint64(r.GetFencingToken()), TtlMs: r.GetTtlMs()}
	case reader:
		var r *pb.AcquireReadResponse
		r, err = pb.NewRWLockServiceClient(conn).AcquireRead(ctx, &pb.AcquireReadRequest{Name: w.name, Terms: t})
		h = r.GetHold()
	case writer:
		var r *pb.AcquireWriteResponse
		r, err = pb.NewRWLockServiceClient(conn).AcquireWrite(ctx, &pb.AcquireWriteRequest{Name: w.name, Terms: t})
		h = r.GetHold()
	case semaphore:
		var r *pb.SemaphoreAcquireResponse
		r, err = pb.NewSemaphoreServiceClient(conn).Acquire(ctx, &pb.SemaphoreAcquireRequest{Name: w.name, Weight: new(int64(1)), Limit: limit, Terms: t})
		h = r.GetHold()
	case election:
		var r *pb.CampaignResponse
		r, err = pb.NewElectionServiceClient(conn).Campaign(ctx, &pb.CampaignRequest{Name: w.name, Value: []byte("first"), Terms: t})
		h = r.GetHold()
	}
	if err != nil {
		return nil, wire.Error(err)
	}
	return x.holding(w, h, asked), nil
}

// holding is a hold with what can be done to it.
func (x *plain) holding(w want, h *pb.Hold, asked time.Time) *holding {
	g := &holding{token: h.Token, holds: until(asked, h.TtlMs).holds}
	back := &pb.ReleaseRequest{Name: w.name, Token: h.Token}
	g.release = func(ctx context.Context) error {
		conn := x.conn()
		var err error
		switch w.kind {
		case mutex:
			_, err = pb.NewLockServiceClient(conn).Unlock(ctx, &pb.UnlockRequest{Name: w.name, FencingToken: int64(h.Token)})
		case reader, writer:
			_, err = pb.NewRWLockServiceClient(conn).Release(ctx, back)
		case semaphore:
			_, err = pb.NewSemaphoreServiceClient(conn).Release(ctx, back)
		case election:
			_, err = pb.NewElectionServiceClient(conn).Resign(ctx, back)
		}
		return wire.Error(err)
	}
	switch w.kind {
	case reader:
		g.upgrade = func(ctx context.Context) (*holding, error) {
			asked := time.Now()
			r, err := pb.NewRWLockServiceClient(x.conn()).Upgrade(ctx, &pb.UpgradeRequest{Name: w.name, Token: h.Token})
			if err != nil {
				return nil, wire.Error(err)
			}
			return x.holding(want{kind: writer, name: w.name}, r.Hold, asked), nil
		}
	case writer:
		g.downgrade = func(ctx context.Context) error {
			_, err := pb.NewRWLockServiceClient(x.conn()).Downgrade(ctx, &pb.DowngradeRequest{Name: w.name, Token: h.Token})
			return wire.Error(err)
		}
	case election:
		g.proclaim = func(ctx context.Context, value string) error {
			_, err := pb.NewElectionServiceClient(x.conn()).Proclaim(ctx, &pb.ProclaimRequest{Name: w.name, Token: h.Token, Value: []byte(value)})
			return wire.Error(err)
		}
		g.handOver = func(ctx context.Context, owner string) error {
			_, err := pb.NewElectionServiceClient(x.conn()).HandOver(ctx, &pb.HandOverRequest{Name: w.name, Token: h.Token, Owner: owner})
			return wire.Error(err)
		}
	}
	return g
}

func (x *plain) put(ctx context.Context, name, value, key string) error {
	_, err := pb.NewKVServiceClient(x.conn()).Put(keyed(ctx, key), &pb.PutRequest{Key: name, Value: []byte(value)})
	return wire.Error(err)
}

func (x *plain) set(ctx context.Context, name string, value int64) error {
	_, err := pb.NewCounterServiceClient(x.conn()).Set(ctx, &pb.CounterSetRequest{Name: name, Value: value})
	return wire.Error(err)
}

func (x *plain) swap(ctx context.Context, name string, old, value int64) (bool, error) {
	r, err := pb.NewCounterServiceClient(x.conn()).CompareAndSet(ctx, &pb.CounterCompareAndSetRequest{Name: name, Expected: old, Value: value})
	return r.GetSwapped(), wire.Error(err)
}

func (x *plain) reserve(ctx context.Context, name string, n uint64) (uint64, error) {
	r, err := pb.NewSequenceServiceClient(x.conn()).Reserve(ctx, &pb.ReserveRequest{Name: name, Count: new(n)})
	return r.GetFirst(), wire.Error(err)
}

func (x *plain) countDown(ctx context.Context, name string, count int64) error {
	_, err := pb.NewLatchServiceClient(x.conn()).CountDown(ctx, &pb.CountDownRequest{Name: name, By: 1, Count: count})
	return wire.Error(err)
}

func (x *plain) open(ctx context.Context, name string, count int64) error {
	_, err := pb.NewLatchServiceClient(x.conn()).Wait(ctx, &pb.LatchWaitRequest{Name: name, Count: count})
	return wire.Error(err)
}

func (x *plain) arrive(ctx context.Context, name string, parties int64) error {
	_, err := pb.NewBarrierServiceClient(x.conn()).Arrive(ctx, &pb.ArriveRequest{Name: name, Parties: parties})
	return wire.Error(err)
}

// leased opens a session, waits for a name on it without a limit, and lets the session
// end, by order or by time: the wait ends with it.
func (k *worker) leased(x *plain) {
	c := k.w.begin("grpc", "open session", "", 30*time.Second)
	ttl := k.ttl()
	r, err := pb.NewSessionServiceClient(x.conn()).Open(c.ctx, &pb.OpenRequest{TtlMs: ttl.Milliseconds(), Owner: k.party.owner()})
	if c.answered(wire.Error(err)) != done {
		return
	}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		w := want{kind: mutex, name: "lock/0", lease: r.LeaseId}
		c := k.w.begin("grpc", "lock on a session", w.name, 0)
		_, err := x.acquire(c.ctx, w)
		c.answered(err)
	}()
	time.Sleep(k.between(0, 3*time.Second))
	if k.chance(0.3) {
		c = k.w.begin("grpc", "keep session", "", 10*time.Second)
		_, err = pb.NewSessionServiceClient(x.conn()).Keep(c.ctx, &pb.KeepRequest{LeaseId: r.LeaseId})
		c.answered(wire.Error(err))
	}
	if k.chance(0.6) {
		c = k.w.begin("grpc", "end session", "", 30*time.Second)
		_, err = pb.NewSessionServiceClient(x.conn()).End(c.ctx, &pb.EndRequest{LeaseId: r.LeaseId})
		c.answered(wire.Error(err))
	}
	<-waited
}

package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// label is what no metric of a test is looked at for.
func label(error) string { return "" }

// alone is the gateway of a node without others.
func alone(t *testing.T) *Gateway {
	node, err := server.New(server.Config{Dir: t.TempDir(), Tick: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	g := New(node, label)
	t.Cleanup(func() {
		g.Close()
		node.Close()
	})
	return g
}

// saying is one thing that a call says beside its request.
func saying(name, value string) Beside {
	return func(asked string) []string { return map[string][]string{name: {value}}[asked] }
}

// A wait that a node gives up, because it is about to stop, is out of the queue when
// its caller is told that it was not done.
func TestDrainedWaitsAreNotDone(t *testing.T) {
	g := alone(t)
	lock := func(key string, in *pb.LockRequest) error {
		c := CallOf(pb.LockService_Lock_FullMethodName, in, saying(HeaderKey, key), nil)
		_, err := g.Through(t.Context(), c, func(ctx context.Context) (any, error) { return Locks{Gateway: g}.Lock(ctx, in) }, nil)
		return err
	}
	if err := lock("", &pb.LockRequest{Name: "x"}); err != nil {
		t.Fatal(err)
	}
	waiting := func() (n int) {
		if err := g.s.Look(t.Context(), func(m *core.Machine, _ int64) { i, _ := m.Inspect("default", "x"); n = len(i.Waiters) }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	type told struct {
		err   error
		queue int
	}
	plain, keyed := make(chan told, 1), make(chan error, 1)
	go func() { keyed <- lock("k", &pb.LockRequest{Name: "x"}) }()
	eventually(t, "the call with a key waits", func() bool { return waiting() == 1 })
	go func() {
		err := lock("", &pb.LockRequest{Name: "x"})
		plain <- told{err, waiting()}
	}()
	eventually(t, "both calls wait", func() bool { return waiting() == 2 })
	g.once.Do(func() { close(g.draining) })
	if p := <-plain; !notDone(p.err) || !errors.Is(p.err, driver.ErrUnavailable) || p.queue != 1 {
		t.Errorf("a wait that was given up: %v, with %d in the queue", p.err, p.queue)
	}
	if err := <-keyed; notDone(err) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a wait with a key, which keeps its place: %v", err)
	}
}

// A leader that is away for a moment goes on with what it was asked; one that is
// followed by another has a while to answer; and so has this node itself.
func TestTenures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		defer end()
		x := &tenures{s: &server.Server{}, life: life, late: map[*Tenure]*time.Timer{}}
		at := func(id uint64, addr string) *Tenure {
			x.lead = func() (server.Leader, <-chan struct{}) { return server.Leader{ID: id, Addr: addr}, nil }
			x.follow()
			return x.now
		}
		one := at(1, "one")
		at(2, "")
		time.Sleep(farewell - 1)
		if back := at(1, "one"); back != one || one.ctx.Err() != nil {
			t.Error("a leader that was away for a moment is another one now")
		}
		time.Sleep(farewell)
		if one.ctx.Err() != nil {
			t.Error("a leader that is back is given up")
		}
		two := at(2, "two")
		time.Sleep(farewell)
		synctest.Wait()
		if context.Cause(one.ctx) != errDeposed || two.ctx.Err() != nil {
			t.Errorf("after a farewell the old leader's calls end with %v, the new one's with %v", context.Cause(one.ctx), two.ctx.Err())
		}
		if at(1, "one") == one {
			t.Error("a tenure that is over goes on")
		}
		here := at(0, "") // the number of this node, in this test
		here.here = true
		at(3, "three")
		time.Sleep(isolated - time.Nanosecond)
		synctest.Wait()
		if here.ctx.Err() != nil {
			t.Error("what this node has proposed is given up too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if context.Cause(here.ctx) != errIsolated {
			t.Errorf("what this node has proposed ends with %v", context.Cause(here.ctx))
		}
		x.giveUp(x.now, errSilent)
		if x.now.Addr != "three" || x.now.ctx.Err() != nil {
			t.Error("a silent leader is not asked anew")
		}
	})
}

// A call that this node refuses because it does not lead any more is brought before the
// next leader, also before the goroutine that follows the leadership has heard of it.
func TestTenures_OfTheMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		defer end()
		l := server.Leader{ID: 0, Addr: "here"}
		x := &tenures{s: &server.Server{}, life: life, late: map[*Tenure]*time.Timer{}, lead: func() (server.Leader, <-chan struct{}) { return l, nil }}
		x.once.Do(func() {}) // that goroutine never runs
		if now := x.current(); now.Addr != "here" {
			t.Fatal(now.Leader)
		}
		l = server.Leader{ID: 2, Addr: "two"}
		if now := x.current(); now.Addr != "two" {
			t.Errorf("%q leads, and a call is told %q", l.Addr, now.Addr)
		}
	})
}

// Every call is in a class, and those that may happen twice are calls.
func TestRepeatable(t *testing.T) {
	for _, set := range []map[string]bool{harmless, onceByKey, onceOnOwnLease} {
		for name := range set {
			if _, ok := classes[name]; !ok {
				t.Errorf("%s is no call", name)
			}
		}
	}
	for _, c := range []struct {
		keyed  bool
		method string
		in     any
		want   bool
	}{
		{false, pb.CounterService_Get_FullMethodName, &pb.CounterGetRequest{}, true},
		{false, pb.CounterService_Add_FullMethodName, &pb.CounterAddRequest{}, false},
		{true, pb.CounterService_Add_FullMethodName, &pb.CounterAddRequest{}, true},
		{false, pb.LimitService_Peek_FullMethodName, &pb.LimitPeekRequest{}, true},
		{false, pb.LimitService_Allow_FullMethodName, &pb.LimitAllowRequest{}, false},
		{true, pb.LimitService_Allow_FullMethodName, &pb.LimitAllowRequest{}, true},
		{false, pb.LimitService_Cancel_FullMethodName, &pb.LimitCancelRequest{}, false},
		{true, pb.LimitService_Cancel_FullMethodName, &pb.LimitCancelRequest{}, true},
		{false, pb.GuardService_Evaluate_FullMethodName, &pb.GuardEvaluateRequest{}, true},
		{true, pb.LockService_Unlock_FullMethodName, &pb.UnlockRequest{}, false},
		{false, pb.LockService_Lock_FullMethodName, &pb.LockRequest{}, false},
		{true, pb.LockService_Lock_FullMethodName, &pb.LockRequest{}, true},
		{true, pb.LockService_Lock_FullMethodName, &pb.LockRequest{LeaseId: 5}, false},
		{true, pb.SemaphoreService_Acquire_FullMethodName, &pb.SemaphoreAcquireRequest{Terms: &pb.Terms{LeaseId: 5}}, false},
		{true, pb.SemaphoreService_Acquire_FullMethodName, &pb.SemaphoreAcquireRequest{}, true},
		{true, pb.LockService_LeaseGrant_FullMethodName, &pb.LeaseGrantRequest{Id: 5}, false},
		{false, pb.LatchService_Wait_FullMethodName, &pb.LatchWaitRequest{}, false},
		{true, pb.LatchService_Wait_FullMethodName, &pb.LatchWaitRequest{}, true},
		{true, pb.BarrierService_Arrive_FullMethodName, &pb.ArriveRequest{}, true},
	} {
		if got := repeatable(c.method, c.in, c.keyed); got != c.want {
			t.Errorf("%s of %v: %v", c.method, c.in, got)
		}
	}
}

// A write of a register with an idempotency key comes to an end, also if another's
// write fell between its transactions; their answers are kept for its key.
func TestFence_KeyedWriteEnds(t *testing.T) {
	g := alone(t)
	ctx, err := withCaller(t.Context(), saying(HeaderKey, "k"), nil)
	if err != nil {
		t.Fatal(err)
	}
	value := append(binary.BigEndian.AppendUint64(nil, 9), 'v')
	older := &pb.Compare{Key: "r", Target: pb.Compare_TARGET_VALUE, Relation: pb.Compare_RELATION_LESS, Value: binary.BigEndian.AppendUint64(nil, 10)}
	if res, _, err := g.writeIf(ctx, 0, older, "r", value); err != nil || res.Succeeded {
		t.Fatalf("an absent register: %v %v", res, err)
	}
	s := Fences{Gateway: g}
	if _, err := s.Write(t.Context(), &pb.FenceWriteRequest{Register: "r", Token: 5}); err != nil {
		t.Fatal(err)
	}
	if res, _, err := g.writeIf(ctx, 0, &pb.Compare{Key: "r"}, "r", value); err != nil || res.Succeeded {
		t.Fatalf("a register that is there: %v %v", res, err)
	}
	within, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for range 2 { // and the same call again
		if _, err := s.Write(within, &pb.FenceWriteRequest{Register: "r", Token: 9, Value: []byte("v")}); err != nil {
			t.Error(err)
		}
	}
}

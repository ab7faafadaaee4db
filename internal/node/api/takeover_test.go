package api_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/api"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// second is another gateway on the same node, as another leader is one: it knows
// nothing of what the first has numbered.
func (r *rig) second() *rig { return serveNode(r.t, r.node, api.Config{}) }

// A lease can be used through one leader after the other, back and forth: no
// command is taken for an older one, none is lost.
func TestLeaseThroughTwoLeaders(t *testing.T) {
	a := serve(t)
	b := a.second()
	must[*pb.LeaseGrantResponse](t)(a.locks().LeaseGrant(a.ctx, &pb.LeaseGrantRequest{Ttl: 600, Id: 5}))
	last := int64(0)
	for i := range 20 {
		r := []*rig{a, b, b}[i%3]
		x := must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: 5}))
		if x.FencingToken <= last {
			t.Fatalf("round %d: token %d after %d", i, x.FencingToken, last)
		}
		last = x.FencingToken
		r = []*rig{b, a}[i%2]
		must[*pb.UnlockResponse](t)(r.locks().Unlock(r.ctx, &pb.UnlockRequest{Key: x.Key}))
		r.holders("x", 0)
	}
}

// Calls of one lease at the same time, through two leaders, all happen.
func TestLeaseAtTheSameTime(t *testing.T) {
	a := serve(t)
	b := a.second()
	must[*pb.LeaseGrantResponse](t)(a.locks().LeaseGrant(a.ctx, &pb.LeaseGrantRequest{Ttl: 600, Id: 5}))
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			r := []*rig{a, b}[i%2]
			x, err := r.locks().Lock(r.ctx, &pb.LockRequest{Name: fmt.Sprint("x", i), LeaseId: 5})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := r.locks().Unlock(r.ctx, &pb.UnlockRequest{Key: x.Key}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if list := must[*pb.ListResponse](t)(pb.NewInspectServiceClient(a.conn).List(a.ctx, &pb.ListRequest{})); len(list.Resources) != 0 {
		t.Errorf("still held: %v", list.Resources)
	}
}

// Two clients that give the same hold back at the same time: one does it, the other is told
// that it is over.
func TestReleasedTwiceAtTheSameTime(t *testing.T) {
	r := serve(t)
	for range 20 {
		x := must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: "x"}))
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := r.locks().Unlock(r.ctx, &pb.UnlockRequest{Key: x.Key})
				ended <- err
			}()
		}
		failed := 0
		for range 2 {
			if err := <-ended; err != nil {
				wantCode(t, err, codes.FailedPrecondition)
				failed++
			}
		}
		if failed != 1 {
			t.Fatalf("%d of 2 failed", failed)
		}
	}
}

// A wait that an earlier leader left behind does not stand in the way of its own
// lease.
func TestOrphanedWait(t *testing.T) {
	r := serve(t)
	l := r.locks()
	held := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x"}))
	s := must[*pb.OpenResponse](t)(pb.NewSessionServiceClient(r.conn).Open(r.ctx, &pb.OpenRequest{LeaseId: 5, TtlMs: 600_000}))
	// What a leader that crashed had sent for a caller.
	_, err := r.node.Submit(r.ctx, &core.Frame{Session: core.SessionID(s.Session), Mark: 1, Commands: []core.Command{
		{Op: core.OpAcquire, Seq: 1, Wants: []core.Want{{Name: "x", Kind: core.Mutex}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.waiters("x", 1)
	got := make(chan *pb.LockResponse, 1)
	go func() {
		x, err := l.Lock(r.ctx, &pb.LockRequest{Name: "x", LeaseId: 5})
		if err != nil {
			t.Error(err)
		}
		got <- x
	}()
	for { // the new wait alone
		if w := r.waiters("x", 1).Waiters[0]; w.CreateRevision > uint64(s.Header.Revision)+1 {
			break
		}
	}
	must[*pb.UnlockResponse](t)(l.Unlock(r.ctx, &pb.UnlockRequest{Key: held.Key}))
	if x := <-got; !x.GetAcquired() {
		t.Errorf("got %v", x)
	}
}

// Waiting does not use up the numbers of a lease: others of its calls go on.
func TestLongWaitLeavesRoom(t *testing.T) {
	r := serve(t)
	l := r.locks()
	held := must[*pb.LockResponse](t)(l.Lock(r.ctx, &pb.LockRequest{Name: "x"}))
	must[*pb.LeaseGrantResponse](t)(l.LeaseGrant(r.ctx, &pb.LeaseGrantRequest{Ttl: 600, Id: 5}))
	got := make(chan error, 1)
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	go func() {
		_, err := l.Lock(ctx, &pb.LockRequest{Name: "x", LeaseId: 5})
		got <- err
	}()
	r.waiters("x", 1)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 60 {
				if _, err := l.Lock(r.ctx, &pb.LockRequest{Name: "y", LeaseId: 5}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	must[*pb.UnlockResponse](t)(l.Unlock(r.ctx, &pb.UnlockRequest{Key: held.Key}))
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// A caller that takes over a lease of which another has used numbers at and above its mark uses
// none of them, however high they are: the machine would answer with the other's
// results.
func TestTakeOver_NumbersInUse(t *testing.T) {
	r := serve(t)
	s := must[*pb.OpenResponse](t)(pb.NewSessionServiceClient(r.conn).Open(r.ctx, &pb.OpenRequest{LeaseId: 5, TtlMs: 600_000}))
	const mark = 1<<40 - 100 // more than this process has given, and a range begins among the numbers in use
	f := &core.Frame{Session: core.SessionID(s.Session), Mark: mark}
	for i := range uint64(3) {
		f.Commands = append(f.Commands, core.Command{Op: core.OpAcquire, Seq: mark + 300*i, Wants: []core.Want{{Name: fmt.Sprint("other", i), Kind: core.Mutex}}})
	}
	if _, err := r.node.Submit(r.ctx, f); err != nil {
		t.Fatal(err)
	}
	tokens := map[int64]bool{}
	for i := range 700 {
		name := fmt.Sprint("mine", i)
		x := must[*pb.LockResponse](t)(r.locks().Lock(r.ctx, &pb.LockRequest{Name: name, LeaseId: 5}))
		if tokens[x.FencingToken] {
			t.Fatalf("%s has the token of another", name)
		}
		tokens[x.FencingToken] = true
		r.holders(name, 1)
	}
}

// An upgrade finds its lease again after another leader has numbered commands of it.
func TestUpgradeAfterAnotherLeader(t *testing.T) {
	a := serve(t)
	b := a.second()
	must[*pb.LeaseGrantResponse](t)(a.locks().LeaseGrant(a.ctx, &pb.LeaseGrantRequest{Ttl: 600, Id: 5}))
	read := must[*pb.AcquireReadResponse](t)(pb.NewRWLockServiceClient(a.conn).AcquireRead(a.ctx, &pb.AcquireReadRequest{Name: "rw", Terms: &pb.Terms{LeaseId: 5}}))
	must[*pb.LockResponse](t)(b.locks().Lock(b.ctx, &pb.LockRequest{Name: "x", LeaseId: 5}))
	up := must[*pb.UpgradeResponse](t)(pb.NewRWLockServiceClient(a.conn).Upgrade(a.ctx, &pb.UpgradeRequest{Name: "rw", Token: read.Hold.Token}))
	if up.Hold.Token <= read.Hold.Token {
		t.Errorf("the writer's token %d after %d", up.Hold.Token, read.Hold.Token)
	}
}

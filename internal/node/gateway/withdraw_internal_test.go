package gateway

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
	"github.com/holdfast-io/holdfast/server"
)

// leftAtAnother has lease 41 wait for "x" as for a call at an earlier leader: this node knows
// nothing of it.
func leftAtAnother(t *testing.T, g *Gateway) {
	t.Helper()
	l := lookedUp(t, g)
	f, err := l.numbered([]core.Command{{Op: core.OpAcquire, Wants: []core.Want{{Name: "x", Kind: core.Mutex}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, results, err := l.send(t.Context(), &f, 1); err != nil || results[0].Code != core.CodeQueued {
		t.Fatal(results, err)
	}
	g.forget(l)
	g.release(l)
}

// docs/wire.md: a wait is taken out of the queue "at the latest when its lease is used again or
// ends", and to keep it alive is to use it: else it would be granted what nobody waits for.
func TestLeftWait_Kept(t *testing.T) {
	mine := core.Want{Name: "mine", Kind: core.Mutex}
	for how, use := range map[string]func(g *Gateway, mine held) error{
		"keep": func(g *Gateway, _ held) error {
			_, err := Sessions{g}.Keep(t.Context(), &pb.KeepRequest{LeaseId: 41})
			return err
		},
		"renew": func(g *Gateway, mine held) error {
			_, err := g.Renew(t.Context(), "mine", mine.token, 0, core.Mutex)
			return err
		},
	} {
		t.Run(how, func(t *testing.T) {
			g := alone(t)
			token := taken(t, g)
			h, err := g.hold(t.Context(), mine, &pb.Terms{LeaseId: 41})
			if err != nil {
				t.Fatal(err)
			}
			leftAtAnother(t, g)
			if err := use(g, h); err != nil {
				t.Fatal(err)
			}
			eventually(t, "no claim waits for nobody", func() bool { return len(queue(t, g).Waiters) == 0 })
			if _, err := g.GiveBack(t.Context(), "x", token, core.Mutex); err != nil {
				t.Fatal(err)
			}
			if n := len(queue(t, g).Holders); n != 0 {
				t.Errorf("%d claims are held by nobody", n)
			}
		})
	}
}

// A grant that its call has left, and that its owner has found and renewed, is kept: no later
// call of the lease takes it back.
func TestLeftGrant_Renewed(t *testing.T) {
	g := alone(t)
	taken(t, g)
	h, err := g.hold(t.Context(), core.Want{Name: "y", Kind: core.Mutex}, &pb.Terms{LeaseId: 41})
	if err != nil {
		t.Fatal(err)
	}
	l := lookedUp(t, g)
	_, claim, err := g.owner(t.Context(), "y", h.token, core.Mutex)
	if err != nil {
		t.Fatal(err)
	}
	l.leave(claim.Seq)
	if _, err := g.Renew(t.Context(), "y", h.token, 0, core.Mutex); err != nil {
		t.Fatal(err)
	}
	if _, err := g.hold(t.Context(), core.Want{Name: "z", Kind: core.Mutex}, &pb.Terms{LeaseId: 41}); err != nil {
		t.Fatal(err)
	}
	g.work.wait(t.Context())
	if _, err := g.Renew(t.Context(), "y", h.token, 0, core.Mutex); err != nil {
		t.Errorf("a hold that was renewed has ended: %v", err)
	}
}

// docs/wire.md: `LockService.Lock` on a lease that has the lock already answers with the token it
// has: also if both calls waited for it.
func TestLock_TwoWaitAndJoin(t *testing.T) {
	g := alone(t)
	token := taken(t, g)
	type answer struct {
		h   held
		err error
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	answers := make(chan answer, 2)
	for range 2 {
		go func() {
			h, err := g.hold(ctx, core.Want{Name: "x", Kind: core.Mutex}, &pb.Terms{LeaseId: 41})
			answers <- answer{h, err}
		}()
	}
	eventually(t, "both calls wait", func() bool { return g.waiting(41) == 2 })
	if _, err := g.GiveBack(t.Context(), "x", token, core.Mutex); err != nil {
		t.Fatal(err)
	}
	a, b := <-answers, <-answers
	if a.err != nil || b.err != nil || a.h.token != b.h.token {
		t.Errorf("two calls of a lease that waited: %+v, %v and %+v, %v", a.h, a.err, b.h, b.err)
	}
	if n := len(queue(t, g).Waiters); n != 0 {
		t.Errorf("%d claims wait for their own lease", n)
	}
}

// A renewal asks for no more time than an opening may, and gets no less than the least: the node may
// have got others since the lease was opened.
func TestKeep_OutOfRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := alone(t)
		least := g.s.MinTTL()
		if _, err := g.OpenLease(t.Context(), &pb.OpenRequest{LeaseId: 41, TtlMs: least.Milliseconds(), Policy: pb.ReclaimPolicy_RECLAIM_POLICY_NEVER}); err != nil {
			t.Fatal(err)
		}
		for _, ms := range []int64{-1, MaxTTL.Milliseconds() + 1} {
			if _, err := (Sessions{g}).Keep(t.Context(), &pb.KeepRequest{LeaseId: 41, TtlMs: ms}); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("a renewal for %d ms: %v", ms, err)
			}
		}
		if _, err := g.hold(t.Context(), core.Want{Name: "y", Kind: core.Mutex}, &pb.Terms{LeaseId: 41}); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * least) // it is stale, and kept for what it holds
		if r, err := (Sessions{g}).Keep(t.Context(), &pb.KeepRequest{LeaseId: 41, TtlMs: 1}); err != nil || r.TtlMs < least.Milliseconds()/2 {
			t.Errorf("a renewal for a moment, of %s: %d ms, %v", least, r.GetTtlMs(), err)
		}
	})
}

// A wait of a call that is under way stays in the queue when its lease is kept alive, also if this node
// has led before and leads again.
func TestLiveWait_Kept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := alone(t)
		token := taken(t, g)
		lead := g.tenures.current().Leader
		again := lead
		again.Addr += "again"
		answer := make(chan error, 1)
		go func() {
			_, err := g.hold(t.Context(), core.Want{Name: "x", Kind: core.Mutex}, &pb.Terms{LeaseId: 41})
			answer <- err
		}()
		synctest.Wait() // it waits
		for _, leader := range []server.Leader{again, lead} {
			g.Lead(leader)
			if _, err := (Sessions{g}).Keep(t.Context(), &pb.KeepRequest{LeaseId: 41}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if _, err := g.GiveBack(t.Context(), "x", token, core.Mutex); err != nil {
			t.Fatal(err)
		}
		if err := <-answer; err != nil {
			t.Errorf("a call that waited while its lease was kept: %v", err)
		}
	})
}

// What was left behind and went with another call is not taken along again, by a frame without commands.
func TestWithdraw_NothingLeft(t *testing.T) {
	g := alone(t)
	taken(t, g)
	l := lookedUp(t, g)
	if _, results, err := l.run(t.Context()); err != nil || len(results) > 0 {
		t.Errorf("nothing that was left behind: %v, %v", results, err)
	}
}

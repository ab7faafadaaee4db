package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// queue is what a gateway's node knows of "x".
func queue(t *testing.T, g *Gateway) (i core.ResourceInfo) {
	t.Helper()
	if err := g.s.Look(t.Context(), func(m *core.Machine, _ int64) { i, _ = m.Inspect("default", "x") }); err != nil {
		t.Fatal(err)
	}
	return i
}

// lookedUp is lease 41 as this node knows it.
func lookedUp(t *testing.T, g *Gateway) *lease {
	t.Helper()
	l, err := g.lease(t.Context(), 41)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// taken has somebody hold "x", and lease 41 open.
func taken(t *testing.T, g *Gateway) (token uint64) {
	t.Helper()
	held, err := g.hold(t.Context(), core.Want{Name: "x", Kind: core.Mutex}, &pb.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.OpenLease(t.Context(), &pb.OpenRequest{LeaseId: 41, TtlMs: 600_000}); err != nil {
		t.Fatal(err)
	}
	return held.token
}

// A wait that a step-down has cut off is taken out of the queue by the next use of its
// lease, also if the same node leads again: otherwise it would be granted to nobody, and
// the call that comes again would wait behind itself.
func TestLeftWait_SameLeader(t *testing.T) {
	g := alone(t)
	token := taken(t, g)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	type answer struct {
		h   held
		err error
	}
	lock := func() <-chan answer {
		got := make(chan answer, 1)
		go func() {
			h, err := g.hold(ctx, core.Want{Name: "x", Kind: core.Mutex}, &pb.Terms{LeaseId: 41})
			got <- answer{h, err}
		}()
		return got
	}
	first := lock()
	eventually(t, "the first call waits", func() bool { return g.waiting(41) > 0 })
	g.waits.mu.Lock()
	c := g.waits.conn
	g.waits.mu.Unlock()
	c.Close()
	g.waits.closed(c)
	if a := <-first; !errors.Is(a.err, driver.ErrUnavailable) {
		t.Fatalf("the wait that was cut off: %v", a.err)
	}
	old := queue(t, g).Waiters[0].Seq
	second := lock()
	eventually(t, "the second call waits", func() bool {
		w := queue(t, g).Waiters
		return len(w) > 0 && w[len(w)-1].Seq != old
	})
	if w := queue(t, g).Waiters; len(w) != 1 {
		t.Errorf("%d claims of one lease wait", len(w))
	}
	if _, err := g.GiveBack(t.Context(), "x", token, core.Mutex); err != nil {
		t.Fatal(err)
	}
	if a := <-second; a.err != nil {
		t.Errorf("the call that came again: %v", a.err)
	}
}

// waiting is how many waits of a lease are attached.
func (g *Gateway) waiting(number int64) int {
	g.waits.mu.Lock()
	defer g.waits.mu.Unlock()
	if a := g.waits.waits[sessionOf("default", number)]; a != nil {
		return len(a.waits)
	}
	return 0
}

// A wait whose cancel has failed is cancelled by the next use of its lease.
func TestLeftWait_CancelFails(t *testing.T) {
	g := alone(t)
	taken(t, g)
	l := lookedUp(t, g)
	want := func(name string) core.Command {
		return core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: name, Kind: core.Mutex}}}
	}
	f, err := l.numbered([]core.Command{want("x")})
	if err != nil {
		t.Fatal(err)
	}
	if _, results, err := l.send(t.Context(), &f, 1); err != nil || results[0].Code != core.CodeQueued {
		t.Fatal(results, err)
	}
	window := l.window
	l.window = 0
	within, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	l.leave(f.Commands[0].Seq)
	if err := l.undo(within, f.Commands[0].Seq); err == nil {
		t.Fatal("there was room for the cancel")
	}
	l.window = window
	if _, _, err := l.run(t.Context(), want("y")); err != nil {
		t.Fatal(err)
	}
	if n := len(queue(t, g).Waiters); n != 0 {
		t.Errorf("%d claims wait for nobody", n)
	}
}

// A call that comes again, on the same lease, while the grant that it has left is still to be taken
// back, gets a grant of its own: the one that it finds ends in a moment.
func TestLeftGrant_CallComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := alone(t)
		if _, err := g.OpenLease(t.Context(), &pb.OpenRequest{LeaseId: 41, TtlMs: 600_000}); err != nil {
			t.Fatal(err)
		}
		l := lookedUp(t, g)
		left, err := l.numbered([]core.Command{{Op: core.OpAcquire, Wants: []core.Want{{Name: "x", Kind: core.Mutex}}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, results, err := l.send(t.Context(), &left, 1); err != nil || results[0].Code != core.CodeOK {
			t.Fatal(results, err)
		}
		window := l.setWindow(0)
		l.abandon(left.Commands[0].Seq)
		synctest.Wait() // it finds no room, and tries again later
		l.setWindow(window)
		again, err := g.hold(t.Context(), core.Want{Name: "x", Kind: core.Mutex}, &pb.Terms{LeaseId: 41})
		if err != nil {
			t.Fatal(err)
		}
		g.work.wait(t.Context())
		if h := queue(t, g).Holders; len(h) != 1 || h[0].Token != again.token {
			t.Errorf("the call was granted token %d, and %v hold it", again.token, h)
		}
		if len(l.orphans) > 0 {
			t.Errorf("%v are still to be cancelled", l.orphans)
		}
	})
}

// So does one that overtakes the command by which that grant is taken back.
func TestLeftGrant_CallOvertakes(t *testing.T) {
	g := alone(t)
	if _, err := g.OpenLease(t.Context(), &pb.OpenRequest{LeaseId: 41, TtlMs: 600_000}); err != nil {
		t.Fatal(err)
	}
	l := lookedUp(t, g)
	_, left, err := l.run(t.Context(), core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "x", Kind: core.Mutex}}})
	if err != nil {
		t.Fatal(err)
	}
	l.leave(left[0].Seq)
	back, err := l.numbered([]core.Command{{Op: core.OpCancel, Target: left[0].Seq}})
	if err != nil {
		t.Fatal(err)
	}
	again, err := g.hold(t.Context(), core.Want{Name: "x", Kind: core.Mutex}, &pb.Terms{LeaseId: 41})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.send(t.Context(), &back, 1); err != nil {
		t.Fatal(err)
	}
	if h := queue(t, g).Holders; len(h) != 1 || h[0].Token != again.token {
		t.Errorf("the call was granted token %d, and %v hold it", again.token, h)
	}
}

// A request on a lease that was refused, or that has waited in vain, leaves nothing that would have
// to be taken back: many that try at the same time have room.
func TestRefused_LeavesNothing(t *testing.T) {
	g := alone(t)
	taken(t, g)
	l := lookedUp(t, g)
	first, calls := l.next, 0
	for _, wait := range []int64{0, 1} {
		_, err := g.hold(t.Context(), core.Want{Name: "x", Kind: core.Mutex}, &pb.Terms{LeaseId: 41, TimeoutMs: &wait})
		if err == nil || errors.Is(err, errWindow) {
			t.Errorf("a wait of %d ms: %v", wait, err)
		}
		calls++
	}
	g.work.wait(t.Context())
	if n := int(l.next - first); n != calls || len(l.unsure)+len(l.orphans) > 0 {
		t.Errorf("%d calls took %d commands; %v are unsure, %v to be cancelled", calls, n, l.unsure, l.orphans)
	}
}

// setWindow sets how many calls may be under way, and tells how many might before.
func (l *lease) setWindow(n uint64) (before uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.window = l.window, n
	return before
}

// Cancels that went with a frame which failed go with the next one.
func TestLeftWait_FrameFails(t *testing.T) {
	g := alone(t)
	taken(t, g)
	l := lookedUp(t, g)
	l.orphans = []uint64{3, 5}
	g.s.Close()
	if _, _, err := l.run(t.Context(), core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: "y", Kind: core.Mutex}}}); err == nil {
		t.Fatal("a node that is closed has answered")
	}
	if !slices.Equal(l.orphans, []uint64{3, 5}) {
		t.Errorf("%v are still to be cancelled", l.orphans)
	}
}

// Cancels that travel with a call are done also if another call of the lease overtakes it.
func TestLeftWait_Overtaken(t *testing.T) {
	g := alone(t)
	taken(t, g)
	l := lookedUp(t, g)
	want := func(name string) core.Command {
		return core.Command{Op: core.OpAcquire, Wants: []core.Want{{Name: name, Kind: core.Mutex}}}
	}
	frame := func(c core.Command) *core.Frame {
		f, err := l.numbered([]core.Command{c})
		if err != nil {
			t.Fatal(err)
		}
		return &f
	}
	send := func(f *core.Frame, code core.Code) {
		t.Helper()
		if _, results, err := l.send(t.Context(), f, 1); err != nil || results[0].Code != code {
			t.Fatal(results, err)
		}
	}
	left, other := frame(want("x")), frame(want("x"))
	send(left, core.CodeQueued)
	send(other, core.CodeQueued)
	l.settle(other.Commands[0].Seq)
	l.leave(left.Commands[0].Seq)
	first, second := frame(want("y")), frame(core.Command{Op: core.OpCancel, Target: other.Commands[0].Seq})
	send(second, core.CodeOK)
	send(first, core.CodeOK)
	if n := len(queue(t, g).Waiters); n != 0 {
		t.Errorf("%d claims wait for nobody", n)
	}
	l.settle(first.Commands[1].Seq, second.Commands[0].Seq)
	if len(l.unsure) != 0 || len(l.orphans) != 0 {
		t.Errorf("after all answers the results of %v are wanted, and %v are to be cancelled", l.unsure, l.orphans)
	}
}

// A cancel that was refused because its number was passed goes with the next frame.
func TestLeftWait_CancelOutOfStep(t *testing.T) {
	l := &lease{unsure: []uint64{7, 8}, orphans: []uint64{3}}
	f := &core.Frame{Commands: []core.Command{{Op: core.OpCancel, Seq: 7, Target: 3}, {Op: core.OpAcquire, Seq: 8}}}
	l.tookOut(f, 1, &core.Reply{Results: []core.Result{{Seq: 7, Code: core.CodeForgotten}, {Seq: 8}}})
	if !slices.Equal(l.orphans, []uint64{3}) || !slices.Equal(l.unsure, []uint64{8}) {
		t.Errorf("%v are still to be cancelled, the results of %v are wanted", l.orphans, l.unsure)
	}
}

// A wait with a key that finds no place stays in the queue, and its caller is not told
// that nothing was done.
func TestLeftWait_KeyedWithoutAPlace(t *testing.T) {
	g := alone(t)
	taken(t, g)
	g.Limit(100, 10, 10)
	lock := func(ctx context.Context, key string) error {
		in := &pb.LockRequest{Name: "x"}
		c := CallOf(pb.LockService_Lock_FullMethodName, in, saying(HeaderKey, key), nil)
		_, err := g.Through(ctx, c, func(ctx context.Context) (any, error) { return Locks{Gateway: g}.Lock(ctx, in) }, nil)
		return err
	}
	const all = 20
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, all)
	for i := range all {
		go func() { ended <- lock(ctx, fmt.Sprint("k", i)) }()
	}
	if err := <-ended; notDone(err) || !errors.Is(err, driver.ErrExhausted) {
		t.Errorf("a wait with a key, which stays in the queue: %v", err)
	}
	eventually(t, "all calls wait", func() bool { return len(queue(t, g).Waiters) == all })
	cancel()
	for range all - 1 {
		<-ended
	}
	if n := len(queue(t, g).Waiters); n != all {
		t.Errorf("%d of %d with keys keep their places", n, all)
	}
}

// eventually waits for something that happens at once, unless it never does.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for began := time.Now(); !happened(); <-time.After(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("in a minute it was never so: " + what)
		}
	}
}

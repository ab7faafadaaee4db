package drivertest

import (
	"context"
	"io/fs"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var latch = []driver.Feature{driver.FeatureLatch}

var latchCases = []Case{
	{Name: "Latch/OpensAtZero", Needs: latch, Run: run(latchOpensAtZero),
		Promise: "Whoever waits for a latch passes when it was counted down to 0, and not before."},
	{Name: "Latch/StaysOpen", Needs: latch, Run: run(latchStaysOpen),
		Promise: "A latch that is open stays open: waits return at once, and counting on leaves 0."},
	{Name: "Latch/CountsExactly", Needs: latch, Run: run(latchCountsExactly),
		Promise: "Of calls that count down at once each takes its part: the rests that they are told are all different."},
	{Name: "Latch/MustExist", Needs: latch, Run: run(latchMustExist),
		Promise: "A latch named without a count has to exist: fs.ErrNotExist."},
	{Name: "Latch/WaitIsBounded", Needs: latch, Run: run(latchWaitIsBounded),
		Promise: "A wait for a latch ends with its context and leaves the count alone."},
	{Name: "Latch/Delete", Needs: latch, Run: run(latchDelete),
		Promise: "A deleted latch is forgotten, and its name begins anew."},
	{Name: "Barrier/AllOrNobody", Needs: latch, Run: run(barrierAllOrNobody),
		Promise: "Nobody passes a barrier before all parties wait; then all do."},
	{Name: "Barrier/ServesAgain", Needs: latch, Run: run(barrierServesAgain),
		Promise: "A barrier that all have passed holds the next round back in the same way."},
	{Name: "Barrier/WhoLeavesDoesNotCount", Needs: latch, Run: run(barrierWhoLeaves),
		Promise: "A party with a context that has ended leaves the barrier: when its Wait returns, it is NotDone and does not count any more."},
	{Name: "Barrier/LeavesOrPasses", Needs: latch, Run: run(barrierLeavesOrPasses),
		Promise: "Of a party that leaves while the last one comes, either both have passed or none has."},
	{Name: "Barrier/PartiesDiffer", Needs: latch, Run: run(barrierPartiesDiffer),
		Promise: "Waiting at a barrier with another number of parties is ErrConflict; 0 means the number it has."},
	{Name: "Barrier/MostParties", Needs: latch, Run: run(barrierMostParties),
		Promise: "A barrier has at most 10,000 parties: more are fs.ErrInvalid."},
	{Name: "Barrier/DeleteIdleOnly", Needs: latch, Run: run(barrierDeleteIdleOnly),
		Promise: "A barrier at which somebody waits cannot be deleted: ErrHeld; an idle one can."},
}

func latchOpensAtZero(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	want(must(a.Latch("l", 3).CountDown(ctx, 1)) == 2, "3 less 1 did not leave 2")
	waiting := []queued{
		queueFor(ctx, a, func(s *holdfast.Space) error { return s.Latch("l", 3).Wait(ctx) }),
		queueFor(ctx, b, func(s *holdfast.Space) error { return s.Latch("l", 3).Wait(ctx) }),
	}
	want(must(b.Latch("l", 3).CountDown(ctx, 1)) == 1, "2 less 1 did not leave 1")
	blocked(ctx, "a wait for a latch with 1 left", b.Latch("l", 3).Wait)
	want(!anyOver(waiting), "somebody passed a latch with 1 left")
	want(must(b.Latch("l", 0).Left(ctx)) == 1, "the rest is told as %d", must(b.Latch("l", 0).Left(ctx)))
	want(must(a.Latch("l", 3).CountDown(ctx, 1)) == 0, "1 less 1 did not leave 0")
	for _, w := range waiting {
		must(w.wait(ctx, "a wait for an open latch"))
	}
}

func latchStaysOpen(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	want(must(a.Latch("l", 2).CountDown(ctx, 5)) == 0, "2 less 5 did not leave 0")
	for range 2 {
		done(b.Latch("l", 2).Wait(ctx))
		want(must(b.Latch("l", 2).CountDown(ctx, 1)) == 0, "an open latch counted on")
	}
	want(must(a.Latch("l", 0).Left(ctx)) == 0, "the rest is told as %d", must(a.Latch("l", 0).Left(ctx)))
}

func latchCountsExactly(ctx context.Context, e *Env) {
	const n = 40
	clients := []*holdfast.Space{e.Client(), e.Client()}
	left := make([]int64, n)
	together(n, func(i int) { left[i] = must(clients[i%2].Latch("l", n).CountDown(ctx, 1)) })
	slices.Sort(left)
	for i, l := range left {
		want(l == int64(i), "the rests told are %v", left)
	}
}

func latchMustExist(ctx context.Context, e *Env) {
	s := e.Client()
	refused(second(s.Latch("l", 0).CountDown(ctx, 1)), fs.ErrNotExist, "CountDown of an unknown latch")
	refused(s.Latch("l", 0).Wait(ctx), fs.ErrNotExist, "Wait for an unknown latch")
	want(must(s.Latch("l", 2).CountDown(ctx, 1)) == 1, "2 less 1 did not leave 1")
	want(must(e.Client().Latch("l", 0).CountDown(ctx, 1)) == 0, "1 less 1 did not leave 0")
}

func latchWaitIsBounded(ctx context.Context, e *Env) {
	s := e.Client()
	waiting, cancel := context.WithCancel(ctx)
	w := queueFor(ctx, s, func(s *holdfast.Space) error { return s.Latch("l", 1).Wait(waiting) })
	cancel()
	refused(second(w.wait(ctx, "a cancelled wait")), context.Canceled, "a cancelled wait")
	want(must(s.Latch("l", 1).Left(ctx)) == 1, "the rest is told as %d", must(s.Latch("l", 1).Left(ctx)))
	want(must(s.Latch("l", 1).CountDown(ctx, 1)) == 0, "1 less 1 did not leave 0")
	done(s.Latch("l", 1).Wait(ctx))
}

func latchDelete(ctx context.Context, e *Env) {
	s := e.Client()
	must(s.Latch("l", 1).CountDown(ctx, 1))
	done(s.Latch("l", 0).Delete(ctx))
	refused(second(e.Client().Latch("l", 0).Left(ctx)), fs.ErrNotExist, "Left of a deleted latch")
	want(must(e.Client().Latch("l", 5).CountDown(ctx, 1)) == 4, "5 less 1 did not leave 4")
}

// party waits at the barrier "b" for three.
func party(ctx, waiting context.Context, s *holdfast.Space) queued {
	return queueFor(ctx, s, func(s *holdfast.Space) error { return s.Barrier("b", 3).Wait(waiting) })
}

// round has three parties meet, the last of them without a wait.
func round(ctx context.Context, a, b *holdfast.Space) {
	early := []queued{party(ctx, ctx, a), party(ctx, ctx, b)}
	want(!anyOver(early), "somebody passed before all parties waited")
	done(a.Barrier("b", 3).Wait(ctx))
	for _, w := range early {
		must(w.wait(ctx, "a party of a full barrier"))
	}
}

func barrierAllOrNobody(ctx context.Context, e *Env) { round(ctx, e.Client(), e.Client()) }

func barrierServesAgain(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	for range 3 {
		round(ctx, a, b)
	}
}

func barrierWhoLeaves(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	waiting, cancel := context.WithCancel(ctx)
	gone := make([]queued, 40)
	together(len(gone), func(i int) {
		gone[i] = queueFor(ctx, a, func(s *holdfast.Space) error { return s.Barrier("b", 50).Wait(waiting) })
	})
	cancel()
	for _, w := range gone {
		_, err := w.wait(ctx, "a cancelled party")
		refused(err, context.Canceled, "a cancelled party")
		want(holdfast.NotDone(err), "of a party that left is not known whether it counted: %v", err)
	}
	left := must(b.Inspect(ctx, "b")).Waiting
	want(left == 0, "%d parties that have left count still", left)
	done(b.Barrier("b", 0).Delete(ctx))
	round(ctx, a, b)
}

func barrierLeavesOrPasses(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	for round := range 40 {
		leaving, leave := context.WithCancel(ctx)
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		early := queueFor(ctx, a, func(s *holdfast.Space) error { return s.Barrier("b", 2).Wait(leaving) })
		var last error
		together(2, func(i int) {
			if i == round%2 { // a machine with one idle processor runs the same one first each time
				leave()
			} else {
				last = b.Barrier("b", 2).Wait(short)
			}
		})
		cancel()
		_, first := early.wait(ctx, "a party that leaves")
		known := (first == nil || holdfast.NotDone(first)) && (last == nil || holdfast.NotDone(last))
		want(!known || (first == nil) == (last == nil), "the party that left says %v, the last one %v", first, last)
	}
}

func barrierPartiesDiffer(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	early := []queued{party(ctx, ctx, a), party(ctx, ctx, a)}
	refused(b.Barrier("b", 2).Wait(ctx), holdfast.ErrConflict, "Wait with another number of parties")
	want(!anyOver(early), "a refused party counted")
	done(b.Barrier("b", 0).Wait(ctx))
	for _, w := range early {
		must(w.wait(ctx, "a party of a full barrier"))
	}
}

func barrierMostParties(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	leaving, leave := context.WithCancel(ctx)
	most := queueFor(ctx, a, func(s *holdfast.Space) error { return s.Barrier("most", 10_000).Wait(leaving) })
	refused(b.Barrier("most", 9_999).Wait(ctx), holdfast.ErrConflict, "Wait at a barrier of 10,000 as one of 9,999")
	leave()
	refused(second(most.wait(ctx, "a cancelled party")), context.Canceled, "a cancelled party")
	bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := b.Barrier("more", 10_001).Wait(bounded)
	refused(err, fs.ErrInvalid, "Wait at a barrier of 10,001")
	want(holdfast.NotDone(err), "NotDone is false for %v", err)
}

func barrierDeleteIdleOnly(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	waiting, cancel := context.WithCancel(ctx)
	w := party(ctx, waiting, a)
	refused(b.Barrier("b", 0).Delete(ctx), holdfast.ErrHeld, "Delete of a barrier at which somebody waits")
	cancel()
	refused(second(w.wait(ctx, "a cancelled party")), context.Canceled, "a cancelled party")
	waiters(ctx, b, "b", 0)
	done(b.Barrier("b", 0).Delete(ctx))
	done(b.Barrier("b", 1).Wait(ctx))
}

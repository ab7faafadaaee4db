package drivertest

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

const stalling = CanStall | HasTTL

var lossCases = []Case{
	{Name: "Loss/IsKnownInTime", Uses: stalling, Run: timed(lossIsKnownInTime),
		Promise: "A holder that cannot renew knows of its loss by its deadline: Err is ErrLost, Done is closed, bound contexts end with that cause."},
	{Name: "Loss/NextIsGranted", Uses: stalling, Run: timed(lossNextIsGranted),
		Promise: "The next in the queue is granted when a stopped holder's session ends, with a greater token."},
	{Name: "Loss/IsKnownFirst", Uses: stalling, Needs: []driver.Feature{driver.FeatureLostFirst}, Run: timed(lossIsKnownFirst),
		Promise: "A holder knows of its loss before anyone else is granted."},
	{Name: "Loss/ReleaseFreesNobody", Uses: stalling, Run: timed(lossReleaseFreesNobody),
		Promise: "Release of a lost hold says ErrLost and does not free what the next one holds."},
	{Name: "Loss/IsForEver", Uses: stalling, Run: timed(lossIsForEver),
		Promise: "A lost hold does not come back when its program goes on, and the program can acquire anew."},
	{Name: "Loss/TakesAllOfTheSession", Uses: stalling, Run: timed(lossTakesAllOfTheSession),
		Promise: "With a session all its holds are lost, and nobody else's."},
	{Name: "Loss/InsideDo", Uses: stalling, Run: timed(lossInsideDo),
		Promise: "Do of a program that was stopped returns ErrLost, not the cancellation."},
	{Name: "Loss/StoppedWaiter", Uses: stalling, Run: timed(lossStoppedWaiter),
		Promise: "A waiter whose program has stopped does not keep those behind it waiting."},
}

var (
	maxHold = []driver.Feature{driver.FeatureMaxHold}
	minHold = []driver.Feature{driver.FeatureMinHold}
	delayed = []driver.Feature{driver.FeatureMaxHold, driver.FeatureDelay}
)

var claimDeadlineCases = []Case{
	{Name: "MaxHold/EndsTheLiving", Needs: maxHold, Run: timed(maxHoldEndsTheLiving),
		Promise: "A hold with MaxHold is lost after that time although its program is alive, and the next is granted."},
	{Name: "MaxHold/IsKnownFirst", Needs: []driver.Feature{driver.FeatureMaxHold, driver.FeatureLostFirst}, Run: timed(maxHoldIsKnownFirst),
		Promise: "A hold that MaxHold ends is known to be lost before the next is granted."},
	{Name: "MaxHold/Least", Needs: maxHold, Run: run(maxHoldLeast),
		Promise: "MaxHold is 100 ms at least, which leaves a holder some of it; less is refused."},
	{Name: "MaxHold/Extend", Needs: maxHold, Run: timed(maxHoldExtend),
		Promise: "Extend moves the end of a hold with MaxHold on, for everybody."},
	{Name: "MaxHold/ExtendOnlyForward", Needs: maxHold, Run: run(maxHoldExtendOnlyForward),
		Promise: "Extend never moves the end of a hold back."},
	{Name: "MinHold/StaysTaken", Needs: minHold, Run: timed(minHoldStaysTaken),
		Promise: "A name with MinHold stays taken for that time after its grant although it was released."},
	{Name: "Delay/AfterALoss", Needs: delayed, Run: timed(delayAfterALoss),
		Promise: "A name that was lost with Delay is granted to nobody for that time."},
	{Name: "Delay/NotRenewed", Uses: HasTTL, Needs: []driver.Feature{driver.FeatureDelay, driver.FeatureSession}, Run: timed(delayNotRenewed),
		Promise: "A name with Delay that was lost because nobody renewed it is granted to nobody before its TTL and that time have passed, also if its holder releases it then."},
	{Name: "Delay/Stalled", Uses: stalling, Needs: []driver.Feature{driver.FeatureDelay}, Run: timed(delayStalled),
		Promise: "A name with Delay that a stopped program has lost is granted to nobody for that time, also if the program goes on just after the loss."},
	{Name: "Delay/ThenClosed", Needs: delayed, Run: timed(delayThenClosed),
		Promise: "A name that was lost with Delay is granted to nobody for that time, also if its Space is closed just after the loss."},
	{Name: "Delay/NotAfterARelease", Needs: []driver.Feature{driver.FeatureDelay}, Run: run(delayNotAfterARelease),
		Promise: "A name that was released is free at once, whatever its Delay."},
}

// stopped is a client that holds "m" and whose keepalives have stopped.
func (e *Env) stopped(ctx context.Context) (s *holdfast.Space, h *holdfast.Hold, resume func()) {
	root := e.Root()
	s = root.Sub(e.Prefix())
	h = must(s.Mutex("m", e.short()).Acquire(ctx))
	return s, h, e.Stall(root)
}

func lossIsKnownInTime(ctx context.Context, e *Env) {
	_, h, resume := e.stopped(ctx)
	defer resume()
	bound := h.Bind(ctx)
	done(h.Err())
	eventually(ctx, "a hold that is not renewed does not end", func() bool {
		at, _ := h.Deadline()
		return driver.Until(at) <= 0
	})
	refused(h.Err(), holdfast.ErrLost, "Err past the deadline")
	ends(ctx, h.Done(), "a hold that is not renewed")
	ends(ctx, bound.Done(), "the context of a lost hold")
	refused(context.Cause(bound), holdfast.ErrLost, "the cause of a lost hold's context")
}

func lossNextIsGranted(ctx context.Context, e *Env) {
	_, h, resume := e.stopped(ctx)
	defer resume()
	next := must(e.Client().Mutex("m").Acquire(ctx))
	want(next.Token() > h.Token(), "the next token is %d, the lost one was %d", next.Token(), h.Token())
	done(next.Release())
}

// witness acquires and tells what h's Err was at the moment of the grant.
func witness(ctx context.Context, m *holdfast.Mutex, h *holdfast.Hold) error {
	next, err := m.Acquire(ctx)
	seen := h.Err()
	done(err)
	done(next.Release())
	return seen
}

func lossIsKnownFirst(ctx context.Context, e *Env) {
	_, h, resume := e.stopped(ctx)
	defer resume()
	refused(witness(ctx, e.Client().Mutex("m"), h), holdfast.ErrLost, "Err of the holder before, when the next is granted")
}

func lossReleaseFreesNobody(ctx context.Context, e *Env) {
	_, h, resume := e.stopped(ctx)
	defer resume()
	next := must(e.Client().Mutex("m").Acquire(ctx))
	eventually(ctx, "the lost hold is not known to be lost", func() bool { return h.Err() != nil })
	resume()
	refused(h.Release(), holdfast.ErrLost, "Release of a lost hold")
	refused(second(e.Client().Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire after a lost hold's Release")
	done(next.Err())
	done(next.Release())
}

func lossIsForEver(ctx context.Context, e *Env) {
	s, h, resume := e.stopped(ctx)
	defer resume()
	ends(ctx, h.Done(), "a hold that is not renewed")
	resume()
	again := must(s.Mutex("m", e.short()).Acquire(ctx))
	refused(h.Err(), holdfast.ErrLost, "Err of a lost hold after its program went on")
	want(again.Token() > h.Token(), "the new token is %d, the lost one was %d", again.Token(), h.Token())
	done(again.Err())
	done(again.Release())
}

func lossTakesAllOfTheSession(ctx context.Context, e *Env) {
	other := e.take(e.Client().Mutex("other", e.short()).Acquire(ctx))
	root := e.Root()
	s := root.Sub(e.Prefix())
	m, n := must(s.Mutex("m", e.short()).Acquire(ctx)), must(s.Mutex("n", e.short()).Acquire(ctx))
	defer e.Stall(root)()
	ends(ctx, m.Done(), "the first hold of a lost session")
	ends(ctx, n.Done(), "the second hold of a lost session")
	for _, name := range []string{"m", "n"} {
		done(must(e.Client().Mutex(name).Acquire(ctx)).Release())
	}
	done(other.Err())
	refused(second(e.Client().Mutex("other").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire of a living client's mutex")
}

func lossInsideDo(ctx context.Context, e *Env) {
	root := e.Root()
	err := root.Sub(e.Prefix()).Mutex("m", e.short()).Do(ctx, func(bound context.Context, _ *holdfast.Hold) error {
		defer e.Stall(root)()
		ends(ctx, bound.Done(), "f's context after the loss")
		return bound.Err()
	})
	refused(err, holdfast.ErrLost, "Do with a lost hold")
	want(!errors.Is(err, context.Canceled), "Do with a lost hold returned the cancellation: %v", err)
}

func lossStoppedWaiter(ctx context.Context, e *Env) {
	a, root, c := e.Client(), e.Root(), e.Client()
	stopped := root.Sub(e.Prefix())
	h := must(a.Mutex("m").Acquire(ctx))
	e.take(stopped.Mutex("sign", e.short()).Acquire(ctx))
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) {
		return stopped.Mutex("m", e.short(), o).Acquire(waiting)
	})
	behind := queue(ctx, func(o holdfast.HoldOption) (*holdfast.Hold, error) { return c.Mutex("m", o).Acquire(ctx) })
	defer e.Stall(root)()
	done(must(a.Mutex("sign").Acquire(ctx)).Release()) // the stopped client's session has ended
	done(h.Release())
	done(behind.granted(ctx).Release())
}

// moment is a claim's own deadline in these cases: long enough for a few calls,
// short enough to wait for.
func (e *Env) moment() time.Duration { return max(e.TTL/2, 500*time.Millisecond) }

// atLeast leaves the case if less than d has passed since start, but for the
// rate by which two clocks may differ.
func atLeast(start time.Time, d time.Duration, what string) {
	took := time.Since(start)
	want(took >= d-d/20, "%s after %s; want at least %s", what, took, d)
}

func maxHoldEndsTheLiving(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Mutex("m", holdfast.MaxHold(e.moment())).Acquire(ctx))
	at, ok := h.Deadline()
	want(ok && driver.Until(at) <= e.moment(), "the deadline of a hold for %s is %s away", e.moment(), driver.Until(at))
	next := e.take(b.Mutex("m").Acquire(ctx))
	ends(ctx, h.Done(), "a hold past its MaxHold")
	refused(h.Err(), holdfast.ErrLost, "Err past MaxHold")
	want(next.Token() > h.Token(), "the next token is %d, the lost one was %d", next.Token(), h.Token())
	refused(h.Release(), holdfast.ErrLost, "Release past MaxHold")
	done(next.Err())
	refused(second(a.Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire of the next holder's mutex")
}

func maxHoldIsKnownFirst(ctx context.Context, e *Env) {
	h := must(e.Client().Mutex("m", holdfast.MaxHold(e.moment())).Acquire(ctx))
	refused(witness(ctx, e.Client().Mutex("m"), h), holdfast.ErrLost, "Err of the holder before, when the next is granted")
}

func maxHoldLeast(ctx context.Context, e *Env) {
	const least = 100 * time.Millisecond
	m := e.Client().Mutex("m", holdfast.MaxHold(least))
	refused(second(e.Client().Mutex("m", holdfast.MaxHold(least-1)).Acquire(ctx)), fs.ErrInvalid, "Acquire with less than the least MaxHold")
	eventually(ctx, "a hold with the least MaxHold is over when it is granted", func() bool {
		h, err := m.Acquire(ctx)
		if errors.Is(err, holdfast.ErrLost) { // the answer took as long as the hold
			return false
		}
		done(err)
		at, _ := h.Deadline()
		lasts := driver.Until(at) > 0
		_ = h.Release() // it may be over by now
		return lasts
	})
}

func maxHoldExtend(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	h := must(a.Mutex("m", holdfast.MaxHold(e.moment())).Acquire(ctx))
	first, _ := h.Deadline()
	done(h.Extend(ctx, time.Minute))
	moved, _ := h.Deadline()
	want(moved.After(first), "Extend moved the deadline by %s", moved.Sub(first))
	eventually(ctx, "time does not pass", func() bool {
		refused(second(b.Mutex("m").TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire of an extended hold")
		return driver.Until(first) < -e.moment()/4
	})
	done(h.Err())
	done(h.Release())
}

func maxHoldExtendOnlyForward(ctx context.Context, e *Env) {
	h := must(e.Client().Mutex("m", holdfast.MaxHold(time.Minute)).Acquire(ctx))
	first, _ := h.Deadline()
	done(h.Extend(ctx, time.Millisecond))
	moved, _ := h.Deadline()
	want(!moved.Before(first), "a shorter Extend moved the deadline back by %s", first.Sub(moved))
	other := e.Client().Mutex("m")
	outlives(ctx, driver.Now().Add(20*time.Millisecond), func() {
		refused(second(other.TryAcquire(ctx)), holdfast.ErrHeld, "TryAcquire after a shorter Extend")
	})
	done(h.Err())
	done(h.Release())
}

func minHoldStaysTaken(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	start := time.Now()
	h := must(a.Mutex("m", holdfast.MinHold(e.moment())).Acquire(ctx))
	done(h.Release())
	refused(h.Err(), holdfast.ErrReleased, "Err after Release")
	next := must(b.Mutex("m").Acquire(ctx))
	atLeast(start, e.moment(), "the next was granted")
	want(next.Token() > h.Token(), "the next token is %d, the one before was %d", next.Token(), h.Token())
	done(next.Release())
	free(ctx, a.Mutex("m"), "after a hold without MinHold")
}

func delayAfterALoss(ctx context.Context, e *Env) {
	a, b := e.Client(), e.Client()
	start := time.Now()
	h := must(a.Mutex("m", holdfast.MaxHold(e.moment()), holdfast.Delay(e.moment())).Acquire(ctx))
	ends(ctx, h.Done(), "a hold past its MaxHold")
	done(must(b.Mutex("m").Acquire(ctx)).Release())
	atLeast(start, 2*e.moment(), "the next was granted")
	refused(h.Err(), holdfast.ErrLost, "Err of a lost hold")
}

func delayNotRenewed(ctx context.Context, e *Env) {
	a, b, start := e.Client(), e.Client(), time.Now()
	h := must(a.Mutex("m", e.short(), holdfast.ManualRenew(), holdfast.Delay(e.moment())).Acquire(ctx))
	ends(ctx, h.Done(), "a hold that nobody renews")
	refused(h.Release(), holdfast.ErrLost, "Release of a lost hold")
	done(must(b.Mutex("m").Acquire(ctx)).Release())
	atLeast(start, time.Duration(e.short())+e.moment(), "the next was granted")
}

func delayStalled(ctx context.Context, e *Env) {
	root, start := e.Root(), time.Now()
	h := must(root.Sub(e.Prefix()).Mutex("m", e.short(), holdfast.Delay(e.moment())).Acquire(ctx))
	resume := e.Stall(root)
	defer resume()
	ends(ctx, h.Done(), "a hold that is not renewed")
	resume()
	done(must(e.Client().Mutex("m").Acquire(ctx)).Release())
	atLeast(start, time.Duration(e.short())+e.moment(), "the next was granted")
	refused(h.Err(), holdfast.ErrLost, "Err of a lost hold") // h is in use until here: one that is not is given back
}

func delayThenClosed(ctx context.Context, e *Env) {
	root, start := e.Root(), time.Now()
	s := root.Sub(e.Prefix())
	h := must(s.Mutex("m", e.short(), holdfast.MaxHold(e.moment()), holdfast.Delay(e.moment())).Acquire(ctx))
	ends(ctx, h.Done(), "a hold past its MaxHold")
	done(root.Close())
	done(must(e.Client().Mutex("m").Acquire(ctx)).Release())
	atLeast(start, 2*e.moment(), "the next was granted")
	refused(h.Err(), holdfast.ErrLost, "Err of a lost hold")
}

func delayNotAfterARelease(ctx context.Context, e *Env) {
	m := e.Client().Mutex("m", holdfast.Delay(time.Hour))
	done(must(m.Acquire(ctx)).Release())
	free(ctx, e.Client().Mutex("m"), "after Release of a hold with Delay")
}

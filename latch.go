package holdfast

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
)

// Latch lets everybody wait until it was counted down to 0; then it stays open.
// Safe for concurrent use.
type Latch struct {
	l     lockable
	count int64
}

// Latch names a latch; it does no I/O. The first CountDown or Wait with a count makes it;
// the count of later ones is ignored. Count 0 means that it has to exist, else ErrNotFound;
// one below 0 is ErrInvalid.
func (s *Space) Latch(name string, count int64) *Latch {
	l := &Latch{s.lockable(name, nil), count}
	if count < 0 {
		l.l.err = firstError(l.l.err, invalid("the count %d is negative", count))
	}
	return l
}

// CountDown takes n off the count and tells what is left; 0: the latch is open. An n that is
// more than what is left opens it; one below 1 is ErrInvalid.
func (l *Latch) CountDown(ctx context.Context, n int64) (left int64, err error) {
	if n < 1 {
		return 0, wrap("count down", l.l.name, invalid("the step %d is below 1; Left only looks", n))
	}
	return l.down(ctx, "count down", n)
}

// Left tells what is left of the count. It makes nothing: of a latch that is not there it
// is the count that was given.
func (l *Latch) Left(ctx context.Context) (int64, error) { return l.down(ctx, "left", 0) }

func (l *Latch) down(ctx context.Context, op string, n int64) (int64, error) {
	r := l.l.s.r
	if err := firstError(l.l.err, r.ready(ctx, driver.FeatureLatch)); err != nil {
		return 0, wrap(op, l.l.name, err)
	}
	reply, err := r.d.CountDown(ctx, &driver.CountDownRequest{ID: newID(), Name: l.l.name, Count: l.count, By: n})
	return reply.Left, r.wrap(ctx, op, l.l.name, driver.FeatureLatch, err)
}

// Wait returns when the latch is open.
func (l *Latch) Wait(ctx context.Context) error {
	return l.l.pass(ctx, driver.Want{Kind: driver.Latch, Mode: driver.Shared, Limit: l.count})
}

// Delete forgets the latch, so that its name can be used again.
func (l *Latch) Delete(ctx context.Context) error {
	return l.l.s.remove(ctx, driver.Latch, l.l.name, driver.FeatureLatch, l.l.err)
}

// Barrier lets a number of parties wait for each other: nobody passes before
// all have come. Then it serves again. Safe for concurrent use.
type Barrier struct {
	l       lockable
	parties int64
}

// maxParties bounds a barrier: all of its parties pass in one step of the backend.
const maxParties = 10_000

// Barrier names a barrier; it does no I/O. The first use with a number of
// parties, up to 10,000, makes it; 0 means the number that it has.
func (s *Space) Barrier(name string, parties int64) *Barrier {
	b := &Barrier{s.lockable(name, nil), parties}
	switch {
	case parties < 0:
		b.l.err = firstError(b.l.err, invalid("the number of parties %d is negative", parties))
	case parties > maxParties:
		b.l.err = firstError(b.l.err, invalid("a barrier of %d parties is too great: at most %d can pass together", parties, maxParties))
	}
	return b
}

// Wait returns when all parties wait. If ctx ends first, the caller leaves the barrier, and
// has left it when Wait returns: that takes one more answer of the backend, and up to 5 s if
// there is none. An error that is not [NotDone] says that the others may have counted the caller.
func (b *Barrier) Wait(ctx context.Context) error {
	return b.l.pass(ctx, driver.Want{Kind: driver.Barrier, Mode: driver.Shared, Weight: 1, Limit: b.parties})
}

// Delete forgets the barrier and its number of parties; ErrHeld if somebody
// waits.
func (b *Barrier) Delete(ctx context.Context) error {
	return b.l.s.remove(ctx, driver.Barrier, b.l.name, driver.FeatureLatch, b.l.err)
}

// pass waits for a grant and gives it back: having waited is all. Nothing is held, so that what a
// Space has set for holds ([MaxHold], [MinHold], [Delay]) is not meant for it.
func (l *lockable) pass(ctx context.Context, want driver.Want) error {
	waiting, cfg := *l, *l.cfg
	cfg.maxHold, cfg.minHold, cfg.delay = 0, 0, 0
	waiting.cfg = &cfg
	h, err := waiting.take(ctx, want, driver.FeatureLatch, &request{op: "wait"})
	if err != nil {
		return err
	}
	_ = h.Release()
	return nil
}

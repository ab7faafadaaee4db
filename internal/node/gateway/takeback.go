package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
)

// abandon takes a request back that nobody waits for, whatever has become of it. A
// caller with an idempotency key may come back for it until its lease ends by itself. From now
// on each call of the lease takes it back first: one that comes again would join a hold that is
// about to end.
func (l *lease) abandon(seq uint64) {
	if l.keyed {
		return
	}
	l.leave(seq)
	l.g.later(func(ctx context.Context) { _ = l.undo(ctx, seq) })
}

// gotNothing ends a request that was refused. On a lease that others use nothing is left of it: to
// take it back would cost those a command, and their room. One that was opened for it alone ends.
func (l *lease) gotNothing(seq uint64) {
	if l.open == nil {
		l.settle(seq)
		return
	}
	l.abandon(seq)
}

// unanswered takes back what a call that failed may have done.
func (l *lease) unanswered(seq uint64, err error) {
	if notDone(err) {
		l.settle(seq)
		return
	}
	l.abandon(seq)
}

// usedKey is the error of a call with an idempotency key after its lease has ended: what became
// of the first call is not known, whatever the refusal of the lease says.
func (l *lease) usedKey(err error) error {
	if e, ok := errors.AsType[*driver.Error](err); ok && l.keyed && e.Kind == error(driver.ErrLost) {
		return errUsedKey()
	}
	return err
}

// takeBack takes a request back before its caller is told why: err says that nothing was
// done, which has to be so by then.
func (l *lease) takeBack(ctx context.Context, seq uint64, err error) error {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), settle)
	defer cancel()
	l.leave(seq)
	if l.keyed || l.undo(within, seq) != nil {
		return doubtful(err)
	}
	callerOf(ctx).withdrawn()
	return err
}

// undo ends a lease that was opened for a request alone, and cancels a request that was left on another: of a
// granted upgrade the shared claim stays. A node that is too busy is asked again until ctx ends:
// when many leave at the same time, not all find room at once. If it fails, the next use of the
// lease does it.
func (l *lease) undo(ctx context.Context, seq uint64) error {
	err := l.undoOnce(ctx, seq)
	for wait := retryIn(err); wait > 0 && ctx.Err() == nil; wait = min(2*wait, mostRetry) {
		select {
		case <-time.After(wait):
			if err = l.undoOnce(ctx, seq); retryIn(err) == 0 {
				wait = 0
			}
		case <-ctx.Done():
		}
	}
	switch {
	case l.open != nil:
	case err != nil:
		l.leave(seq)
	default:
		l.canceled(seq)
	}
	return err
}

// mostRetry is the longest time between two tries of undo.
const mostRetry = 400 * time.Millisecond

// retryIn is when a node that was too busy wants to be asked again; 0: it was not.
func retryIn(err error) time.Duration {
	if e, ok := errors.AsType[*driver.Error](err); ok && unavailable(e) {
		return e.RetryAfter
	}
	return 0
}

func (l *lease) undoOnce(ctx context.Context, seq uint64) (err error) {
	if l.open != nil {
		_, err = l.g.submit(ctx, &core.Frame{Session: l.id, Mark: 1, Commands: []core.Command{{Op: core.OpEnd, Namespace: l.ns}}})
		return err
	}
	if !l.left(seq) { // it went with another call, or its owner has come for it
		return nil
	}
	_, results, err := l.run(ctx, core.Command{Op: core.OpCancel, Target: seq})
	if err == nil && outOfStep(results[0]) {
		err = errOutOfStep
	}
	return err
}

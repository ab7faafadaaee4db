package client

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/barrier"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// isParty reports that others count the claim as long as it waits.
func (k *acquisition) isParty() bool {
	return len(k.call.Command.Wants) == 1 && k.call.Command.Wants[0].Kind == core.Barrier && !k.c.g.opts.Immediate
}

// attend unlocks the mux and waits for the others at a barrier. When ctx ends it leaves the
// barrier, and returns when that is known.
func (k *acquisition) attend(ctx context.Context) error {
	g := k.c.g
	if k.done {
		g.Unlock()
		return nil
	}
	ready := k.waitable(g)
	g.Unlock()
	if g.waits.wait(ctx, ready) {
		k.ready = nil
		g.waits.emptied(ready)
		return nil
	}
	return k.leave(ctx)
}

// leave takes a party back. It is nil if all parties had come before: the grant is told before
// the answer to what takes it back.
func (k *acquisition) leave(ctx context.Context) error {
	g := k.c.g
	now := g.Lock()
	switch {
	case k.done:
		g.Unlock()
		return k.abandon(ctx, k.u)
	case k.call.Unsent():
		defer g.Unlock()
		return k.c.gaveUp(ctx, known(k.drop(now, k.u)))
	}
	k.told = nil // its end is no loss
	o := newOp(&core.Command{Op: core.OpCancel, Target: k.call.Seq()})
	o.start(now, k.u)
	leaving, cancel := barrier.Leaving(ctx)
	defer cancel()
	outcome := driver.Unknown
	if err := o.wait(leaving, k.u); err == nil {
		if o.call.Outcome == session.Answered {
			outcome = driver.NotDone
		}
		recycle(o)
	}
	return k.left(ctx, outcome)
}

// left is the end of a party that was to be taken back; nil: its call was answered before that.
func (k *acquisition) left(ctx context.Context, outcome driver.Outcome) error {
	g, r := k.c.g, &k.call.Result
	now := g.Lock()
	defer g.Unlock()
	switch {
	case !k.done:
		k.drop(now, k.u)
	case r.Code == core.CodeCanceled || r.Code == core.CodeLost: // by a table: whether it had been granted is not known
		outcome = driver.Unknown
	default:
		return nil
	}
	return k.c.gaveUp(ctx, outcome)
}

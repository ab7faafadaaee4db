package memhold

import (
	"context"
	"sync"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/session"
)

// op is one command of a caller. Guarded by the store's mutex.
type op struct {
	call  session.Call
	done  bool
	ready chan struct{} // closed when done; nil: nobody waits
}

// finisher is the Tag of every call.
type finisher interface{ finished(st *store) }

func (o *op) finished(st *store) {
	o.done = true
	if o.ready != nil {
		st.later = append(st.later, task{wake: o.ready})
	}
}

// start sends the command on the session u.
func (o *op) start(now int64, u *user) {
	u.take(u.s.Submit(now, &o.call))
	u.touch()
	u.c.st.pump(now)
}

// waitable is closed when o is done; the store is locked.
func (o *op) waitable() <-chan struct{} {
	if o.ready == nil {
		o.ready = make(chan struct{})
	}
	return o.ready
}

// wait unlocks the store and waits for the answer. If ctx ends before, nobody
// waits for the answer any more; what was sent is carried to it nevertheless.
func (o *op) wait(ctx context.Context, u *user) error {
	st := u.c.st
	if o.done {
		st.unlock()
		return nil
	}
	ready := o.waitable()
	st.unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return o.abandon(ctx, u)
	}
}

// abandon gives up a call, unless it is answered by now. What is not stalled and
// unanswered is a wait, and that is withdrawn when abandon returns.
func (o *op) abandon(ctx context.Context, u *user) error {
	st := u.c.st
	now := st.lock()
	if o.done {
		st.unlock()
		<-o.ready
		return nil
	}
	defer st.unlock()
	outcome, actions := u.s.Abandon(now, &o.call)
	u.take(actions)
	u.touch()
	st.pump(now)
	if !u.c.stalled() {
		outcome = session.NotDone
	}
	return stopped(ctx, known(outcome))
}

// known is what a session's outcome means to a caller.
func known(o session.Outcome) driver.Outcome {
	if o == session.NotDone {
		return driver.NotDone
	}
	return driver.Unknown
}

// ops are those of calls that were answered: nobody refers to them any more.
var ops = sync.Pool{New: func() any { return new(op) }}

func newOp(cmd *core.Command) *op {
	o := ops.Get().(*op)
	o.call.Command = *cmd
	o.call.Tag = o
	return o
}

func recycle(o *op) {
	*o = op{}
	ops.Put(o)
}

// ask runs a command that hangs on no session, and returns its result and the
// cluster time of that. One that was never sent, because the session had just
// died, is sent on the next.
func (c *client) ask(ctx context.Context, cmd *core.Command) (core.Result, int64, error) {
	for {
		now, err := c.begin(ctx)
		if err != nil {
			return core.Result{}, 0, err
		}
		u := c.sharedUser(now, plain)
		o := newOp(cmd)
		o.start(now, u)
		if err := o.wait(ctx, u); err != nil {
			return core.Result{}, 0, err
		}
		r, at, again := o.call.Result, o.call.Now, o.call.Outcome == session.NotDone && !c.isClosed()
		err = failure(c, u, &o.call)
		recycle(o)
		if !again {
			return r, at, err
		}
	}
}

func (c *client) isClosed() bool {
	c.st.mu.Lock()
	defer c.st.mu.Unlock()
	return c.closed
}

package client

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"sync"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// op is one command of a caller. Guarded by the mux's mutex.
type op struct {
	call  session.Call
	done  bool
	ready chan struct{} // gets something when done; nil: nobody waits
}

// finisher is the Tag of every call.
type finisher interface{ finished(g *SessionMux) }

func (o *op) finished(g *SessionMux) {
	o.done = true
	if o.ready != nil {
		g.later = append(g.later, task{wake: o.ready})
	}
}

// start sends the command on the session u.
func (o *op) start(now int64, u *ClientSession) {
	u.take(u.s.Submit(now, &o.call))
	u.c.g.soon(now, u)
}

// waitable gets something when o is done; the mux is locked.
func (o *op) waitable(g *SessionMux) chan struct{} {
	if o.ready == nil {
		o.ready = g.waits.channel()
	}
	return o.ready
}

// wait unlocks the mux and waits for the answer. If ctx ends before, nobody
// waits for the answer any more; what was sent is carried to it nevertheless.
func (o *op) wait(ctx context.Context, u *ClientSession) error {
	g := u.c.g
	if o.done {
		g.Unlock()
		return nil
	}
	ready := o.waitable(g)
	g.Unlock()
	if !g.waits.wait(ctx, ready) {
		return o.abandon(ctx, u)
	}
	o.ready = nil
	g.waits.emptied(ready)
	return nil
}

// abandon gives up a call, unless it is answered by now. Where answers are
// immediate, what is not stalled and unanswered is a wait, and that is withdrawn
// when abandon returns.
func (o *op) abandon(ctx context.Context, u *ClientSession) error {
	g := u.c.g
	now := g.Lock()
	if o.done {
		g.Unlock()
		<-o.ready
		return nil
	}
	defer g.Unlock()
	outcome := o.drop(now, u)
	if g.opts.Immediate && !u.c.stalled() {
		outcome = session.NotDone
	}
	return u.c.gaveUp(ctx, known(outcome))
}

// drop has the session forget a call; the mux is locked.
func (o *op) drop(now int64, u *ClientSession) session.Outcome {
	outcome, actions := u.s.Abandon(now, &o.call)
	if outcome == session.Unknown {
		ownValues(&o.call.Command)
	}
	u.take(actions)
	u.touch()
	u.c.g.Pump(now)
	return outcome
}

// ownValues gives a command values of its own. It may be sent again after its caller has left, and
// callers use their buffers again.
func ownValues(c *core.Command) {
	c.Value = bytes.Clone(c.Value)
	for i := range c.If {
		c.If[i].Value = bytes.Clone(c.If[i].Value)
	}
	for _, ops := range [...][]core.KeyOp{c.Then, c.Else} {
		for i := range ops {
			ops[i].Value = bytes.Clone(ops[i].Value)
		}
	}
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
func (c *Client) ask(ctx context.Context, cmd *core.Command) (core.Result, int64, error) {
	if err := fits(cmd); err != nil {
		return core.Result{}, 0, err
	}
	for {
		now, err := c.begin(ctx)
		if err != nil {
			return core.Result{}, 0, err
		}
		u := c.sharedUser(now, c.plain)
		o := newOp(cmd)
		o.start(now, u)
		if err := o.wait(ctx, u); err != nil {
			return core.Result{}, 0, err
		}
		r, at, again := o.call.Result, o.call.Now, c.anew(u, &o.call) || c.longer(u, &o.call)
		err = failure(c, u, &o.call)
		recycle(o)
		if !again {
			return r, at, err
		}
	}
}

// anew reports whether a call that was never sent, since its session had just
// died, may go to the next one. A session that was refused would be again.
func (c *Client) anew(u *ClientSession, call *session.Call) bool {
	return call.Outcome == session.NotDone && !call.Denied && u.refused == nil && c.ended(driver.NotDone) == nil
}

// longer reports whether a call that was not done, since its plain session u was refused, may go to one
// with a longer TTL. A server may ask for more than plainTTL, which no caller can choose: it is
// doubled until it is taken.
func (c *Client) longer(u *ClientSession, call *session.Call) bool {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	if u.refused == nil || call.Outcome != session.NotDone || !errors.Is(u.refused, fs.ErrInvalid) {
		return false
	}
	if u.session.Spec == c.plain {
		c.plain.TTL = min(2*c.plain.TTL, c.info.MaxTTL)
	}
	return u.session.Spec.TTL < c.plain.TTL
}

// ended is the error of a call with that outcome if the client takes no more of
// them; nil: it does.
func (c *Client) ended(o driver.Outcome) error {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	if !c.closed {
		return nil
	}
	return c.closedError(o)
}

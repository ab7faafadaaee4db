package client

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// acquisition is a request to hold, and then the hold. It is the driver.Handle of its
// grant.
type acquisition struct {
	op
	c    *Client
	u    *ClientSession
	one  [1]core.Want
	told func(cause error)
	wait func(position int)

	release *op   // under way
	waiters int32 // for it
	freed   bool
	result  error // of the release, once freed
}

var _ driver.Handle = (*acquisition)(nil)

// Acquire takes all of r.Wants or none.
func (c *Client) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	for {
		now, err := c.begin(ctx)
		if err != nil {
			return driver.Grant{}, err
		}
		u := c.userFor(now, r)
		if u == nil {
			c.g.Unlock()
			return driver.Grant{}, ended(r.Session)
		}
		k := c.newAcquisition(r)
		if err := fits(&k.call.Command); err != nil {
			c.g.Unlock()
			return driver.Grant{}, err
		}
		k.u = u
		k.start(now, u)
		g, again, err := k.await(ctx, r.Session == nil)
		if !again {
			return g, err
		}
	}
}

// userFor is the session that a request hangs on; nil: it has ended.
func (c *Client) userFor(now int64, r *driver.Request) *ClientSession {
	if r.Session != nil {
		return c.ownUser(now, r.Session)
	}
	return c.sharedUser(now, r.Spec)
}

// ended says that a session is over.
func ended(l *driver.Session) error {
	e := &driver.Error{Kind: driver.ErrLost, Outcome: driver.NotDone}
	if e.Err = l.Err(); e.Err == nil {
		e.Err = errors.New("the session has ended, or is not of this Space")
	}
	return e
}

func (c *Client) newAcquisition(r *driver.Request) *acquisition {
	k := &acquisition{c: c, told: r.Lost, wait: r.Waiting}
	cmd := &k.call.Command
	cmd.Op, cmd.Value = core.OpAcquire, r.Value
	cmd.MaxHold, cmd.MinHold, cmd.Delay = int64(r.MaxHold), int64(r.MinHold), int64(r.Delay)
	if r.Try {
		cmd.Flags = core.Try
	}
	cmd.Wants = k.one[:0]
	for i := range r.Wants {
		w := &r.Wants[i]
		cmd.Wants = append(cmd.Wants, core.Want{
			Name: w.Name, Kind: core.Kind(w.Kind), Mode: core.Mode(w.Mode), Weight: weight(w), Limit: w.Limit,
		})
	}
	k.call.Tag = k
	return k
}

func weight(w *driver.Want) int64 {
	if w.Kind == driver.Semaphore {
		return max(w.Weight, 1)
	}
	return min(w.Weight, 1)
}

// await unlocks the mux and waits for the grant. again: the request was never
// sent, since its shared session had just died, and may go to the next one.
func (k *acquisition) await(ctx context.Context, shared bool) (g driver.Grant, again bool, err error) {
	if k.isParty() {
		err = k.attend(ctx)
	} else {
		err = k.op.wait(ctx, k.u)
	}
	if err != nil {
		return driver.Grant{}, false, err
	}
	if err := failure(k.c, k.u, &k.call); err != nil {
		return driver.Grant{}, shared && k.c.anew(k.u, &k.call), err
	}
	return k.grant(), false, nil
}

func (k *acquisition) grant() driver.Grant {
	g := driver.Grant{Token: driver.Token(k.call.Result.Token), Session: k.u.session, Handle: k}
	if k.call.Deadline != 0 {
		g.Deadline = k.c.g.Time(k.call.Deadline)
	}
	return g
}

// queued tells the caller its place in the queue.
func queued(g *SessionMux, call *session.Call) {
	k := call.Tag.(*acquisition)
	if k.wait == nil {
		return
	}
	position := int(call.Result.Number)
	g.later = append(g.later, task{f: func() { k.wait(position) }})
}

// lose tells the holder that its hold has ended, before anybody can be granted
// it: the mux is locked.
func (k *acquisition) lose(code core.Code) {
	if k.told == nil {
		return
	}
	cause := convert.Refusal(code, "")
	cause.Kind, cause.Outcome = driver.ErrLost, driver.Done
	k.told(cause)
}

// Release gives the hold back. If ctx ends before the answer, the release goes
// on, and a second call waits for the same answer.
func (k *acquisition) Release(ctx context.Context) error {
	g := k.c.g
	now := g.Lock()
	if !k.freed && k.release == nil {
		k.release = newOp(&core.Command{Op: core.OpRelease, Target: k.call.Seq()})
		k.release.start(now, k.u)
	}
	if k.freed || k.release.done {
		defer g.Unlock()
		return k.free()
	}
	ready := k.release.waitable(g)
	k.waiters++
	g.Unlock()
	answered := g.waits.wait(ctx, ready)
	g.mu.Lock()
	defer g.Unlock()
	k.waiters--
	switch {
	case !answered:
		return k.c.gaveUp(ctx, driver.Unknown)
	case k.waiters > 0:
		ready <- struct{}{} // for the next
	default:
		g.waits.emptied(ready)
	}
	return k.free()
}

// free keeps the result of the release; the mux is locked.
func (k *acquisition) free() error {
	if k.freed {
		return k.result
	}
	call := &k.release.call
	k.freed = true
	switch {
	case call.Outcome != session.Answered:
		k.result = &driver.Error{Kind: driver.ErrLost, Outcome: known(call.Outcome), Err: errors.New("its session has ended")}
	case call.Result.Code == core.CodeNotExist:
		k.result = convert.Refusal(core.CodeLost, "")
	case call.Result.Code != core.CodeOK:
		k.result = convert.Refusal(call.Result.Code, call.Result.Text)
	}
	recycle(k.release)
	k.release = nil
	return k.result
}

// Change alters the hold.
func (k *acquisition) Change(ctx context.Context, ch driver.Change) (driver.Grant, error) {
	target := k.call.Seq()
	switch {
	case ch.Upgrade:
		return k.upgrade(ctx, ch.Lost)
	case ch.Downgrade:
		return k.alter(ctx, core.Command{Op: core.OpDowngrade, Target: target}, ch.Lost)
	case ch.Extend > 0:
		return k.alter(ctx, core.Command{Op: core.OpExtend, Target: target, MaxHold: int64(ch.Extend)}, nil)
	case ch.Proclaim != nil:
		return k.alter(ctx, core.Command{Op: core.OpProclaim, Target: target, Value: *ch.Proclaim}, nil)
	case ch.HandOver != "":
		return k.alter(ctx, core.Command{Op: core.OpHandOver, Target: target, Owner: ch.HandOver}, nil)
	default:
		return driver.Grant{}, errors.ErrUnsupported
	}
}

// upgrade waits for the exclusive hold, which is a claim of its own.
func (k *acquisition) upgrade(ctx context.Context, lost func(error)) (driver.Grant, error) {
	now, err := k.c.begin(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	up := &acquisition{c: k.c, u: k.u, told: lost}
	up.call.Command = core.Command{Op: core.OpUpgrade, Target: k.call.Seq()}
	up.call.Tag = up
	up.start(now, k.u)
	g, _, err := up.await(ctx, false)
	return g, err
}

// change is a command about a hold.
type change struct {
	op
	k    *acquisition
	told func(error) // is told of the hold's end if it succeeds; nil: as before
}

// finished hands the hold over under the lock: its end, should it come next, is
// told to the right one.
func (ch *change) finished(g *SessionMux) {
	if ch.told != nil && ch.call.Outcome == session.Answered && ch.call.Result.Code == core.CodeOK {
		ch.k.told = ch.told
	}
	ch.op.finished(g)
}

// alter runs a command about the hold and returns the grant as it is then.
func (k *acquisition) alter(ctx context.Context, cmd core.Command, told func(error)) (driver.Grant, error) {
	if err := fits(&cmd); err != nil {
		return driver.Grant{}, err
	}
	now, err := k.c.begin(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	ch := &change{k: k, told: told}
	ch.call = session.Call{Command: cmd, Tag: ch}
	ch.start(now, k.u)
	if err := ch.wait(ctx, k.u); err != nil {
		return driver.Grant{}, err
	}
	if err := failure(k.c, k.u, &ch.call); err != nil {
		return driver.Grant{}, err
	}
	k.c.g.mu.Lock()
	defer k.c.g.mu.Unlock()
	return k.grant(), nil
}

package filehold

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/barrier"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/filelog"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// machineClaim is a claim in the machine: of a semaphore, an election, a latch or a
// barrier.
type machineClaim struct {
	u    *user
	seq  uint64
	name string
	told chan core.Push // has room for one: what became of the wait
}

// order is one command of a session with what its caller needs to know.
type order struct {
	cmd    core.Command
	result core.Result
	now    int64
	end    filelog.Position // of the log after it
}

// submit runs an order on the session u; then, if it is not nil, is called when
// it has its number and before anybody is told of it.
func (u *user) submit(ctx context.Context, o *order, then func()) error {
	e := u.e
	return e.locked(ctx, func() error {
		if err := e.free(&o.cmd); err != nil {
			return err
		}
		u.seq++
		o.cmd.Seq = u.seq
		f := core.Frame{Session: u.id, Mark: u.seq, Commands: []core.Command{o.cmd}}
		body := core.AppendFrame(nil, &f)
		if len(body) > core.MaxCommand {
			u.seq--
			return driver.Errorf("", o.cmd.Name, errTooLarge, "the request has %d bytes: at most %d are allowed", len(body), core.MaxCommand)
		}
		if then != nil {
			then()
		}
		if err := e.writeEntry(&core.Entry{Frames: [][]byte{body}}); err != nil {
			return err
		}
		o.take(&e.out.Replies[0])
		o.end = e.log.Here()
		_ = e.compact()
		return nil
	})
}

// take copies the result: the next entry overwrites it.
func (o *order) take(p *core.Reply) {
	o.result, o.now = p.Results[0], p.Now
	o.result.Holders = slices.Clone(o.result.Holders)
	o.result.Keys = slices.Clone(o.result.Keys)
}

// free refuses a command on a name that is a lock file's.
func (e *engine) free(cmd *core.Command) error {
	names := []string{cmd.Name}
	for i := range cmd.Wants {
		names = append(names, cmd.Wants[i].Name)
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		if _, ok := e.m.InspectPage("", name, core.Cursor{}, 1); ok {
			continue
		}
		file, err := e.gates.find(name)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(file.path); err == nil {
			return driver.Errorf("", name, driver.ErrConflict, "the name is that of a lock (%s); if it is not used any more, have it swept: holdfast sweep", file.path)
		}
	}
	return nil
}

// claim takes a want in the machine.
func (c *client) claim(ctx context.Context, u *user, w *driver.Want, r *driver.Request) (*machineClaim, uint64, error) {
	k := &machineClaim{u: u, name: w.Name, told: make(chan core.Push, 1)}
	o := &order{cmd: core.Command{Op: core.OpAcquire, Value: r.Value, Wants: []core.Want{{
		Name: w.Name, Kind: core.Kind(w.Kind), Mode: core.Mode(w.Mode), Weight: weight(w), Limit: w.Limit,
	}}}}
	if r.Try {
		o.cmd.Flags = core.Try
	}
	ask := func() error {
		return u.submit(ctx, o, func() {
			delete(u.waits, k.seq) // of what was asked before
			k.seq = u.seq
			u.waits[k.seq] = k
		})
	}
	if r.Try {
		ask = c.e.unblocked(ctx, o, ask)
	}
	token, err := uint64(0), ask()
	if err == nil {
		token, err = c.await(ctx, k, o, r)
	}
	if err != nil {
		k.forget()
		return nil, 0, err
	}
	if w.Kind != driver.Election {
		return k, token, nil
	}
	if err := c.e.flush(ctx, c.e.here()); err != nil { // its token orders leaders, and must not come again
		k.forget()
		c.abandon(k)
		return nil, 0, err
	}
	return k, token, nil
}

// unblocked is ask, which asks again if what refused it was held by a process that has ended.
func (e *engine) unblocked(ctx context.Context, o *order, ask func() error) func() error {
	return func() error {
		if err := ask(); err != nil || o.result.Code != core.CodeHeld {
			return err
		}
		before := e.log.End()
		if e.locked(ctx, e.endSessionsOfGone) != nil || e.log.End() == before {
			return nil
		}
		return ask()
	}
}

// await waits for the grant of a claim that was submitted.
func (c *client) await(ctx context.Context, k *machineClaim, o *order, r *driver.Request) (uint64, error) {
	switch o.result.Code {
	case core.CodeOK:
		return o.result.Token, nil
	case core.CodeQueued:
	default:
		return 0, refusalOf(o)
	}
	c.e.mu.Lock()
	err := c.e.sleep()
	c.e.mu.Unlock()
	if err != nil {
		c.abandon(k)
		return 0, err
	}
	defer c.e.awake()
	if r.Waiting != nil {
		r.Waiting(int(o.result.Number))
	}
	select {
	case p := <-k.told:
		if p.State == core.ClaimGranted {
			return p.Token, nil
		}
		return 0, convert.Refusal(p.Code, "")
	case <-ctx.Done():
		if r.Wants[0].Kind == driver.Barrier {
			return c.leave(ctx, k)
		}
		err = gaveup.Error(ctx, driver.NotDone)
	case <-k.u.session.Done():
		err = k.maybeCounted(r, ended(k.u.session))
	case <-c.gone:
		err = k.maybeCounted(r, errClosed)
	}
	c.abandon(k)
	return 0, err
}

// maybeCounted is err of a claim that has waited: of a party others may have counted it.
func (k *machineClaim) maybeCounted(r *driver.Request, err error) error {
	if r.Wants[0].Kind != driver.Barrier {
		return err
	}
	return barrier.MaybeCounted(err)
}

// leave takes a party back that others count, unless all had come before: that was told when the
// log was read up to here.
func (c *client) leave(ctx context.Context, k *machineClaim) (uint64, error) {
	leaving, cancel := barrier.Leaving(ctx)
	defer cancel()
	if err := k.cancel(leaving); err != nil {
		c.abandon(k)
		return 0, gaveup.Error(ctx, driver.Unknown)
	}
	select {
	case p := <-k.told:
		if p.State == core.ClaimGranted {
			return p.Token, nil
		}
	default:
	}
	return 0, gaveup.Error(ctx, driver.NotDone)
}

// abandon has a claim taken back in the background.
func (c *client) abandon(k *machineClaim) {
	c.e.ref()
	go c.takeBack("cancel", k.name, k.cancel)
}

// cancel takes a claim back that nobody waits for any more, granted or not.
func (k *machineClaim) cancel(ctx context.Context) error {
	return k.u.submit(ctx, &order{cmd: core.Command{Op: core.OpCancel, Target: k.seq}}, nil)
}

// tryAgain is the pause before something that the file system refused is done again.
const tryAgain = 50 * time.Millisecond

// takeBack takes something back until the file system lets it: what stays keeps its name
// from others as long as the process lives. A client that is closed has another minute
// for it. The caller has taken a reference to the engine.
func (c *client) takeBack(op, name string, do func(context.Context) error) {
	defer c.e.unref()
	for again := true; again; {
		err := c.takeBackSoon(do)
		if err == nil {
			return
		}
		c.fault(op, name, err)
		select {
		case <-c.gone:
			again = false
		default:
			again = c.e.ctl.err() == nil && (errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded))
		}
	}
}

// takeBackSoon tries for a minute.
func (c *client) takeBackSoon(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		err := unanswered(do(ctx))
		if err == nil || !errors.Is(err, driver.ErrUnavailable) || ctx.Err() != nil || c.e.ctl.err() != nil {
			return err
		}
		select {
		case <-time.After(tryAgain):
		case <-ctx.Done():
		}
	}
}

// forget ends the interest in pushes.
func (k *machineClaim) forget() {
	k.u.e.mu.Lock()
	defer k.u.e.mu.Unlock()
	delete(k.u.waits, k.seq)
}

// push tells a claim what became of it. e.mu is held.
func (u *user) push(p *core.Push) {
	k := u.waits[p.Seq]
	if k == nil {
		return
	}
	select {
	case k.told <- *p:
	default:
	}
}

// recall tells the claims of a session what became of them while nobody here
// read the log. e.mu is held.
func (u *user) recall() {
	rows, _ := u.e.m.Table(u.id)
	for seq := range u.waits {
		row := core.Push{Session: u.id, Seq: seq, State: core.ClaimGone, Code: core.CodeLost}
		if i := slices.IndexFunc(rows, func(r core.ClaimRow) bool { return r.Seq == seq }); i >= 0 {
			row = rows[i]
		}
		if row.State != core.ClaimWaiting {
			u.push(&row)
		}
	}
}

func weight(w *driver.Want) int64 {
	if w.Kind == driver.Semaphore {
		return max(w.Weight, 1)
	}
	return min(w.Weight, 1)
}

// Release gives the claim back.
func (k *machineClaim) release(ctx context.Context) error {
	o := &order{cmd: core.Command{Op: core.OpRelease, Target: k.seq}}
	if err := k.u.submit(ctx, o, nil); err != nil {
		return err
	}
	k.forget()
	switch o.result.Code {
	case core.CodeOK:
		return nil
	case core.CodeNotExist, core.CodeNoSession:
		return convert.Refusal(core.CodeLost, "")
	}
	return convert.Refusal(o.result.Code, o.result.Text)
}

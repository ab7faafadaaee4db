package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/until"
)

// Release gives the hold back. It takes no context, since a cancelled caller
// must not strand the next in line: it waits for the backend for at most 5
// seconds, and never longer than the hold could last; then it goes on in the
// background and tells [Hooks.Fault] if it fails. It says ErrLost if the hold
// had ended before; it never frees what another holds. A second call returns
// the first result; on a nil Hold it does nothing.
func (h *Hold) Release() error {
	if h == nil {
		return nil
	}
	h.cleanup.Stop()
	h.g.once.Do(h.g.release)
	runtime.KeepAlive(h)
	return h.g.result
}

// release lets go of the grip; the last one gives the claim back.
func (g *grip) release() {
	c := g.c
	c.look()
	if last, err := c.letGo(g); !last {
		g.result = err
		return
	}
	wait := c.patience()
	c.r.busy() // Shutdown waits for the answer, not only for the end
	defer c.r.done()
	var lost error
	if !c.end(ErrReleased) {
		lost = c.lostError()
	}
	c.tie.Untie()
	g.result = c.giveBack(wait, lost)
}

// letGo takes g off the claim. It tells whether g was the last, and if not,
// whether the claim was lost.
func (c *claim) letGo(g *grip) (last bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count--
	if c.count == 0 || c.over != nil {
		return c.count == 0, c.over
	}
	g.released = true
	g.stop(ErrReleased)
	return false, nil
}

// lostError is why the claim ended; nil if it was released or has moved on.
func (c *claim) lostError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over == ErrReleased {
		return nil
	}
	return c.over
}

// patience is how long a release may block: a hold that ends in a second needs
// no release after it.
func (c *claim) patience() time.Duration {
	d, ok := c.deadline()
	if !ok {
		return patience
	}
	return min(patience, max(driver.Until(d), 0))
}

// giveBack tells the backend. A lost hold is given back too: a revoked one is
// free for others as soon as its holder confirms. Only one that its MaxHold ended
// is not, if it has a Delay: that begins when the backend ends it, which is a
// little later, and would not if it were given back before.
func (c *claim) giveBack(wait time.Duration, lost error) error {
	if c.gone() || c.cfg.delay > 0 && errors.Is(lost, errMaxHold) {
		return lost
	}
	if lost != nil {
		wait = patience
	}
	ctx := until.In(wait)
	defer ctx.Stop()
	err := c.tell(ctx)
	if again(err) && c.r.spawn(c.insist) {
		err = &Error{Op: "release", Name: c.name, Kind: ErrUnavailable, Err: fmt.Errorf("not answered in %s; going on in the background: %w", wait, err)}
	}
	if lost != nil {
		return lost
	}
	return c.r.wrap("release", c.name, "", err)
}

// gone: the backend's side has gone on as another claim, or ends by itself with
// its session.
func (c *claim) gone() bool {
	c.mu.Lock()
	moved := c.moved
	c.mu.Unlock()
	return moved || c.dead()
}

// dead reports that the session is over.
func (c *claim) dead() bool {
	return c.grant.Session != nil && c.grant.Session.Err() != nil
}

// tell does the backend's part of a release once.
func (c *claim) tell(ctx context.Context) error {
	err := c.grant.Handle.Release(ctx)
	if !c.cfg.spec.Manual || again(err) {
		return err
	}
	return firstError(err, c.r.d.EndSession(ctx, c.grant.Session))
}

// again reports that nobody knows whether the backend heard it.
func again(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// insist tells the backend until it answers, the session is over or the Space
// is closed. Without it a lost answer would leave the name held as long as the
// session lives.
func (c *claim) insist() {
	ctx, cancel := context.WithCancel(c.r.life)
	defer cancel()
	if c.grant.Session != nil {
		var tie driver.Tie
		tie.To(c.grant.Session, func(error) { cancel() })
		defer tie.Untie()
	}
	err := retry(ctx, c.tell)
	if err != nil && !errors.Is(err, ErrLost) && !c.dead() {
		c.r.fault("release", c.name, c.r.wrap("release", c.name, "", err))
	}
}

// The pause between two tries, doubled from the first to the last.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// retry calls f until it is answered or ctx ends.
func retry(ctx context.Context, f func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := f(ctx)
		if !again(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
		}
	}
}

// spawn runs f beside the callers; false: the Space is closed. Close waits for
// it, so f has to end with root.life.
func (r *root) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase.Load() == closed {
		return false
	}
	r.work.Go(f)
	return true
}

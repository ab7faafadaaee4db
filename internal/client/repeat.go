package client

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/session"
)

// A call that its caller may make again, under the same id, is made once: what was
// sent is carried to its answer although its caller has left, and a caller that
// asks again waits for that answer, or is told it if it has come meanwhile. Only if
// the session ends first is it unknown, and the call is made again.

const (
	// maxRepeats is how many calls a Space may have with an answer that their callers
	// have not heard. Without a bound, callers that never ask again would fill the
	// memory; forgetting one that is asked for again would do it twice.
	maxRepeats = 1 << 16
	// forgetAfter is how long an answer is kept for a caller that does not ask
	// again, if there is no room for others: longer than any interval.
	forgetAfter = int64(25 * time.Hour)
	// sweepEvery is how often such answers are looked for, at most.
	sweepEvery = int64(time.Minute)
)

// repeat is a call that may be made again. Guarded by the mux's mutex.
type repeat struct {
	op
	u       *ClientSession
	ended   chan struct{} // closed when the call is done
	waiters int
	left    int64 // when the last waiter went
}

func (r *repeat) finished(*SessionMux) {
	r.done = true
	close(r.ended)
}

// askOnce is ask for a call that may be made again under the same id.
func (c *Client) askOnce(ctx context.Context, id [16]byte, cmd *core.Command) (core.Result, int64, error) {
	if err := fits(cmd); err != nil {
		return core.Result{}, 0, err
	}
	for {
		now, err := c.begin(ctx)
		if err != nil {
			return core.Result{}, 0, err
		}
		r := c.repeats[id]
		if r == nil {
			if r = c.firstTime(now, id, cmd); r == nil {
				c.g.Unlock()
				return core.Result{}, 0, driver.Errorf("", cmd.Name, driver.ErrExhausted,
					"%d calls of this Space have not been answered for sure, which is the most there can be: repeat those first", maxRepeats)
			}
		}
		r.waiters++
		c.g.Unlock()
		c.g.waits.wait(ctx, r.ended)
		if err := c.leave(ctx, id, r); err != nil {
			return core.Result{}, 0, err
		}
		if !c.anew(r.u, &r.call) && !c.longer(r.u, &r.call) {
			return r.call.Result, r.call.Now, failure(c, r.u, &r.call)
		}
	}
}

// firstTime makes a call; nil: too many have been left unanswered. The mux is
// locked.
func (c *Client) firstTime(now int64, id [16]byte, cmd *core.Command) *repeat {
	if len(c.repeats) >= maxRepeats && now-c.swept > sweepEvery {
		c.sweep(now)
	}
	if len(c.repeats) >= maxRepeats {
		return nil
	}
	r := &repeat{u: c.sharedUser(now, c.plain), ended: make(chan struct{})}
	r.call = session.Call{Command: *cmd, Tag: r}
	c.repeats[id] = r
	r.start(now, r.u)
	return r
}

// sweep drops answers that nobody has asked for again for long.
func (c *Client) sweep(now int64) {
	c.swept = now
	for id, r := range c.repeats {
		if r.waiters == 0 && r.done && now-r.left > forgetAfter {
			delete(c.repeats, id)
		}
	}
}

// leave is the end of a wait: an error says that there is no answer yet. A call that
// was never sent is taken back then, unless others wait for it.
func (c *Client) leave(ctx context.Context, id [16]byte, r *repeat) error {
	now := c.g.Lock()
	defer c.g.Unlock()
	r.waiters--
	r.left = now
	if r.done {
		delete(c.repeats, id) // its caller knows, and will not ask again
		return nil
	}
	if r.waiters > 0 || !r.call.Unsent() {
		return c.gaveUp(ctx, driver.Unknown)
	}
	delete(c.repeats, id)
	outcome, actions := r.u.s.Abandon(now, &r.call)
	r.u.take(actions)
	r.u.touch()
	c.g.Pump(now)
	return c.gaveUp(ctx, known(outcome))
}

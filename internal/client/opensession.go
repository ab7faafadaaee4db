package client

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
)

// OpenSession opens a session of its own.
func (c *Client) OpenSession(ctx context.Context, spec driver.Spec) (*driver.Session, error) {
	now, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	u := c.newUser(now, spec)
	c.g.Pump(now)
	if err := u.until(ctx, func() bool { return u.s.Opened() || !u.s.Alive() }); err != nil {
		c.end(u)
		return nil, err
	}
	if u.refused != nil {
		return nil, u.refused
	}
	if err := u.session.Err(); err != nil {
		return nil, &driver.Error{Kind: driver.ErrLost, Outcome: driver.NotDone, Err: err}
	}
	return u.session, nil
}

// until unlocks the store and waits until ok, which looks at the session's
// life.
func (u *ClientSession) until(ctx context.Context, ok func() bool) error {
	for !ok() {
		next := u.next()
		u.c.g.Unlock()
		select {
		case <-next:
		case <-ctx.Done():
			return u.c.gaveUp(ctx, driver.Unknown)
		}
		u.c.g.mu.Lock()
	}
	u.c.g.Unlock()
	return nil
}

// end gives a session up that nobody waits for.
func (c *Client) end(u *ClientSession) {
	now := c.g.Lock()
	defer c.g.Unlock()
	u.ending = driver.ErrReleased
	u.take(u.s.End(now))
	u.touch()
	c.g.Pump(now)
}

// KeepSession renews s by hand.
func (c *Client) KeepSession(ctx context.Context, s *driver.Session, ttl time.Duration) error {
	now, err := c.begin(ctx)
	if err != nil {
		return err
	}
	u := c.ownUser(now, s)
	if u == nil {
		c.g.Unlock()
		return ended(s)
	}
	o := newOp(&core.Command{TTL: int64(ttl)})
	u.take(u.s.Keep(now, &o.call))
	u.touch()
	c.g.Pump(now)
	if err := o.wait(ctx, u); err != nil {
		return err
	}
	err = failure(c, u, &o.call)
	recycle(o)
	if err == nil && s.Err() != nil {
		return ended(s) // by its own clock the answer came too late
	}
	return err
}

// EndSession ends s with all that hangs on it; for the holders first.
func (c *Client) EndSession(ctx context.Context, s *driver.Session) error {
	now, err := c.begin(ctx)
	if err != nil {
		return err
	}
	u := c.ownUser(now, s)
	if u == nil {
		c.g.Unlock()
		return ended(s)
	}
	u.ending = driver.ErrReleased
	u.take(u.s.End(now))
	u.touch()
	c.g.Pump(now)
	return u.until(ctx, func() bool { return u.over })
}

package memhold

import (
	"context"
	"io/fs"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
)

// OpenLease opens a session of its own.
func (c *client) OpenLease(ctx context.Context, spec driver.Spec) (*driver.Lease, error) {
	now, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	u := c.newUser(now, spec)
	c.st.pump(now)
	if err := u.until(ctx, func() bool { return u.s.Opened() || !u.s.Alive() }); err != nil {
		c.end(u)
		return nil, err
	}
	if err := u.lease.Err(); err != nil {
		return nil, &driver.Error{Kind: driver.ErrLost, Outcome: driver.NotDone, Err: err}
	}
	return u.lease, nil
}

// until unlocks the store and waits until ok, which looks at the session's
// life.
func (u *user) until(ctx context.Context, ok func() bool) error {
	for !ok() {
		next := u.next()
		u.c.st.unlock()
		select {
		case <-next:
		case <-ctx.Done():
			return stopped(ctx, driver.Unknown)
		}
		u.c.st.mu.Lock()
	}
	u.c.st.unlock()
	return nil
}

// end gives a session up that nobody waits for.
func (c *client) end(u *user) {
	now := c.st.lock()
	defer c.st.unlock()
	u.ending = driver.ErrReleased
	u.take(u.s.End(now))
	u.touch()
	c.st.pump(now)
}

// KeepLease renews l by hand.
func (c *client) KeepLease(ctx context.Context, l *driver.Lease, ttl time.Duration) error {
	now, err := c.begin(ctx)
	if err != nil {
		return err
	}
	u := c.ownUser(now, l)
	if u == nil {
		c.st.unlock()
		return ended(l)
	}
	o := newOp(&core.Command{TTL: int64(ttl)})
	u.take(u.s.Keep(now, &o.call))
	u.touch()
	c.st.pump(now)
	if err := o.wait(ctx, u); err != nil {
		return err
	}
	err = failure(c, u, &o.call)
	recycle(o)
	return err
}

// EndLease ends l with all that hangs on it; for the holders first.
func (c *client) EndLease(ctx context.Context, l *driver.Lease) error {
	now, err := c.begin(ctx)
	if err != nil {
		return err
	}
	u := c.ownUser(now, l)
	if u == nil {
		c.st.unlock()
		return ended(l)
	}
	u.ending = driver.ErrReleased
	u.take(u.s.End(now))
	u.touch()
	c.st.pump(now)
	return u.until(ctx, func() bool { return u.over })
}

// LeaseInfo tells what the memory knows of a session, whoever's it is.
func (c *client) LeaseInfo(ctx context.Context, id driver.LeaseID) (driver.LeaseInfo, error) {
	now, err := c.begin(ctx)
	if err != nil {
		return driver.LeaseInfo{}, err
	}
	defer c.st.unlock()
	s, ok := c.st.m.Session(core.SessionID(id))
	if !ok {
		return driver.LeaseInfo{}, driver.Errorf("", id.String(), fs.ErrNotExist, "no such session: it has ended, or is of another memory")
	}
	return driver.LeaseInfo{
		ID: id, TTL: time.Duration(s.TTL), ExpiresIn: convert.Left(now, s.Deadline), Owner: s.Owner, Meta: s.Meta,
		Names: namesOf(s.Claims), Waits: namesOf(s.Waits), Keys: slices.Clone(s.Keys),
	}, nil
}

// namesOf are the names of claims, each once, in order.
func namesOf(claims []core.ClaimInfo) []string {
	var names []string
	for i := range claims {
		names = append(names, claims[i].Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

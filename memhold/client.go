package memhold

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
)

// client is one Space's driver. Guarded by the store's mutex, but for what New
// sets.
type client struct {
	driver.Base
	st     *store
	fault  func(op, name string, err error)
	shared map[driver.Spec]*user
	users  map[*user]struct{}
	stalls int
	awake  chan struct{} // closed when the stalls are over; nil: there are none
	closed bool
	// gone is closed by Close.
	gone chan struct{}
}

var _ driver.Driver = (*client)(nil)

func newClient(st *store) *client {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.clients++
	return &client{st: st, shared: map[driver.Spec]*user{}, users: map[*user]struct{}{}, gone: make(chan struct{})}
}

// features are all but "durable" and "many-machines".
var features = []driver.Feature{
	driver.FeatureFencing, driver.FeatureFIFO, driver.FeatureLostFirst, driver.FeatureShared, driver.FeatureWeighted,
	driver.FeatureUpgrade, driver.FeatureResize, driver.FeatureForce, driver.FeatureMaxHold, driver.FeatureMinHold,
	driver.FeatureDelay, driver.FeatureAll, driver.FeatureAtomicAll, driver.FeatureCounter, driver.FeatureSequence,
	driver.FeatureKV, driver.FeatureTxn, driver.FeatureWatch, driver.FeatureHistory, driver.FeatureElection,
	driver.FeatureLatch, driver.FeatureSession,
}

// Info says what a memory can do.
func (c *client) Info() driver.Info {
	i := driver.Info{Scheme: "mem", Features: map[driver.Feature]bool{}, MinTTL: time.Second, MaxTTL: 24 * time.Hour, MaxName: 512}
	for _, f := range features {
		i.Features[f] = true
	}
	return i
}

// OnFault sets what is told about background failures.
func (c *client) OnFault(f func(op, name string, err error)) { c.fault = f }

// faulty reports a background failure, outside the lock.
func (c *client) faulty(op, name string, err error) {
	if c.fault != nil {
		c.st.later = append(c.st.later, task{f: func() { c.fault(op, name, err) }})
	}
}

// begin starts every call: it takes the lock, unless the call cannot be made.
func (c *client) begin(ctx context.Context) (now int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, stopped(ctx, driver.NotDone)
	}
	now = c.st.lock()
	if c.closed {
		c.st.unlock()
		return 0, errClosed
	}
	return now, nil
}

// errClosed answers calls on a closed client.
var errClosed error = &driver.Error{Kind: driver.ErrClosed, Outcome: driver.NotDone}

// stopped is the error of a call whose context ended.
func stopped(ctx context.Context, o driver.Outcome) error {
	e := &driver.Error{Kind: ctx.Err(), Outcome: o}
	if cause := context.Cause(ctx); cause != e.Kind {
		e.Err = cause
	}
	return e
}

// plain is the session of calls that hang on none: it makes them happen exactly
// once.
var plain = driver.Spec{TTL: 30 * time.Second}

// sharedUser is the living session of a spec, made if need be.
func (c *client) sharedUser(now int64, spec driver.Spec) *user {
	u := c.shared[spec]
	if u != nil {
		u.take(u.s.Tick(now))
	}
	if u == nil || !u.s.Alive() {
		u = c.newUser(now, spec)
		c.shared[spec] = u
	}
	return u
}

// retire takes a dead session out of use.
func (c *client) retire(u *user) {
	if c.shared[u.lease.Spec] == u {
		delete(c.shared, u.lease.Spec)
	}
}

// ownUser is the session of a lease that this client opened; nil: it is over.
func (c *client) ownUser(now int64, l *driver.Lease) *user {
	u := c.st.users[core.SessionID(l.ID)]
	if u == nil || u.c != c {
		return nil
	}
	u.take(u.s.Tick(now))
	if !u.s.Alive() {
		return nil
	}
	return u
}

func (c *client) stalled() bool { return c.stalls > 0 }

// Stall cuts the client's sessions off from the memory, as if the process had
// been stopped: nothing is renewed, no command arrives, no loss or grant is
// told. Deadlines pass on both sides. resume ends it; calling it again does
// nothing.
func (c *client) Stall() (resume func()) {
	now := c.st.lock()
	defer c.st.unlock()
	if c.stalls++; c.stalls == 1 {
		c.awake = make(chan struct{})
		for u := range c.users {
			u.take(u.s.Disconnect(now))
			u.touch()
		}
		c.st.pump(now)
	}
	resumed := false
	return func() {
		now := c.st.lock()
		defer c.st.unlock()
		if !resumed {
			resumed = true
			c.resume(now)
		}
	}
}

func (c *client) resume(now int64) {
	if c.closed {
		return
	}
	if c.stalls--; c.stalls == 0 {
		c.connect(now)
	}
}

// connect ends the stalls.
func (c *client) connect(now int64) {
	close(c.awake)
	c.awake = nil
	for u := range c.users {
		u.take(u.s.Connect(now))
		u.touch()
	}
	c.st.pump(now)
}

// Ping answers at once, unless the client is stalled.
func (c *client) Ping(ctx context.Context) error {
	if _, err := c.begin(ctx); err != nil {
		return err
	}
	awake := c.awake
	c.st.unlock()
	if awake == nil {
		return nil
	}
	select {
	case <-awake:
		return nil
	case <-ctx.Done():
		return stopped(ctx, driver.NotDone)
	}
}

// Close ends every session of the client, and with them all that it holds. A
// stalled client is cut off no more: it would leave its sessions behind.
func (c *client) Close(context.Context) error {
	c.shut()
	c.st.leave()
	return nil
}

func (c *client) shut() {
	now := c.st.lock()
	defer c.st.unlock()
	c.closed = true
	if c.stalled() {
		c.stalls = 0
		c.connect(now)
	}
	for u := range c.users {
		u.ending = driver.ErrClosed
		u.take(u.s.End(now))
		u.touch()
	}
	c.st.pump(now)
	close(c.gone)
}

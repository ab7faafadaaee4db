package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// Client is one Space's driver. Guarded by the mux's mutex, but for what New
// sets.
type Client struct {
	driver.Base
	g      *SessionMux
	info   driver.Info
	fault  func(op, name string, err error)
	shared map[driver.Spec]*ClientSession
	// plain is of the session behind calls outside any session: it makes them happen exactly
	// once.
	plain driver.Spec
	users map[*ClientSession]struct{}
	// repeats are the calls that may be made again, by id, until their callers
	// know the answer; swept is when old ones were last looked for.
	repeats map[[16]byte]*repeat
	swept   int64
	stalls  int
	awake   chan struct{} // closed when the stalls are over; nil: there are none
	closed  bool
	// life ends with Close, or with the engine.
	life   context.Context
	cancel context.CancelFunc
	// empty is closed once a closed client has no session left.
	empty chan struct{}
}

var _ driver.Driver = (*Client)(nil)

// New returns a client of the mux that tells info about itself.
func (g *SessionMux) New(info driver.Info) *Client {
	c := &Client{g: g, info: info, plain: driver.Spec{TTL: max(plainTTL, info.MinTTL)}, shared: map[driver.Spec]*ClientSession{}, users: map[*ClientSession]struct{}{}, repeats: map[[16]byte]*repeat{}, empty: make(chan struct{})}
	c.life, c.cancel = context.WithCancel(context.Background())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clients[c] = struct{}{}
	c.closed = g.err != nil
	return c
}

// Full is what a backend with a machine of its own can do; scheme is that of
// its URLs, more are what it can do beyond a memory, minTTL its shortest
// session.
func Full(scheme string, minTTL time.Duration, more ...driver.Feature) driver.Info {
	i := driver.Info{Scheme: scheme, Features: map[driver.Feature]bool{}, MinTTL: minTTL, MaxTTL: 24 * time.Hour, MaxName: 512}
	for _, f := range append(more, features...) {
		i.Features[f] = true
	}
	return i
}

// features are all but "durable" and "many-machines".
var features = []driver.Feature{
	driver.FeatureFencing, driver.FeatureFIFO, driver.FeatureLostFirst, driver.FeatureShared, driver.FeatureWeighted,
	driver.FeatureUpgrade, driver.FeatureResize, driver.FeatureForce, driver.FeatureMaxHold, driver.FeatureMinHold,
	driver.FeatureDelay, driver.FeatureAll, driver.FeatureAtomicAll, driver.FeatureCounter, driver.FeatureSequence,
	driver.FeatureKV, driver.FeatureTxn, driver.FeatureWatch, driver.FeatureHistory, driver.FeatureElection,
	driver.FeatureLatch, driver.FeatureSession, driver.FeatureSweep, driver.FeatureReclaim, driver.FeatureLimit,
}

// Info says what the backend can do.
func (c *Client) Info() driver.Info { return c.info }

// OnFault sets what is told about background failures.
func (c *Client) OnFault(f func(op, name string, err error)) { c.fault = f }

// faulty reports a background failure, outside the lock.
func (c *Client) faulty(op, name string, err error) {
	if c.fault != nil {
		c.g.later = append(c.g.later, task{f: func() { c.fault(op, name, err) }})
	}
}

// begin starts every call: it takes the lock, unless the call cannot be made.
func (c *Client) begin(ctx context.Context) (now int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, gaveup.Error(ctx, driver.NotDone)
	}
	now = c.g.Lock()
	if c.closed {
		defer c.g.Unlock()
		return 0, c.closedError(driver.NotDone)
	}
	return now, nil
}

// closedError answers calls on a closed client; the mux is locked.
func (c *Client) closedError(o driver.Outcome) error {
	return &driver.Error{Kind: driver.ErrClosed, Outcome: o, Err: c.g.err}
}

// open reports why a call that needs no session cannot be made.
func (c *Client) open(ctx context.Context) error {
	if _, err := c.begin(ctx); err != nil {
		return err
	}
	c.g.Unlock()
	return nil
}

// gaveUp is the error of a call that was begun when its context ended. If it waited for a stream
// that there was not, it says why: the end of the context alone would not tell a wrong address from
// a slow answer.
func (c *Client) gaveUp(ctx context.Context, o driver.Outcome) error {
	e := gaveup.Error(ctx, o)
	if c.g.opts.NoStream == nil {
		return e
	}
	switch why := c.g.opts.NoStream(); {
	case why == nil:
	case e.Err == nil:
		e.Err = errors.New(why.Error()) // its kind is not that of the call
	default:
		e.Err = fmt.Errorf("%w: %v", e.Err, why)
	}
	return e
}

// plainTTL is the TTL of a plain session, unless the other side wants longer ones.
const plainTTL = 30 * time.Second

// sharedUser is the living session of a spec, made if need be.
func (c *Client) sharedUser(now int64, spec driver.Spec) *ClientSession {
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

// retire takes an ended session out of use.
func (c *Client) retire(u *ClientSession) {
	if c.shared[u.session.Spec] == u {
		delete(c.shared, u.session.Spec)
	}
}

// ownUser is the user of a session that this client opened; nil: it is over.
func (c *Client) ownUser(now int64, l *driver.Session) *ClientSession {
	u := c.g.users[core.SessionID(l.ID)]
	if u == nil || u.c != c {
		return nil
	}
	u.take(u.s.Tick(now))
	if !u.s.Alive() {
		return nil
	}
	return u
}

func (c *Client) stalled() bool { return c.stalls > 0 }

// Stall cuts the client's sessions off, as if the process had been stopped:
// nothing is renewed, no command arrives, no loss or grant is told. Deadlines
// pass on both sides. resume ends it; calling it again does nothing.
func (c *Client) Stall() (resume func()) {
	now := c.g.Lock()
	defer c.g.Unlock()
	if c.stalls++; c.stalls == 1 {
		c.awake = make(chan struct{})
		for u := range c.users {
			u.take(u.s.Disconnect(now))
			u.touch()
		}
		c.g.Pump(now)
	}
	resumed := false
	return func() {
		now := c.g.Lock()
		defer c.g.Unlock()
		if !resumed {
			resumed = true
			c.resume(now)
		}
	}
}

func (c *Client) resume(now int64) {
	if c.closed {
		return
	}
	if c.stalls--; c.stalls == 0 {
		c.connect(now)
	}
}

// connect ends the stalls.
func (c *Client) connect(now int64) {
	close(c.awake)
	c.awake = nil
	for u := range c.users {
		if !c.g.down {
			u.take(u.s.Connect(now))
		}
		u.touch()
	}
	c.g.Pump(now)
}

// Ping asks for a sign of life; a stalled client waits for its end first.
func (c *Client) Ping(ctx context.Context) error {
	if _, err := c.begin(ctx); err != nil {
		return err
	}
	awake := c.awake
	c.g.Unlock()
	if awake == nil {
		return c.g.engine.Ping(ctx)
	}
	select {
	case <-awake:
		return c.g.engine.Ping(ctx)
	case <-ctx.Done():
		return gaveup.Error(ctx, driver.NotDone)
	}
}

// Close ends every session of the client, and with them all that it holds, and
// waits until the other side knows, or ctx ends. A stalled client is cut off no
// more: it would leave its sessions behind.
func (c *Client) Close(ctx context.Context) error {
	c.shut()
	select {
	case <-c.empty:
	case <-ctx.Done():
	}
	c.g.mu.Lock()
	delete(c.g.clients, c)
	c.g.mu.Unlock()
	c.g.engine.Left()
	return nil
}

func (c *Client) shut() {
	now := c.g.Lock()
	defer c.g.Unlock()
	if c.stalled() {
		c.stalls = 0
		c.connect(now)
	}
	c.stop(now)
	c.g.Pump(now)
	c.emptied()
}

// stop ends the client's sessions; the mux is locked.
func (c *Client) stop(now int64) {
	c.closed = true
	c.cancel()
	for u := range c.users {
		u.ending = driver.ErrClosed
		u.take(u.s.End(now))
		u.touch()
	}
}

// emptied tells Close that the last session is over.
func (c *Client) emptied() {
	if !c.closed || len(c.users) > 0 {
		return
	}
	select {
	case <-c.empty:
	default:
		close(c.empty)
	}
}

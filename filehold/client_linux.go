package filehold

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// client is one Space's driver.
type client struct {
	driver.Base
	e     *engine
	fault func(op, name string, err error) // changed with e.mu held: other clients' calls tell it too
	gone  chan struct{}                    // closed by Close

	mu     sync.Mutex
	shared map[driver.Spec]*user
	users  map[*user]struct{}
	unsure map[[16]byte]*order // have taken effect, and may not be on disk
	calls  int
	idle   chan struct{} // closed when the last call of a closed client ends
	closed bool
}

var _ driver.Driver = (*client)(nil)

func newClient(dir string, perm fs.FileMode, s seams) (driver.Driver, error) {
	e, err := openEngine(dir, perm, s)
	if err != nil {
		return nil, err
	}
	c := &client{
		e: e, fault: func(string, string, error) {}, gone: make(chan struct{}), idle: make(chan struct{}),
		shared: map[driver.Spec]*user{}, users: map[*user]struct{}{}, unsure: map[[16]byte]*order{},
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clients[c] = struct{}{}
	return c, nil
}

// features are what a directory can do.
var features = []driver.Feature{
	driver.FeatureFencing, driver.FeatureLostFirst, driver.FeatureShared, driver.FeatureWeighted, driver.FeatureResize,
	driver.FeatureAll, driver.FeatureCounter, driver.FeatureSequence, driver.FeatureKV, driver.FeatureTxn, driver.FeatureWatch,
	driver.FeatureElection, driver.FeatureLatch, driver.FeatureSession, driver.FeatureDurable,
	driver.FeatureSweep, driver.FeatureLimit,
}

// Info says what a directory can do.
func (c *client) Info() driver.Info {
	i := driver.Info{Scheme: "file", Features: map[driver.Feature]bool{}, MaxName: maxName}
	for _, f := range features {
		i.Features[f] = true
	}
	return i
}

// OnFault sets what is told about background failures.
func (c *client) OnFault(f func(op, name string, err error)) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.fault = f
}

// failed tells every client of a failure in the background.
func (e *engine) failed(op string, err error) {
	e.mu.Lock()
	var tell []func(op, name string, err error)
	for c := range e.clients {
		tell = append(tell, c.fault)
	}
	e.mu.Unlock()
	for _, f := range tell {
		f(op, e.dir, err)
	}
}

// endIfGone ends what is held, waited for and watched in a directory that is not there any more: there is
// nobody left to grant it, holds keep nobody out, and what others do is done elsewhere. nil: it is there.
func (e *engine) endIfGone() error {
	err := e.check()
	if !errors.Is(err, driver.ErrClosed) {
		return nil
	}
	e.mu.Lock()
	e.endWatches(err)
	all := slices.Collect(maps.Keys(e.clients))
	e.mu.Unlock()
	for _, c := range all {
		c.leaveBehind(err)
	}
	return err
}

// leaveBehind ends the client's sessions in a directory that is not there any more, for their holders first. That
// they have ended is said in it, as long as it exists: programs may find it in another place, or it may come back.
func (c *client) leaveBehind(why error) {
	for _, u := range c.endHere(why) {
		if c.e.ctl.err() == nil && u.leaving.CompareAndSwap(false, true) && c.e.refUsed() {
			go c.takeBack("end a session", u.session.Spec.Owner, u.sayEnd)
		}
	}
}

// begin starts every call but Acquire; end ends it. In a directory that is not there any more
// nothing begins: nobody would see it.
func (c *client) begin(ctx context.Context) (context.Context, error) {
	ctx, err := c.beginAnywhere(ctx)
	if err == nil {
		if err = c.e.check(); err != nil {
			c.end()
		}
	}
	return ctx, err
}

// beginAnywhere is begin for a call that looks itself whether the directory is there. The context
// that it returns knows of Close.
func (c *client) beginAnywhere(ctx context.Context) (context.Context, error) {
	if err := ctx.Err(); err != nil {
		return ctx, gaveup.Error(ctx, driver.NotDone)
	}
	return call{ctx, c.gone}, c.count()
}

// call is the context of a call: a wait for the store's lock, which a stopped process may
// have, ends with the context or when the client is closed.
type call struct {
	context.Context
	closed <-chan struct{}
}

type closedKey struct{}

// Value also answers with what tells that the client is closed.
func (c call) Value(key any) any {
	if key == (closedKey{}) {
		return c.closed
	}
	return c.Context.Value(key)
}

// closed tells when the client of a call is closed; of what is no call: never.
func closed(ctx context.Context) <-chan struct{} {
	is, _ := ctx.Value(closedKey{}).(<-chan struct{})
	return is
}

// count is begin for what has to be done although its context has ended.
func (c *client) count() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	c.calls++
	return nil
}

func (c *client) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls--; c.calls == 0 && c.closed {
		close(c.idle)
	}
}

// errClosed answers calls on a closed client.
var errClosed error = &driver.Error{Kind: driver.ErrClosed, Outcome: driver.NotDone}

// Ping asks whether the directory is still there and readable.
func (c *client) Ping(ctx context.Context) error {
	ctx, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer c.end()
	return c.e.look(ctx, func() {})
}

// Close ends every session that this client opened, and gives up its files when
// no other client of the process uses the directory. What it holds is free here at once;
// if the others cannot be told before ctx ends, that goes on in the background.
func (c *client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	close(c.gone)
	if c.calls == 0 {
		close(c.idle)
	}
	c.mu.Unlock()
	var err error
	select {
	case <-c.idle:
		err = c.endAll(ctx)
	case <-ctx.Done():
		err = gaveup.Error(ctx, driver.Unknown)
	}
	if err != nil {
		c.endHere(driver.ErrClosed)
		c.e.ref()
		go func() {
			<-c.idle
			c.takeBack("close", c.e.dir, c.endAll)
		}()
	}
	c.e.mu.Lock()
	delete(c.e.clients, c)
	c.e.mu.Unlock()
	if left := c.e.leave(); err == nil {
		err = left
	}
	return err
}

// endHere ends the client's sessions for their holders, and gives back their lock files.
func (c *client) endHere(why error) (list []*user) {
	c.mu.Lock()
	for u := range c.users {
		list = append(list, u)
	}
	c.mu.Unlock()
	for _, u := range list {
		u.session.End(why)
		u.dropLocks()
	}
	return list
}

// endAll ends the client's sessions in one step.
func (c *client) endAll(ctx context.Context) error {
	list := c.endHere(driver.ErrClosed)
	return c.e.locked(ctx, func() error { return c.e.endUsers(list) })
}

package holdfast_test

import (
	"context"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

// toy is a whole backend in a few lines: one lock, one queue a name, real
// sessions, and places where a test can make things fail. It is written apart
// from the real in-memory backend so that the API is tested by itself.
type toy struct {
	driver.Base
	info driver.Info

	// Set by tests, through set once the toy is in use; called without the lock.
	onAcquire func(ctx context.Context, r *driver.Request) error // before a wish is taken
	onRelease func(ctx context.Context, name string) error       // before a release
	onCount   func(r *driver.CountRequest) error                 // after a count was done
	onReserve func(ctx context.Context, r *driver.ReserveRequest) error
	onChange  func(c driver.Change) // before a change
	// instead is the answer to a change that is not made, afterChange to one that was.
	instead, afterChange func(c driver.Change) error
	onEnd                func() // before a session is ended
	onClose              func()
	answer               int // how many keys or claims one answer tells; 0: all

	mu         sync.Mutex
	rev        uint64
	names      map[string]*toyName
	sessions   map[driver.SessionID]*toySession
	shared     map[driver.Spec]*toySession
	counts     map[string]uint64
	counted    map[[16]byte]uint64
	next       map[string]uint64
	latches    map[string]int64
	keys       map[string]driver.KV
	keySession map[string]driver.SessionID
	log        []driver.Event
	more       chan struct{} // closed and replaced at each event
	stalled    bool
	fault      func(op, name string, err error)
	requests   []driver.Request
	calls      map[string]int
	closed     bool
}

type toyName struct {
	kind           driver.ResourceKind
	limit          int64
	holders, queue []*toyClaim
}

type toyClaim struct {
	t       *toy
	wants   []driver.Want
	session *toySession
	token   uint64
	value   []byte
	owner   string
	lost    func(error)
	ready   chan struct{} // closed when granted
	upgrade bool
	revoked bool
}

type toySession struct {
	*driver.Session
	ttl   time.Duration
	end   *time.Timer // the engine's own, later than the client's
	renew *time.Timer
}

var everything = []driver.Feature{
	driver.FeatureFencing, driver.FeatureFIFO, driver.FeatureShared, driver.FeatureWeighted, driver.FeatureUpgrade,
	driver.FeatureResize, driver.FeatureForce, driver.FeatureMaxHold, driver.FeatureMinHold, driver.FeatureDelay,
	driver.FeatureAll, driver.FeatureAtomicAll, driver.FeatureCounter, driver.FeatureSequence, driver.FeatureKV,
	driver.FeatureTxn, driver.FeatureWatch, driver.FeatureHistory, driver.FeatureElection, driver.FeatureLatch,
	driver.FeatureSession,
}

func newToy(features ...driver.Feature) *toy {
	if features == nil {
		features = everything
	}
	t := &toy{
		info:  driver.Info{Scheme: "toy", Features: map[driver.Feature]bool{}, MinTTL: time.Second, MaxTTL: 24 * time.Hour},
		names: map[string]*toyName{}, sessions: map[driver.SessionID]*toySession{}, shared: map[driver.Spec]*toySession{},
		counts: map[string]uint64{}, counted: map[[16]byte]uint64{}, next: map[string]uint64{}, latches: map[string]int64{},
		keys: map[string]driver.KV{}, keySession: map[string]driver.SessionID{}, more: make(chan struct{}), calls: map[string]int{},
	}
	for _, f := range features {
		t.info.Features[f] = true
	}
	return t
}

// open makes a Space on a new toy, closed with the test.
func open(tb testing.TB, opts ...holdfast.Option) (*holdfast.Space, *toy) {
	tb.Helper()
	t := newToy()
	return openOn(tb, t, opts...), t
}

func openOn(tb testing.TB, d driver.Driver, opts ...holdfast.Option) *holdfast.Space {
	tb.Helper()
	s, err := holdfast.New(d, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func (t *toy) Info() driver.Info                          { return t.info }
func (t *toy) OnFault(f func(op, name string, err error)) { t.fault = f }
func (t *toy) Ping(context.Context) error                 { t.call("ping"); return nil }
func (t *toy) call(what string)                           { t.mu.Lock(); defer t.mu.Unlock(); t.calls[what]++ }
func (t *toy) called(what string) int                     { t.mu.Lock(); defer t.mu.Unlock(); return t.calls[what] }
func (t *toy) Stall() func()                              { t.stall(true); return func() { t.stall(false) } }
func (t *toy) stall(on bool)                              { t.mu.Lock(); defer t.mu.Unlock(); t.stalled = on }
func (t *toy) lastRequest() driver.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requests[len(t.requests)-1]
}
func (t *toy) waiters(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.name(name).queue)
}
func (t *toy) holders(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.name(name).holders)
}

func (t *toy) set(f func()) { t.mu.Lock(); defer t.mu.Unlock(); f() }

// hook reads one of the functions that tests set.
func hook[F any](t *toy, f *F) F {
	t.mu.Lock()
	defer t.mu.Unlock()
	return *f
}

func (t *toy) name(name string) *toyName {
	if t.names[name] == nil {
		t.names[name] = &toyName{}
	}
	return t.names[name]
}

// emit notes a change; the lock is held.
func (t *toy) emit(ev driver.Event) {
	t.rev++
	ev.Revision = driver.Revision(t.rev)
	t.log = append(t.log, ev)
	close(t.more)
	t.more = make(chan struct{})
}

func (t *toy) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if f := hook(t, &t.onAcquire); f != nil {
		if err := f(ctx, r); err != nil {
			return driver.Grant{}, err
		}
	}
	t.mu.Lock()
	t.requests = append(t.requests, *r)
	c, err := t.claim(r)
	if err != nil {
		t.mu.Unlock()
		return driver.Grant{}, err
	}
	t.settle()
	granted := c.token != 0
	if !granted && r.Try {
		err = t.held(c)
		t.drop(c)
	}
	position := slices.Index(t.name(r.Wants[0].Name).queue, c) + 1
	t.mu.Unlock()
	if err != nil {
		return driver.Grant{}, err
	}
	if !granted && r.Waiting != nil {
		r.Waiting(position)
	}
	return t.wait(ctx, c, r.MaxHold)
}

func (t *toy) claim(r *driver.Request) (*toyClaim, error) {
	if t.closed {
		return nil, driver.ErrClosed
	}
	c := &toyClaim{t: t, wants: slices.Clone(r.Wants), value: r.Value, owner: r.Spec.Owner, lost: r.Lost, ready: make(chan struct{})}
	if r.Session != nil {
		c.session = t.sessions[r.Session.ID]
	} else {
		c.session = t.share(r.Spec)
	}
	if c.session == nil {
		return nil, driver.ErrLost
	}
	for _, w := range r.Wants {
		n := t.name(w.Name)
		if len(n.holders)+len(n.queue) == 0 && n.limit == 0 {
			n.kind = w.Kind
		}
		if n.kind != w.Kind {
			return nil, driver.ErrConflict
		}
		if n.limit == 0 {
			n.limit = w.Limit
		}
		if w.Limit != 0 && w.Limit != n.limit {
			return nil, driver.Errorf("", "", driver.ErrConflict, "the limit is %d", n.limit)
		}
		n.queue = append(n.queue, c)
	}
	return c, nil
}

func (t *toy) held(c *toyClaim) error {
	e := &driver.Error{Kind: driver.ErrHeld, Outcome: driver.NotDone}
	n := t.name(c.wants[0].Name)
	for _, h := range n.holders {
		e.Holders = append(e.Holders, h.describe(c.wants[0].Name))
	}
	e.Waiting = len(n.queue) - 1
	return e
}

func (c *toyClaim) describe(name string) driver.Claim {
	i := slices.IndexFunc(c.wants, func(w driver.Want) bool { return w.Name == name })
	w := c.wants[i]
	return driver.Claim{Name: name, Kind: w.Kind, Mode: w.Mode, Weight: w.Weight, Token: driver.Token(c.token), Owner: c.owner,
		Value: c.value, Session: c.session.ID, Modified: driver.Revision(c.token), Held: time.Second}
}

// settle grants what can be granted, the first in line first; lock held.
func (t *toy) settle() {
	for again := true; again; {
		again = false
		for _, name := range slices.Sorted(maps.Keys(t.names)) {
			n := t.names[name]
			if len(n.queue) > 0 && t.fits(n.queue[0]) {
				t.grant(n.queue[0])
				again = true
			}
		}
	}
}

func (t *toy) fits(c *toyClaim) bool {
	for _, w := range c.wants {
		n := t.names[w.Name]
		if n.queue[0] != c || !n.room(w, t.latches[w.Name]) {
			return false
		}
	}
	return true
}

func (n *toyName) room(w driver.Want, left int64) bool {
	switch w.Kind {
	case driver.Latch:
		return left == 0
	case driver.Barrier:
		return int64(len(n.queue)) >= n.limit || len(n.holders) > 0
	case driver.Semaphore:
		used := w.Weight
		for _, h := range n.holders {
			used += h.wants[0].Weight
		}
		return used <= n.limit
	}
	if w.Mode == driver.Exclusive {
		return len(n.holders) == 0
	}
	return !slices.ContainsFunc(n.holders, func(h *toyClaim) bool { return h.wants[0].Mode == driver.Exclusive })
}

func (t *toy) grant(c *toyClaim) {
	for _, w := range c.wants {
		n := t.names[w.Name]
		n.queue = slices.DeleteFunc(n.queue, func(o *toyClaim) bool { return o == c })
		n.holders = append(n.holders, c)
		t.emit(driver.Event{Kind: toyKind(w.Kind), Verb: "acquired", Name: w.Name, Owner: c.owner, Value: c.value})
	}
	c.token = t.rev
	close(c.ready)
}

func toyKind(k driver.ResourceKind) string {
	switch k {
	case driver.Mutex:
		return "lock"
	case driver.RWMutex:
		return "rwlock"
	}
	return k.String()
}

// drop forgets a claim wherever it is; lock held. False: it was not there.
func (t *toy) drop(c *toyClaim) bool {
	is := func(o *toyClaim) bool { return o == c }
	found := false
	for _, w := range c.wants {
		n := t.name(w.Name)
		if slices.ContainsFunc(n.holders, is) {
			found = true
			n.holders = slices.DeleteFunc(n.holders, is)
			t.emit(driver.Event{Kind: toyKind(w.Kind), Verb: "released", Name: w.Name, Token: driver.Token(c.token)})
		}
		n.queue = slices.DeleteFunc(n.queue, is)
		if len(n.holders)+len(n.queue) == 0 && w.Kind != driver.Semaphore && w.Kind != driver.Barrier {
			delete(t.names, w.Name)
		}
	}
	t.settle()
	return found
}

func (t *toy) wait(ctx context.Context, c *toyClaim, maxHold time.Duration) (driver.Grant, error) {
	select {
	case <-c.ready:
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		t.drop(c)
		return driver.Grant{}, ctx.Err()
	case <-c.session.Done():
		return driver.Grant{}, c.session.Err()
	}
	g := driver.Grant{Token: driver.Token(c.token), Session: c.session.Session, Handle: c}
	if maxHold > 0 {
		g.Deadline = driver.Now().Add(maxHold)
	}
	return g, nil
}

func (c *toyClaim) Release(ctx context.Context) error {
	if f := hook(c.t, &c.t.onRelease); f != nil {
		if err := f(ctx, c.wants[0].Name); err != nil {
			return err
		}
	}
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.t.calls["release"]++
	if !c.t.drop(c) {
		return driver.ErrLost
	}
	return nil
}

func (c *toyClaim) Change(ctx context.Context, ch driver.Change) (driver.Grant, error) {
	if f := hook(c.t, &c.t.onChange); f != nil {
		f(ch)
	}
	if f := hook(c.t, &c.t.instead); f != nil {
		return driver.Grant{}, f(ch)
	}
	g, err := c.change(ctx, ch)
	if f := hook(c.t, &c.t.afterChange); f != nil && err == nil {
		return driver.Grant{}, f(ch)
	}
	return g, err
}

func (c *toyClaim) change(ctx context.Context, ch driver.Change) (driver.Grant, error) {
	switch {
	case ch.Upgrade:
		return c.up(ctx, ch.Lost)
	case ch.Downgrade:
		return c.down(ch.Lost), nil
	case ch.Extend > 0:
		return driver.Grant{Deadline: driver.Now().Add(ch.Extend)}, nil
	case ch.Proclaim != nil:
		return driver.Grant{}, c.proclaim(*ch.Proclaim)
	}
	return driver.Grant{}, c.handOver(ch.HandOver)
}

func (c *toyClaim) up(ctx context.Context, lost func(error)) (driver.Grant, error) {
	t := c.t
	t.mu.Lock()
	n := t.name(c.wants[0].Name)
	if slices.ContainsFunc(n.holders, func(o *toyClaim) bool { return o.upgrade }) {
		t.mu.Unlock()
		return driver.Grant{}, driver.Errorf("", "", driver.ErrDeadlock, "another reader upgrades; release and start over")
	}
	c.upgrade = true
	for len(n.holders) > 1 {
		more := t.more
		t.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
		}
		t.mu.Lock()
		if ctx.Err() != nil {
			c.upgrade = false
			t.mu.Unlock()
			return driver.Grant{}, ctx.Err()
		}
	}
	defer t.mu.Unlock()
	return c.replace(lost), nil
}

// down changes the claim itself: a Release of its handle gives it back whatever its holder knows.
func (c *toyClaim) down(lost func(error)) driver.Grant {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.wants[0].Mode, c.lost = driver.Shared, lost
	c.t.emit(driver.Event{Kind: "rwlock", Verb: "changed", Name: c.wants[0].Name})
	c.t.settle()
	return driver.Grant{Token: driver.Token(c.token), Session: c.session.Session, Handle: c}
}

// replace puts another claim in c's place; lock held.
func (c *toyClaim) replace(lost func(error)) driver.Grant {
	next := *c
	next.wants = slices.Clone(c.wants)
	next.wants[0].Mode, next.lost, next.upgrade = driver.Exclusive, lost, false
	n := c.t.name(c.wants[0].Name)
	c.t.emit(driver.Event{Kind: "rwlock", Verb: "changed", Name: c.wants[0].Name})
	next.token = c.t.rev
	for i := range n.holders {
		if n.holders[i] == c {
			n.holders[i] = &next
		}
	}
	c.t.settle()
	return driver.Grant{Token: driver.Token(next.token), Session: next.session.Session, Handle: &next}
}

func (c *toyClaim) proclaim(v []byte) error {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.value = v
	c.t.emit(driver.Event{Kind: "election", Verb: "proclaimed", Name: c.wants[0].Name, Value: v})
	return nil
}

func (c *toyClaim) handOver(owner string) error {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	n := c.t.name(c.wants[0].Name)
	i := slices.IndexFunc(n.queue, func(o *toyClaim) bool { return o.owner == owner })
	if i < 0 {
		return driver.Errorf("", "", fs.ErrNotExist, "no candidate with the owner %q waits", owner)
	}
	n.queue[0], n.queue[i] = n.queue[i], n.queue[0]
	c.t.drop(c)
	return nil
}

func (t *toy) Close(context.Context) error {
	if f := hook(t, &t.onClose); f != nil {
		f()
	}
	t.mu.Lock()
	sessions := slices.Collect(maps.Values(t.sessions))
	t.closed = true
	t.calls["close"]++
	t.mu.Unlock()
	for _, l := range sessions {
		l.stop()
		l.End(driver.ErrClosed)
		t.expire(l)
	}
	return nil
}

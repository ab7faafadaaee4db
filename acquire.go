package holdfast

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// lockable is what everything that can be held has in common. It is safe for
// concurrent use since nobody changes it.
type lockable struct {
	s    *Space
	cfg  *config
	name string // with prefix
	err  error  // what is wrong with name or options
}

func (s *Space) lockable(name string, opts []HoldOption) lockable {
	l := lockable{s: s, cfg: s.cfg.with(opts, s.r), name: s.prefix + name}
	l.err = firstError(checkName(l.name, s.r.maxName()), l.cfg.err)
	return l
}

func (r *spaceState) maxName() int { return r.info.MaxName }

// request is a driver.Request with room for its one want, and the name of the call
// in errors.
type request struct {
	driver.Request
	one [1]driver.Want
	op  string
}

// acquire takes the want; need is the feature that it takes.
func (l *lockable) acquire(ctx context.Context, want driver.Want, need Feature, try bool) (*Hold, error) {
	w := &request{op: "acquire"}
	w.Try = try
	return l.take(ctx, want, need, w)
}

// take puts the want into w and asks for it.
func (l *lockable) take(ctx context.Context, want driver.Want, need Feature, w *request) (*Hold, error) {
	if l.err != nil {
		return nil, wrap(w.op, l.name, l.err)
	}
	want.Name = l.name
	w.one[0] = want
	w.Wants = w.one[:]
	return l.s.obtain(ctx, l.name, l.cfg, need, w)
}

// obtain is the way of every request: look, join or ask, and begin the hold.
func (s *Space) obtain(ctx context.Context, name string, cfg *config, need Feature, w *request) (*Hold, error) {
	if err := s.r.readyToHold(ctx, need, cfg); err != nil {
		return nil, wrap(w.op, name, err)
	}
	if cfg.reentrant {
		if h, err := s.join(ctx, w.Wants); h != nil || err != nil {
			return h, wrap(w.op, name, err)
		}
	}
	if err := s.r.notDraining(); err != nil { // to join is no new claim
		return nil, wrap(w.op, name, err)
	}
	c := &holdState{r: s.r, cfg: cfg, name: name, first: holdRef{prefix: s.prefix}}
	if s.r.traced {
		return s.askTraced(ctx, c, need, w)
	}
	h, err := s.ask(ctx, c, w)
	return h, s.r.wrap(ctx, w.op, name, need, err)
}

// askTraced is ask for hooks that look at it. If one of them panics or ends the goroutine, nobody has the hold.
func (s *Space) askTraced(ctx context.Context, c *holdState, need Feature, w *request) (h *Hold, err error) {
	var t traces
	err = wrap(w.op, c.name, errLeft) // unless it is answered
	defer func() {
		orElse(func() { t.tell(h, err) }, func() { _ = h.Release() })
	}()
	ctx = t.begin(ctx, s.r.hooks, c.name)
	h, err = s.ask(ctx, c, w)
	err = s.r.wrap(ctx, w.op, c.name, need, err)
	return h, err
}

// notDraining refuses what is new while Shutdown waits.
func (r *spaceState) notDraining() error {
	if r.phase.Load() != open {
		return errClosed
	}
	return nil
}

// readyToHold is ready for calls that make holds.
func (r *spaceState) readyToHold(ctx context.Context, need Feature, cfg *config) error {
	if err := r.ready(ctx, need); err != nil {
		return err
	}
	if cfg.under != nil {
		return cfg.under.over()
	}
	return nil
}

// ask sends the request for c.
func (s *Space) ask(ctx context.Context, c *holdState, w *request) (*Hold, error) {
	lost := c.lost
	w.ID, w.Spec, w.Lost = newID(), c.cfg.spec, lost
	w.MaxHold, w.MinHold, w.Delay = c.cfg.maxHold, c.cfg.minHold, c.cfg.delay
	c.wants = w.Wants
	if c.cfg.under != nil {
		w.Session, w.Spec = c.cfg.under.session, c.cfg.under.session.Spec
	}
	if c.cfg.spec.Manual {
		return s.askByHand(ctx, c, w)
	}
	g, err := c.request(ctx, w)
	if err != nil {
		return nil, err
	}
	return c.begin(g, lost)
}

// begin makes the hold of a grant. It fails if the hold ended on its way here:
// a caller that gets a Hold had it.
func (c *holdState) begin(g driver.Grant, lost func(error)) (*Hold, error) {
	c.fill(g)
	return c.start(lost)
}

// fill makes the claim that of a grant, before anybody knows it.
func (c *holdState) fill(g driver.Grant) {
	c.since = time.Now()
	c.first.c, c.first.token = c, g.Token
	c.mu.Lock()
	c.grant, c.count = g, 1
	c.mu.Unlock()
}

// start is the rest of begin.
func (c *holdState) start(lost func(error)) (*Hold, error) {
	err := c.admit(lost)
	if err == nil {
		err = c.set()
	}
	if err != nil {
		c.refuse(err)
		return nil, err
	}
	h := &Hold{g: &c.first}
	watchOver(h)
	return h, nil
}

// set makes the claim a hold and sets its timer, unless it has ended.
func (c *holdState) set() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return c.over
	}
	c.begun = true
	if !c.grant.Deadline.IsZero() {
		c.wake()
	}
	return nil
}

// admit ties the claim to everything that can end it.
func (c *holdState) admit(lost func(error)) error {
	if c.grant.Token >= maxToken {
		return driver.Errorf("", "", nil, "the backend gave the token %d, which is not below 2⁵³", c.grant.Token)
	}
	if !c.r.add(c) {
		return errClosed
	}
	if c.grant.Session != nil {
		c.tie.To(c.grant.Session, lost)
	}
	c.look()
	return nil
}

// refuse gives back what was granted and is not wanted.
func (c *holdState) refuse(err error) {
	c.end(err)
	c.r.remove(c)
	c.tie.Untie()
	if !c.sessionOver() {
		c.r.spawn(c.insist)
	}
}

// newID makes a retry of a request recognisable.
func newID() (id [16]byte) {
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	return id
}

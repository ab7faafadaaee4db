package holdfast

import (
	"context"
	"runtime"

	"github.com/holdfast-io/holdfast/driver"
)

// RWMutex is a name that many readers or one writer hold, each through its side:
// m.Reader().Acquire(ctx), m.Writer().Do(ctx, f). Waiters are served in order of
// arrival where the backend can: a waiting writer holds later readers back. Safe
// for concurrent use.
type RWMutex struct{ reader, writer Mutex }

// RWMutex names a reader-writer mutex; it does no I/O.
func (s *Space) RWMutex(name string, opts ...HoldOption) *RWMutex {
	l := s.lockable(name, opts)
	return &RWMutex{reader: Mutex{l, aReader, driver.FeatureShared}, writer: Mutex{l, aWriter, driver.FeatureShared}}
}

var (
	aReader = driver.Want{Kind: driver.RWMutex, Mode: driver.Shared}
	aWriter = driver.Want{Kind: driver.RWMutex, Mode: driver.Exclusive}
)

// Name is the whole name, with the prefixes of [Space.Sub].
func (m *RWMutex) Name() string { return m.reader.l.name }

// Reader is the side that any number of readers hold together.
func (m *RWMutex) Reader() *Mutex { return &m.reader }

// Writer is the side that one writer holds, alone.
func (m *RWMutex) Writer() *Mutex { return &m.writer }

// Upgrade turns a reader's hold into the writer's, waiting for the other
// readers, ahead of the queue. The result is a new Hold with a new
// token, and read is over. If it fails, read stays as it is; a second upgrader
// of the same name gets ErrDeadlock at once, since each would wait for the
// other.
func (m *RWMutex) Upgrade(ctx context.Context, read *Hold) (*Hold, error) {
	return m.change(ctx, "upgrade", read, aReader, aWriter)
}

// Downgrade turns the writer's hold into a reader's with the same token, and
// lets waiting readers in. The result is a new Hold, and write is over. If it fails and
// the error is [NotDone], write stays as it is. After any other error, as when ctx ends
// before the answer, readers may be in: write is over at once, with ErrLost, and what is
// left of it is given back in the background.
func (m *RWMutex) Downgrade(ctx context.Context, write *Hold) (*Hold, error) {
	return m.change(ctx, "downgrade", write, aWriter, aReader)
}

func (m *RWMutex) change(ctx context.Context, op string, h *Hold, from, to driver.Want) (*Hold, error) {
	defer runtime.KeepAlive(h) // a caller that only waits for the change has nothing else of it
	err := firstError(m.writer.l.err, m.writer.l.s.r.ready(ctx, driver.FeatureUpgrade), m.checkChange(h, from))
	if err != nil {
		return nil, wrap(op, m.writer.l.name, err)
	}
	to.Name = m.writer.l.name
	changed, err := h.g.c.become(ctx, to, m.writer.l.s.prefix)
	return changed, m.writer.l.s.r.wrap(ctx, op, m.writer.l.name, driver.FeatureUpgrade, err)
}

// checkChange refuses holds that are not what is to be changed.
func (m *RWMutex) checkChange(h *Hold, from driver.Want) error {
	if h == nil {
		return invalid("the hold is nil")
	}
	if err := h.ended(); err != nil {
		return err
	}
	c := h.g.c
	if c.r != m.writer.l.s.r || len(c.wants) != 1 || c.r.canonical(c.wants[0].Name) != c.r.canonical(m.writer.l.name) {
		return invalid("the hold is of %q", c.name)
	}
	if w := c.wants[0]; w.Kind != from.Kind || w.Mode != from.Mode {
		return invalid("the hold is not a %s", modeName(from.Mode))
	}
	return nil
}

func modeName(m driver.Mode) string {
	if m == driver.Shared {
		return "reader's"
	}
	return "writer's"
}

// become changes the claim in the backend and makes the hold of what it is
// then.
func (c *holdState) become(ctx context.Context, to driver.Want, prefix string) (*Hold, error) {
	if !c.beginChange() {
		return nil, driver.Errorf("", "", ErrConflict, "several Holds have joined it; release the others first")
	}
	defer c.endChange()
	next := &holdState{r: c.r, cfg: c.cfg, name: c.name, first: holdRef{prefix: prefix}, wants: []driver.Want{to}}
	lost := next.lost
	change := driver.Change{Upgrade: to.Mode == driver.Exclusive, Downgrade: to.Mode == driver.Shared, Lost: lost}
	g, err := c.change(ctx, change)
	if err != nil {
		return nil, err
	}
	return c.moveOn(next, g, lost)
}

// beginChange lets no other Hold join from now on; false: some have.
func (c *holdState) beginChange() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count > 1 {
		return false
	}
	c.changing++
	return true
}

func (c *holdState) endChange() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changing--
}

// moveOn ends c in favour of next. If c ended meanwhile nobody wants next: a
// Release of c has to free the name, whichever of both came first.
func (c *holdState) moveOn(next *holdState, g driver.Grant, lost func(error)) (*Hold, error) {
	c.mu.Lock()
	moved := c.over == nil
	c.moved = c.moved || moved
	c.mu.Unlock()
	next.fill(g)
	if moved {
		c.r.follow(next)
		orElse(func() { moved = c.end(ErrReleased) }, next.callOff)
	}
	if !moved {
		next.refuse(c.lostOrReleased())
		return nil, c.lostOrReleased()
	}
	c.tie.Untie()
	return next.start(lost)
}

func (c *holdState) lostOrReleased() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why(c.over)
}

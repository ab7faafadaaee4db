package holdfast

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// Hold is a turn in the caller's hand, until Release or until it is lost. A
// Hold that becomes unreachable without Release is released and reported to
// [Hooks.Fault] soon after; a context made by Bind keeps it reachable.
type Hold struct {
	g       *grip
	cleanup runtime.Cleanup
}

// Name is the whole name, with the prefixes of [Space.Sub]; of an AcquireAll
// the names, separated by commas.
func (h *Hold) Name() string { return h.g.c.name }

// Token is the fencing token: pass it along with every effect, and let the
// other side refuse older ones (package fence).
func (h *Hold) Token() Token { return Token(h.g.c.grant.Token) }

// TokenOf is the token for one name of an AcquireAll, named as the Space that
// was asked names it; 0 if it is not among them.
func (h *Hold) TokenOf(name string) Token {
	c := h.g.c
	for i, w := range c.wants {
		if w.Name != c.prefix+name {
			continue
		}
		if c.grant.Tokens != nil {
			return Token(c.grant.Tokens[i])
		}
		return Token(c.grant.Token)
	}
	return 0
}

// Done is closed when the hold is over, however it ended.
func (h *Hold) Done() <-chan struct{} {
	c := h.g.c
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.g.done == nil {
		h.g.done = make(chan struct{})
		if h.g.state() != nil {
			close(h.g.done)
		}
	}
	return h.g.done
}

// Err is nil exactly as long as the hold lasts; it compares the clock.
// Afterwards it is ErrReleased or ErrLost. What is checked here can change
// before the next instruction: only the token protects an effect.
func (h *Hold) Err() error {
	defer runtime.KeepAlive(h) // who asks has it
	return h.g.err()
}

// Deadline is when the hold ends unless it is renewed before, by the library or
// by hand; false: it has none.
func (h *Hold) Deadline() (time.Time, bool) { return h.g.c.deadline() }

// Extend moves the end that [MaxHold] set to d from now, only forward: a sign
// of progress.
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	c := h.g.c
	err := firstError(h.Err(), checkDuration("Extend", d), c.checkExtend(), c.r.ready(ctx, ""))
	if err != nil {
		return wrap("extend", c.name, err)
	}
	g, err := c.grant.Handle.Change(ctx, driver.Change{Extend: d})
	if err != nil {
		return c.r.wrap("extend", c.name, FeatureMaxHold, err)
	}
	c.extend(g.Deadline)
	return h.Err()
}

func (c *claim) checkExtend() error {
	if c.cfg.maxHold == 0 {
		return invalid("it has no MaxHold to extend; it lasts as long as its session")
	}
	return nil
}

// Renew keeps a hold made with [ManualRenew] for ttl from now (0: the TTL it
// has). The end only moves forward: a shorter ttl changes nothing.
func (h *Hold) Renew(ctx context.Context, ttl time.Duration) error {
	defer runtime.KeepAlive(h)
	c := h.g.c
	err := firstError(h.Err(), c.checkRenew(ttl), c.r.ready(ctx, ""))
	if err != nil {
		return wrap("renew", c.name, err)
	}
	return c.r.wrap("renew", c.name, FeatureSession, c.r.d.KeepSession(ctx, c.grant.Session, ttl))
}

func (c *claim) checkRenew(ttl time.Duration) error {
	if !c.cfg.spec.Manual {
		return invalid("the library renews it; make it with ManualRenew to do so by hand")
	}
	if ttl == 0 {
		return nil
	}
	return checkTTL(ttl, &c.r.info)
}

// LogValue makes a Hold readable in a slog record.
func (h *Hold) LogValue() slog.Value {
	if h == nil {
		return slog.StringValue("none")
	}
	return slog.GroupValue(slog.String("name", h.Name()), slog.Uint64("token", uint64(h.Token())))
}

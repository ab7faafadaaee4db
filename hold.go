package holdfast

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/until"
)

// Hold is a turn in the caller's hand, until Release or until it is lost. A
// Hold that becomes unreachable without Release is released and reported to
// [Hooks.Fault] soon after; a context made by Bind keeps it reachable.
type Hold struct {
	g       *holdRef
	cleanup runtime.Cleanup
}

// Name is the whole name, with the prefixes of [Space.Sub]; of an AcquireAll
// the names, separated by commas.
func (h *Hold) Name() string { return h.g.c.name }

// Token is the fencing token: pass it along with every effect, and let the
// other side refuse older ones (package fence).
func (h *Hold) Token() Token { return h.g.token }

// TokenOf is the token for one name of an AcquireAll, named as the Space that
// was asked names it; 0 if it is not among them.
func (h *Hold) TokenOf(name string) Token {
	c := h.g.c
	if i := c.index(c.r.canonical(h.g.prefix + name)); i >= 0 {
		return c.token(i)
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

// Err is nil as long as the hold lasts, as far as this program can know; it
// compares the clock. Afterwards it is ErrReleased or ErrLost. With the feature
// "lost-first" it is not nil before anybody else is granted the name; without
// it, and on a machine with clocks that did not count a pause (a virtual machine
// that was stopped, saved or migrated), it may be late. What is checked here
// can change before the next instruction: only the token protects an effect.
func (h *Hold) Err() error {
	defer runtime.KeepAlive(h) // h stays reachable during the call
	return h.g.err()
}

// ended is Err for calls that need the hold.
func (h *Hold) ended() error { return unsent(h.Err()) }

// unsent is why a hold is over, for a call that needs it, which puts its operation to it: nothing was sent.
func unsent(err error) error {
	e, ok := err.(*Error)
	if !ok {
		return err
	}
	over := *e
	over.Op, over.Outcome = "", driver.NotDone
	return &over
}

// Deadline is when the hold ends unless it is renewed before, by the library or
// by hand; false: it has none.
func (h *Hold) Deadline() (time.Time, bool) { return h.g.c.deadline() }

// Extend moves the end that [MaxHold] set to d from now, only forward: a sign
// of progress. If it fails, the hold ends when it would have.
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	c := h.g.c
	err := firstError(h.ended(), checkDuration("Extend", d), c.checkExtend(), c.r.ready(ctx, ""))
	if err != nil {
		return wrap("extend", c.name, err)
	}
	g, err := c.change(ctx, driver.Change{Extend: d})
	if err != nil {
		return c.r.wrap(ctx, "extend", c.name, driver.FeatureMaxHold, err)
	}
	c.extend(g.Deadline)
	return h.Err()
}

func (c *holdState) checkExtend() error {
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
	err := firstError(h.ended(), c.checkRenew(ttl), c.r.ready(ctx, ""))
	if err != nil {
		return wrap("renew", c.name, err)
	}
	return c.r.wrap(ctx, "renew", c.name, driver.FeatureSession, c.r.d.KeepSession(ctx, c.grant.Session, ttl))
}

func (c *holdState) checkRenew(ttl time.Duration) error {
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

// bound is the inner half of a context made by Bind: what the claim ends. It
// knows no Hold, so that a context which nobody has any more keeps no Hold
// alive.
type bound struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// boundContext is the outer half, in the caller's hand. Holding it holds h.
type boundContext struct {
	context.Context
	h *Hold
}

// Err compares the clock before it says that the context goes on.
func (b *boundContext) Err() error {
	if b.Context.Err() == nil {
		_ = b.h.Err()
	}
	return b.Context.Err()
}

// Value also answers which hold of a resource the context carries.
func (b *boundContext) Value(key any) any {
	if k, ok := key.(joinKey); ok && b.h.g.c.covers(k) {
		return b.h
	}
	return b.Context.Value(key)
}

// Bind returns a context that ends with parent or with the hold, whichever is
// first; context.Cause tells which. It starts no goroutine. What it needs is
// kept until one of both ends, so bind to a parent that ends.
func (h *Hold) Bind(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	if over := h.g.bind(&bound{ctx, cancel}); over != nil {
		cancel(over)
	}
	return &boundContext{ctx, h}
}

// bind keeps b until the hold ends; if it has, it returns why.
func (g *holdRef) bind(b *bound) error {
	g.c.look()
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	if over := g.state(); over != nil {
		return over
	}
	if len(g.bound) == cap(g.bound) {
		g.prune()
	}
	g.bound = append(g.bound, b)
	return nil
}

// prune drops contexts after their parents have ended, before the list would grow: a
// leader that binds every request for days keeps only the open ones.
func (g *holdRef) prune() {
	kept := g.bound[:0]
	for _, b := range g.bound {
		if b.ctx.Err() == nil {
			kept = append(kept, b)
		}
	}
	clear(g.bound[len(kept):])
	g.bound = slices.Grow(kept, len(kept)+1)
}

// Release gives the hold back. It takes no context, since a cancelled caller
// must not keep the next waiter from its grant: it waits for the backend for at most 5
// seconds, and never longer than the hold could last; then it goes on in the
// background and tells [Hooks.Fault] if it fails. It says ErrLost if the hold
// had ended before; it never frees what another holds. A second call returns
// the first result; on a nil Hold it does nothing.
func (h *Hold) Release() error {
	if h == nil {
		return nil
	}
	h.cleanup.Stop()
	h.g.once.Do(h.g.release)
	runtime.KeepAlive(h)
	return h.g.result
}

// release lets go of the holdRef; the last one gives the claim back.
func (g *holdRef) release() {
	c := g.c
	c.look()
	if last, err := c.letGo(g); !last {
		g.result = err
		return
	}
	wait := c.patience()
	c.r.busy() // Shutdown waits for the answer, not only for the end
	defer c.r.done()
	var lost error
	defer func() { // also if a hook panics
		c.tie.Untie()
		g.result = c.giveBack(wait, lost)
	}()
	if !c.end(ErrReleased) {
		lost = c.lostError()
	}
}

// letGo takes g off the claim. It tells whether g was the last, and if not,
// whether the claim was lost.
func (c *holdState) letGo(g *holdRef) (last bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count--
	if c.count == 0 || c.over != nil {
		return c.count == 0, c.loss()
	}
	g.released = true
	g.stop(ErrReleased)
	g.unlink()
	return false, nil
}

// unlink forgets a Hold that joined: a claim that lasts for days must not keep all that
// have come and gone. c.mu is held.
func (g *holdRef) unlink() {
	if g.prev == nil {
		return
	}
	g.prev.next = g.next
	if g.next != nil {
		g.next.prev = g.prev
	}
}

// lostError is why the claim ended; nil if it was released or has moved on.
func (c *holdState) lostError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loss()
}

// loss is lostError when c.mu is held.
func (c *holdState) loss() error {
	if c.over == ErrReleased {
		return nil
	}
	return c.over
}

// patience is how long a release may block: a hold that ends in a second needs
// no release after it.
func (c *holdState) patience() time.Duration {
	d, ok := c.deadline()
	if !ok {
		return patience
	}
	return min(patience, max(driver.Until(d), 0))
}

// giveBack tells the backend. A lost hold is given back too: a revoked one is
// free for others as soon as its holder confirms. Only one that its MaxHold ended
// is not, if it has a Delay: that begins when the backend ends it, which is a
// little later, and would not if it were given back before.
func (c *holdState) giveBack(wait time.Duration, lost error) error {
	if c.gone() || c.cfg.delay > 0 && errors.Is(lost, errMaxHold) {
		return lost
	}
	if lost != nil {
		wait = patience
	}
	ctx, began := until.In(wait), time.Now()
	defer ctx.Stop()
	err := c.tell(ctx)
	if again(err) && c.r.spawn(c.insist) {
		err = &Error{Op: "release", Name: c.name, Kind: ErrUnavailable, Err: unanswered(ctx, time.Since(began), err)}
	}
	if lost != nil {
		return lost
	}
	return c.r.wrap(ctx, "release", c.name, "", err)
}

// unanswered tells a backend that was silent from one that could not be asked, and
// after which time.
func unanswered(ctx context.Context, took time.Duration, err error) error {
	what := "failed after"
	if ctx.Err() != nil {
		what = "not answered in"
	}
	return fmt.Errorf("%s %s; going on in the background: %w", what, took.Round(time.Millisecond), err)
}

// gone: the backend's side has gone on as another claim, or ends by itself with
// its session.
func (c *holdState) gone() bool {
	c.mu.Lock()
	moved := c.moved
	c.mu.Unlock()
	return moved || c.sessionOver()
}

// sessionOver reports that the session is over, and with it all that is held. Of
// several names others may live on, where each has a liveness of its own: they have
// to be given back.
func (c *holdState) sessionOver() bool {
	return len(c.wants) == 1 && c.grant.Session != nil && c.grant.Session.Err() != nil
}

// tell does the backend's part of a release once.
func (c *holdState) tell(ctx context.Context) error {
	err := c.grant.Handle.Release(ctx)
	if !c.cfg.spec.Manual || again(err) {
		return err
	}
	return firstError(err, c.r.d.EndSession(ctx, c.grant.Session))
}

// holdState is a granted request. Sessions, drivers and the Space refer to it; the
// caller's Hold refers to a holdRef of it and is referred to by nobody here, so
// that its becoming unreachable can be noticed.
type holdState struct {
	r     *spaceState
	cfg   *config
	name  string // the wanted names, for people
	wants []driver.Want
	since time.Time

	next, prev *holdState // in the ring of spaceState; under spaceState.mu
	tie        driver.Tie

	mu    sync.Mutex
	grant driver.Grant
	timer *time.Timer // for grant.Deadline
	over  error       // why it ended; nil: it lasts; ErrReleased: by its holder
	begun bool        // somebody has a Hold of it
	moved bool        // upgraded, downgraded or handed over: the backend's side has gone on, or is given back
	count int         // holdRefs that were not released
	// changing are the upgrades and downgrades under way: what joins now would be over with
	// the claim when they are done, and nobody would have released it.
	changing int
	first    holdRef
}

// holdRef is one Hold's share of a claim: the first one, or one that joined.
// Guarded by its claim's mutex.
type holdRef struct {
	c        *holdState
	prefix   string // of the Space that was asked
	token    Token
	next     *holdRef
	prev     *holdRef // nil: it is the first
	released bool
	done     chan struct{}
	bound    []*bound
	once     sync.Once
	result   error // of Release
}

// lost ends the claim because of cause. Drivers and sessions call it under their
// locks, so the hooks are told beside.
func (c *holdState) lost(cause error) { c.lose(cause) }

// lose is lost; false: it had ended.
func (c *holdState) lose(cause error) bool {
	over := &Error{Op: "hold", Name: c.name, Kind: ErrLost, Err: reason(cause)}
	c.mu.Lock()
	first := c.finish(over)
	if first && c.begun {
		c.r.endings.add(c.r, ending{c, time.Since(c.since), over})
	}
	c.mu.Unlock()
	if first { // after its ending is noted: Close waits for those
		c.r.remove(c)
	}
	return first
}

// reason drops from cause what the hold's own error says already.
func reason(cause error) error {
	e, ok := cause.(*Error)
	if ok && e.Kind == ErrLost && e.Err != nil {
		return e.Err
	}
	if cause == ErrLost {
		return nil
	}
	return cause
}

// end ends the claim once and tells the hooks; false: it had ended.
func (c *holdState) end(over error) bool {
	c.mu.Lock()
	first, begun := c.finish(over), c.begun
	c.mu.Unlock()
	if !first {
		return false
	}
	c.r.remove(c)
	if begun {
		c.r.ended(&ending{c, time.Since(c.since), over})
	}
	return true
}

// finish ends the claim once; false: it had ended. A caller that learns here or by
// looking that it is over finds everything bound to it ended too: that is done
// under the lock, so that no Release can tell the backend before. c.mu is held.
func (c *holdState) finish(over error) bool {
	if c.over != nil {
		return false
	}
	c.over = over
	c.stop()
	return true
}

// stop ends all that the claim keeps going; c.mu is held.
func (c *holdState) stop() {
	if c.timer != nil {
		c.timer.Stop()
	}
	for g := &c.first; g != nil; g = g.next {
		g.stop(c.over)
	}
}

// why spells an end out. A release is kept short until somebody asks, since
// most holds are released and nobody does.
func (c *holdState) why(over error) error {
	if over == ErrReleased {
		return &Error{Op: "hold", Name: c.name, Kind: ErrReleased}
	}
	return over
}

// stop closes the holdRef's Done and ends what is bound to it; its claim is
// locked.
func (g *holdRef) stop(over error) {
	if g.done != nil {
		closeOnce(g.done)
	}
	for _, b := range g.bound {
		b.cancel(g.c.why(over))
	}
	g.bound = nil
}

func closeOnce(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}

var errMaxHold = errors.New("its MaxHold has passed")

// look compares the clock, so that a late timer lets nobody act.
func (c *holdState) look() {
	c.mu.Lock()
	over, session, deadline := c.over, c.grant.Session, c.grant.Deadline
	c.mu.Unlock()
	if over != nil {
		return
	}
	if session != nil {
		if err := session.Err(); err != nil {
			c.lost(err)
			return
		}
	}
	if !deadline.IsZero() && driver.Until(deadline) <= 0 {
		c.lost(errMaxHold)
	}
}

// err is the holdRef's Err.
func (g *holdRef) err() error {
	g.c.look()
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	return g.state()
}

// state is err without the clock; its claim is locked.
func (g *holdRef) state() error {
	if g.released {
		return g.c.why(ErrReleased)
	}
	return g.c.why(g.c.over)
}

// deadline is when the claim ends unless something moves it; false: never.
func (c *holdState) deadline() (time.Time, bool) {
	c.mu.Lock()
	session, own := c.grant.Session, c.grant.Deadline
	c.mu.Unlock()
	if session == nil {
		return own, !own.IsZero()
	}
	d, ok := session.Deadline()
	if ok && !own.IsZero() && own.Before(d) || !ok {
		return own, !own.IsZero()
	}
	return d, ok
}

// extend moves the deadline of this claim alone, only forward. One that has
// passed is not moved any more, noticed or not.
func (c *holdState) extend(d time.Time) {
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over == nil && d.After(c.grant.Deadline) {
		c.grant.Deadline = d
		c.wake()
	}
}

// wake has the clock looked at when the claim's own deadline has passed; c.mu
// is held.
func (c *holdState) wake() {
	in := driver.Until(c.grant.Deadline)
	if c.timer == nil {
		c.timer = time.AfterFunc(in, c.look)
		return
	}
	c.timer.Reset(in)
}

package pghold

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// A wait is one in the server's own queue, on a connection that it keeps as long as it
// holds the lock. There are Options.Waits of them. Whoever finds none waits in line here,
// and gets the connection of the next one that gives the same lock back, together with
// its unlock; or tries from time to time.

// line are those of this program who wait for one name. Guarded by the client's mutex.
type line struct {
	key     Key
	waiters []*waiter
}

// waiter is one claim in a line.
type waiter struct {
	cl      *claim
	ln      *line
	untried bool          // nobody has looked yet whether the lock is free
	engaged bool          // it asks for the lock, or has been given a connection for that
	given   chan given    // a connection
	bell    chan struct{} // it may be worth a try
}

// given is a connection to wait on, and the wait that has been begun on it.
type given struct {
	l *link
	t *turn // nil: none yet
}

func (c *client) hasLine(k Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines[k] != nil
}

// join puts a claim at the end of the line.
func (c *client) join(cl *claim) *waiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	ln := c.lines[cl.key]
	if ln == nil {
		ln = &line{key: cl.key}
		c.lines[cl.key] = ln
	}
	w := &waiter{cl: cl, ln: ln, given: make(chan given, 1), bell: make(chan struct{}, 1)}
	ln.waiters = append(ln.waiters, w)
	return w
}

// leave takes a waiter out, with the connection that it may have been given just now.
func (c *client) leave(w *waiter) {
	c.mu.Lock()
	ln := w.ln
	ln.waiters = slices.DeleteFunc(ln.waiters, func(o *waiter) bool { return o == w })
	if len(ln.waiters) == 0 {
		delete(c.lines, ln.key)
	}
	c.wanting = slices.DeleteFunc(c.wanting, func(o *waiter) bool { return o == w })
	ln.stir()
	c.mu.Unlock()
	select {
	case g := <-w.given:
		if g.t != nil {
			c.spawn(func() { c.abort(g.l, g.t, w.cl) })
		} else {
			c.park(g.l)
		}
	default:
	}
}

// hotFor is how long a name that was waited for is waited for at once, without a look
// whether it is free: a wait for a free lock is granted too.
const (
	hotFor = 20 * time.Millisecond
	maxHot = 1024
)

func (c *client) setHot(k Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.hot) >= maxHot {
		clear(c.hot)
	}
	c.hot[k] = time.Now()
}

// isHot: the name was waited for a moment ago, or is, and there is a connection to wait on.
func (c *client) isHot(k Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lines[k] != nil {
		return true
	}
	since, ok := c.hot[k]
	if ok && time.Since(since) > hotFor {
		delete(c.hot, k)
		ok = false
	}
	return ok && len(c.spare) > 0
}

// stir has the first of those without a connection try.
func (ln *line) stir() {
	for _, w := range ln.waiters {
		if !w.engaged {
			ring(w.bell)
			return
		}
	}
}

// stir is for a name that may be free, or shared by one more.
func (c *client) stir(k Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ln := c.lines[k]; ln != nil {
		ln.stir()
	}
}

// wait waits until the claim is granted.
func (c *client) wait(ctx context.Context, cl *claim, untried bool) error {
	ctx, cancel := c.untilOver(ctx, cl.r.Lease)
	defer cancel()
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	w := c.join(cl)
	w.untried = untried
	defer c.leave(w)
	tell := c.tellLater(w, refuse)
	err := c.waitOn(ctx, w, tell)
	tell.stop()
	if err != nil {
		c.forget(cl)
	}
	return err
}

func (c *client) waitOn(ctx context.Context, w *waiter, tell *teller) error {
	var since time.Time // of the first failure in a row
	for {
		granted, err := c.turn(ctx, w, tell)
		if granted {
			c.setHot(w.cl.key)
			c.stir(w.cl.key) // others may share it
			return nil
		}
		if ctx.Err() != nil {
			if e, ok := errors.AsType[*driver.Error](context.Cause(ctx)); ok {
				return e
			}
			return c.whyStopped(ctx, w.cl.r.Lease)
		}
		if err == nil {
			since = time.Time{}
			continue
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) > c.opts.Timeout || !errors.Is(err, driver.ErrUnavailable) {
			return err
		}
		select {
		case <-time.After(faultPause):
		case <-ctx.Done():
		}
	}
}

// turn is one wait in the server, or one try if no connection is free to wait on.
func (c *client) turn(ctx context.Context, w *waiter, tell *teller) (bool, error) {
	g := c.linkFor(w)
	if g.l == nil && w.untried {
		w.untried = false
		ring(w.bell)
	}
	if g.l == nil {
		tell.inLine()
		select {
		case g = <-w.given:
		case <-w.bell:
		case <-time.After(c.pause(w)):
		case <-ctx.Done():
			return false, nil
		}
	}
	if g = c.engage(w, g); g.l == nil {
		granted, err := c.try(ctx, w.cl)
		c.disengage(w)
		return granted, err
	}
	if g.t == nil {
		g.t = c.beginTurn(g.l, w.cl)
	}
	tell.inServer(g.l)
	granted, err := c.await(ctx, g.l, g.t, w)
	c.disengage(w)
	return granted, err
}

// engage has nobody give the waiter a connection while it tries on the home link: it would
// be granted twice. What it has been given just now it uses.
func (c *client) engage(w *waiter, g given) given {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.l == nil {
		select {
		case g = <-w.given:
		default:
		}
	}
	w.engaged = true
	return g
}

func (c *client) disengage(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.engaged = false
}

// pause is how long a waiter without a connection waits before it tries: if others of
// its line wait in the server, one of them is first.
func (c *client) pause(w *waiter) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range w.ln.waiters {
		if o == w {
			return pollPause
		}
		if !o.engaged {
			return 40 * pollPause
		}
	}
	return pollPause
}

// dialPause is how long no connection for waits is opened after one could not be.
const dialPause = time.Second

// linkFor is an idle connection; none: the waiter is put down for the next one, and one
// more is opened if there may be one. Opening heeds no caller: callers that come and go
// would have the server open and close connections all the time.
func (c *client) linkFor(w *waiter) given {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case g := <-w.given:
		return g
	default:
	}
	for len(c.spare) > 0 {
		l := c.spare[len(c.spare)-1]
		c.spare = c.spare[:len(c.spare)-1]
		if l.alive() {
			c.wanting = slices.DeleteFunc(c.wanting, func(o *waiter) bool { return o == w })
			w.engaged = true
			return given{l: l}
		}
	}
	if !slices.Contains(c.wanting, w) {
		c.wanting = append(c.wanting, w)
	}
	if c.waits+c.dialing < c.opts.Waits && c.dialing < len(c.wanting) && time.Now().After(c.noDial) && !c.closed {
		c.dialing++
		c.work.Go(c.dialForWait)
	}
	return given{}
}

func (c *client) dialForWait() {
	l, err := c.dial(c.life, true)
	c.mu.Lock()
	c.dialing--
	if err != nil {
		c.noDial = time.Now().Add(dialPause)
	} else {
		c.waits++
	}
	c.mu.Unlock()
	if err == nil {
		c.park(l)
	}
}

// idleAfter is how long a connection for waits is kept for the next one.
const idleAfter = 10 * time.Second

// park gives a connection that waits for nothing and holds nothing to who wants one, or
// keeps it for a while.
func (c *client) park(l *link) {
	c.mu.Lock()
	keep := l.alive() && len(l.claims) == 0 && !c.closed && c.opts.Scope == SessionScope
	if i := slices.IndexFunc(c.wanting, func(w *waiter) bool { return !w.engaged }); keep && i >= 0 {
		w := c.wanting[i]
		c.wanting = slices.Delete(c.wanting, i, i+1)
		w.engaged = true
		w.given <- given{l: l}
		c.mu.Unlock()
		return
	}
	if keep {
		c.spare = append(c.spare, l)
		l.parked++
		since := l.parked
		time.AfterFunc(idleAfter, func() { c.retire(l, since) })
	}
	c.mu.Unlock()
	if !keep {
		l.die(errUnused)
	}
}

// retire ends a connection that nobody has used since.
func (c *client) retire(l *link, since int) {
	c.mu.Lock()
	i := slices.Index(c.spare, l)
	unused := i >= 0 && l.parked == since
	if unused {
		c.spare = slices.Delete(c.spare, i, i+1)
	}
	c.mu.Unlock()
	if unused {
		l.die(errUnused)
	}
}

var errUnused = errors.New("it was not needed any more")

// turn is one wait in the server.
type turn struct {
	j     *job
	lease *driver.Lease
	token int64
	dead  bool
	pid   uint32
	err   error
}

const waitSQL = "select tok, dead, pid from holdfast.wait($1, $2, $3)"

// newTurn is a wait of a claim on l that is still to be sent.
func (c *client) newTurn(l *link, cl *claim) *turn { return &turn{lease: c.leaseOn(l, cl.r)} }

// step is the statement that waits.
func (t *turn) step(l *link, cl *claim) step {
	return step{sql: waitSQL, args: cl.args(), take: t.take, then: func(err error) {
		if t.err = err; err != nil {
			return
		}
		if t.err = l.sameServer(t.pid); t.err == nil && t.token > 0 {
			l.took(cl, t.token, t.lease)
		}
	}}
}

func (t *turn) take(values [][]byte) error {
	if len(values) != 3 || len(values[0]) != 8 || len(values[1]) != 1 || len(values[2]) != 4 {
		return errAnswer
	}
	t.token, t.dead, t.pid = int64(binary.BigEndian.Uint64(values[0])), values[1][0] != 0, binary.BigEndian.Uint32(values[2])
	return nil
}

// beginTurn begins a wait.
func (c *client) beginTurn(l *link, cl *claim) *turn {
	t := c.newTurn(l, cl)
	t.j = l.start(c.slice+c.opts.Timeout, func(ctx context.Context) error { return t.run(ctx, l, cl) })
	return t
}

// run waits, after other steps in the same packet. A failure may have left the lock.
func (t *turn) run(ctx context.Context, l *link, cl *claim, before ...step) error {
	l.packet(ctx, l.c.slice+l.c.opts.Timeout, append(before, t.step(l, cl))...)
	if t.err != nil {
		l.tidy(ctx, cl)
	}
	return t.err
}

// await waits for the end of a wait; if the caller goes, the server gives it up.
func (c *client) await(ctx context.Context, l *link, t *turn, w *waiter) (bool, error) {
	select {
	case <-t.j.done:
	case <-ctx.Done():
		c.spawn(func() { c.abort(l, t, w.cl) })
		return false, nil
	}
	switch {
	case t.j.err != nil:
		c.park(l)
		return false, failed(ctx, t.j.err)
	case t.token == 0:
		c.park(l)
		return false, nil
	case t.token < 0:
		c.park(l)
		return false, c.kindError(ctx, w.cl)
	}
	return true, c.inherit(w.cl, t.dead)
}

// abort ends the wait of a caller that has gone: the server gives it up, the
// connection stays.
func (c *client) abort(l *link, t *turn, cl *claim) {
	for waiting := true; waiting; {
		l.cancelQuery()
		select {
		case <-t.j.done:
			waiting = false
		case <-time.After(20 * time.Millisecond):
		}
	}
	if t.j.err == nil && t.token > 0 {
		c.giveUp(cl)
		return
	}
	c.park(l)
}

// next is the first of those who wait for the lock of cl without a connection: it gets
// the one of cl. nil: there is none.
func (c *client) next(cl *claim) *waiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	ln := c.lines[cl.key]
	if ln == nil || !cl.l.waits || len(cl.l.claims) != 1 || c.closed {
		return nil
	}
	for _, w := range ln.waiters {
		if !w.engaged {
			w.engaged = true
			c.wanting = slices.DeleteFunc(c.wanting, func(o *waiter) bool { return o == w })
			return w
		}
	}
	return nil
}

// teller describes a wait, and tells the caller of it.
type teller struct {
	c      *client
	w      *waiter
	refuse context.CancelCauseFunc
	timer  *time.Timer
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	told   bool // only for the waiter's goroutine
}

// tellLater has the wait described if it lasts, and refused if the name turns out to be
// held as another kind.
func (c *client) tellLater(w *waiter, refuse context.CancelCauseFunc) *teller {
	t := &teller{c: c, w: w, refuse: refuse}
	t.ctx, t.cancel = context.WithCancel(c.life)
	t.timer = time.AfterFunc(describeWaitAfter, func() { c.spawn(t.describe) })
	return t
}

func (t *teller) describe() {
	if t.c.describe([]*claim{t.w.cl}, false) != nil {
		return // Inspect does not show it
	}
	var kind *int16
	cl := t.w.cl
	err := t.c.ask(t.ctx, func(ctx context.Context, q querier) error {
		return q.QueryRow(ctx, "select max(c.kind) from holdfast.claim c where c.space = $1 and c.key = $2 and c.token > 0 and c.kind <> $3 and holdfast.alive(c.nonce, 0)",
			t.c.args(cl.key.space(), cl.key.n, int16(cl.kind))...).Scan(&kind)
	})
	if err == nil && kind != nil {
		t.refuse(otherKind(driver.ResourceKind(*kind)))
	}
}

// inLine tells a caller that waits here.
func (t *teller) inLine() { t.tell(0) }

// inServer tells a caller that waits in the server, on l.
func (t *teller) inServer(l *link) { t.tell(l.pid) }

// tell describes the wait and tells the caller of it, once, when the server process pid
// waits; 0: it waits here.
func (t *teller) tell(pid uint32) {
	if t.w.cl.r.Waiting == nil || t.told || pid == 0 && !t.c.isFull() {
		return
	}
	t.told = true
	t.work.Go(func() {
		position := t.position(pid)
		if position == 0 {
			return
		}
		t.describe()
		if t.ctx.Err() == nil {
			t.w.cl.r.Waiting(position)
		}
	})
}

// isFull: there are no more connections for waits to come.
func (c *client) isFull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waits >= c.opts.Waits || time.Now().Before(c.noDial)
}

// position is the waiter's; 0: it waits no more.
func (t *teller) position(pid uint32) int {
	k := t.w.cl.key
	for t.ctx.Err() == nil {
		var n int
		err := t.c.ask(t.ctx, func(ctx context.Context, q querier) error {
			return q.QueryRow(ctx, "select holdfast.queued($1, $2, $3)", t.c.args(k.space(), k.n, int32(pid))...).Scan(&n)
		})
		if err == nil && pid == 0 {
			return n + t.c.unlinked(t.w)
		}
		if err == nil && n > 0 {
			return n
		}
		select {
		case <-time.After(lookPause):
		case <-t.ctx.Done():
		}
	}
	return 0
}

// unlinked is the waiter's place among those of its line without a connection.
func (c *client) unlinked(w *waiter) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range w.ln.waiters {
		if !o.engaged {
			n++
		}
		if o == w {
			break
		}
	}
	return max(n, 1)
}

// stop ends it: afterwards nothing is told.
func (t *teller) stop() {
	t.timer.Stop()
	t.cancel()
	t.work.Wait()
}

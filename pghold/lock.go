package pghold

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// waitQueue is the queue of one name inside the process, in the order of its rows: its
// first waiters, and only those, wait in the server too. Guarded by the client's mutex.
type waitQueue struct {
	key     Key
	users   int
	door    chan struct{} // one arrives at a time, so that the rows are in order
	waiters []*waiter
}

// waiter is one claim in a queue.
type waiter struct {
	cl   *rowClaim
	near chan struct{} // closed when it is one of the first that may wait in the server
	turn chan struct{} // closed when it is the first
}

// ahead is how many of a queue may wait in the server in session scope: the second is
// there already when the first is granted, so that the name never waits for a program.
const ahead = 2

func (c *client) enter(k Key) *waitQueue {
	c.mu.Lock()
	defer c.mu.Unlock()
	wq := c.queues[k]
	if wq == nil {
		wq = &waitQueue{key: k, door: make(chan struct{}, 1)}
		c.queues[k] = wq
	}
	wq.users++
	return wq
}

func (c *client) leave(wq *waitQueue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wq.users--; wq.users == 0 {
		delete(c.queues, wq.key)
	}
}

// join puts a claim at the end of the queue.
func (c *client) join(wq *waitQueue, cl *rowClaim) *waiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &waiter{cl: cl, near: make(chan struct{}), turn: make(chan struct{})}
	wq.waiters = append(wq.waiters, w)
	if n := len(wq.waiters); n <= ahead {
		c.call(wq, n-1)
	}
	return w
}

// step takes a waiter out; others come nearer.
func (c *client) step(wq *waitQueue, w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(wq.waiters, w)
	wq.waiters = slices.Delete(wq.waiters, i, i+1)
	for n := i; n < min(ahead, len(wq.waiters)); n++ {
		c.call(wq, n)
	}
}

// call tells one of the first waiters of a queue how near it is; the client is locked.
func (c *client) call(wq *waitQueue, i int) {
	w := wq.waiters[i]
	if i == 0 {
		close(w.turn)
	}
	if !isClosed(w.near) {
		close(w.near)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// lock takes a lock of the server, and lets the holder that ended with it notice.
func (c *client) lock(ctx context.Context, cl *rowClaim) error {
	if err := c.lockNow(ctx, cl); err != nil || !cl.afterCrash {
		return err
	}
	ctx, cancel := c.untilOver(ctx, cl.r.Session)
	defer cancel()
	select {
	case <-time.After(time.Until(cl.since.Add(c.graceAfterCrash))):
		return nil
	case <-ctx.Done():
		c.withdraw(cl, func() bool { return c.giveUp(cl) })
		return c.whyStopped(ctx, cl.r.Session)
	}
}

func (c *client) lockNow(ctx context.Context, cl *rowClaim) error {
	if done, err := c.lockQuickly(ctx, cl); done || err != nil {
		return err
	}
	wq := c.enter(cl.key)
	defer c.leave(wq)
	for {
		w, err := c.enqueue(ctx, wq, cl)
		if err != nil || w == nil {
			return err
		}
		if err := c.stand(ctx, wq, w); err != errStartAgain {
			return err
		}
	}
}

// stand is the wait of a claim in its queue.
func (c *client) stand(ctx context.Context, wq *waitQueue, w *waiter) error {
	defer c.step(wq, w)
	ctx, cancel := c.untilOver(ctx, w.cl.r.Session)
	defer cancel()
	called := w.near
	if c.opts.Scope == TransactionScope { // every wait is a transaction's, and wakes in the server's order
		called = w.turn
	}
	select {
	case <-called:
	case <-ctx.Done():
		c.forget(w.cl)
		return c.whyStopped(ctx, w.cl.r.Session)
	}
	return c.first(ctx, w)
}

// untilOver ends ctx with the client, and with the session that is waited on.
func (c *client) untilOver(ctx context.Context, session *driver.Session) (context.Context, context.CancelFunc) {
	ctx, cancel := c.within(ctx)
	if session == nil {
		return ctx, cancel
	}
	tie := new(driver.Tie)
	tie.To(session, func(error) { cancel() })
	return ctx, func() { tie.Untie(); cancel() }
}

// whyStopped is the error of a wait that did not end with a grant.
func (c *client) whyStopped(ctx context.Context, session *driver.Session) error {
	switch {
	case c.life.Err() != nil:
		return errClosed
	case session != nil && session.Err() != nil:
		return ended(session)
	}
	return gaveup.Error(ctx, driver.NotDone)
}

// enqueue takes the lock if it is free, or joins the queue; nil: it is held.
func (c *client) enqueue(ctx context.Context, wq *waitQueue, cl *rowClaim) (*waiter, error) {
	enough := c.enough(cl)
	select {
	case wq.door <- struct{}{}:
		defer func() { <-wq.door }()
	case <-enough:
		return nil, c.notServed()
	case <-ctx.Done():
		return nil, gaveup.Error(ctx, driver.NotDone)
	}
	a, err := c.enqueueRow(ctx, cl, enough)
	if err != nil {
		return nil, err
	}
	switch a.state {
	case "granted":
		return nil, nil
	case "queued":
		if a.unsure {
			if err := c.sameKind(ctx, cl); err != nil {
				c.forget(cl)
				return nil, err
			}
		}
		w := c.join(wq, cl)
		if cl.r.Waiting != nil && !cl.waited {
			cl.r.Waiting(a.position)
		}
		cl.waited = true
		return w, nil
	case "kind":
		return nil, otherKind(driver.ResourceKind(a.position))
	}
	return nil, c.heldError(ctx, cl)
}

// errKind is otherKind where nobody says which.
var errKind = refuse(driver.ErrConflict, "the name is in use as another kind; use another name")

func otherKind(k driver.ResourceKind) error {
	return refuse(driver.ErrConflict, "the name is in use as a %s; use another name", k)
}

// answer is what the server said to an arrival.
type answer struct {
	state    string
	token    *int64
	id       *int64
	position int
	pid      uint32
	unsure   bool // its holder has no row yet, which would tell as what; if granted: somebody watches, or left rows
}

// enqueueRow asks the home link. A link that has died since it was last used is not
// the caller's concern: nothing has happened on it that lasts.
func (c *client) enqueueRow(ctx context.Context, cl *rowClaim, enough <-chan time.Time) (answer, error) {
	if c.opts.Scope == TransactionScope {
		return c.enqueueInTx(ctx, cl, enough)
	}
	for attempt := 0; ; attempt++ {
		l, err := c.atHome(ctx)
		if err != nil {
			return answer{}, err
		}
		q := &arrival{l: l, cl: cl, session: c.sessionOn(l, cl.r)}
		j := l.ask(&q.job, q)
		if !j.wait(ctx) {
			c.withdraw(cl, func() bool { return c.undo(j, cl) })
			return answer{}, gaveup.Error(ctx, driver.NotDone)
		}
		cl.doubt(j)
		if j.err == nil || attempt > 0 || l.alive() || ctx.Err() != nil {
			return q.a, failed(ctx, j.err)
		}
	}
}

// undo takes back what a job did for a caller that has gone; false: the server has not confirmed it.
func (c *client) undo(j *job, cl *rowClaim) (heard bool) {
	<-j.done
	if j.err == nil && cl.token > 0 {
		return c.giveUp(cl)
	}
	c.forget(cl) // a failed job too may have left the row that the claim had before
	return !uncertain(j.err)
}

// forget removes the row of a claim that waits no more.
func (c *client) forget(cl *rowClaim) {
	if cl.id != 0 {
		c.dropClaim(cl, cl.id)
	}
}

func (c *client) dropClaim(cl *rowClaim, id int64) {
	cl.withdrawn.Begin()
	c.cleanUp("acquire", cl.name, func(ctx context.Context, q querier, _ int64) error {
		_, err := q.Exec(ctx, "select holdfast_v10.drop_claim($1, $2, $3, null)", c.args(cl.key.space(), cl.key.n, id)...)
		return err
	}, cl.withdrawn.End)
}

const arriveSQL = `select state, tok, place, coalesce(pos, 0), pid, coalesce(unsure, false)
from holdfast_v10.arrive($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`

// arrival asks for the lock. What the link holds is known when the question goes
// out: asking the server for more of it would be granted, in spite of any waiter.
type arrival struct {
	job
	l       *pgLink
	cl      *rowClaim
	session *driver.Session
	a       answer
}

func (q *arrival) about() Key { return q.cl.key }

func (q *arrival) form() (string, []any) {
	l, cl := q.l, q.cl
	t := l.held[cl.key]
	mine := t.writers > 0 || t.readers > 0 && cl.mode == driver.Exclusive
	return arriveSQL, []any{cl.key.space(), cl.key.n, cl.name, int16(cl.kind), int16(cl.mode), l.nonce,
		uuid(q.session.ID), q.session.Spec.Owner, []byte(q.session.Spec.Meta), cl.r.Value, !mine, t.readers > 0, !cl.r.Try, l.missingWaitersLock(cl.key)}
}

func (q *arrival) into() []any {
	return []any{&q.a.state, &q.a.token, &q.a.id, &q.a.position, &q.a.pid, &q.a.unsure}
}

func (q *arrival) answer() error { return q.l.arrived(q.cl, q.session, &q.a) }

func (q *arrival) mishap(ctx context.Context, err error) error {
	if g := q.l.missingWaitersLock(q.cl.key); g != 0 && !q.l.conn.IsClosed() {
		q.l.unshare(ctx, g)
	}
	return q.l.tidy(ctx, q.cl, err)
}

func (l *pgLink) arrived(cl *rowClaim, session *driver.Session, a *answer) error {
	if err := l.sameServer(a.pid); err != nil {
		return err
	}
	switch cl.isGranted(&a.state); a.state {
	case "granted":
		l.tookByRow(cl, *a.id, *a.token, session)
		l.setEasy(cl.key, cl.kind == driver.Mutex && !a.unsure)
	case "queued":
		cl.id = *a.id
		l.waitersLock(cl.key)
		l.setEasy(cl.key, false)
	}
	return nil
}

// tookByRow is took for a lock that has its row. If it is held for long others hear
// of that.
func (l *pgLink) tookByRow(cl *rowClaim, id, token int64, session *driver.Session) {
	l.took(cl, id, token, session)
	if cl.kind == driver.Mutex {
		cl.unheard.Store(true)
		l.recordLater(cl)
	}
}

// sameServer gives the link up if another server process answers: then a pooler
// has changed it, and nobody knows what is held.
func (l *pgLink) sameServer(pid uint32) error {
	if pid == l.pid {
		return nil
	}
	l.fail(errPooled)
	return errPooled
}

// mustDo runs SQL that gives a lock back, again if a cancel came late or the server was
// short of something for a moment; else the link ends, since nobody knows what it holds.
// The SQL has to call PostgreSQL's own functions only, without a table: it must work when
// the server has no room for a lock.
func (l *pgLink) mustDo(ctx context.Context, sql string, args ...any) {
	var err error
	for range 3 {
		if _, err = l.conn.Exec(ctx, sql, args...); err == nil || l.conn.IsClosed() {
			return
		}
	}
	l.fail(err)
}

// Pauses of waiters: while one that was chosen goes first, while no connection is
// free to wait on, and after a failure.
const (
	yieldPause = 5 * time.Millisecond
	pollPause  = 25 * time.Millisecond
	faultPause = 50 * time.Millisecond
)

// leftBehind is the state of a turn that was still under way when its caller left:
// its end sees to the row, or gives back what it was granted.
const leftBehind = "left behind"

// first waits in the server, in turns with those that have older rows.
func (c *client) first(ctx context.Context, w *waiter) error {
	var since time.Time // of the first failure in a row
	cl := w.cl
	for {
		state, pause, err := c.turn(ctx, w)
		switch {
		case state == "granted":
			return nil
		case ctx.Err() != nil: // however far the turn came: its row must not stay
			if state != leftBehind {
				c.forget(cl)
			}
			return c.whyStopped(ctx, cl.r.Session)
		case state == "gone": // the row was taken for that of an ended program, since the link that made it is
			cl.id = 0
			return errStartAgain
		}
		if err == nil {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		if err != nil && (time.Since(since) > c.opts.Timeout || !errors.Is(err, driver.ErrUnavailable)) {
			c.forget(cl)
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			c.forget(cl)
			return c.whyStopped(ctx, cl.r.Session)
		}
	}
}

// turn is one wait, or one try if no connection is free to wait on.
func (c *client) turn(ctx context.Context, w *waiter) (state string, pause time.Duration, err error) {
	if c.opts.Scope == TransactionScope {
		state, err = c.turnInTx(ctx, w.cl)
		pause = yieldPause
	} else {
		state, pause, err = c.turnInSession(ctx, w)
	}
	if ctx.Err() != nil && state != "granted" {
		return state, pause, err
	}
	if err != nil {
		return state, faultPause, err
	}
	if state == "kind" {
		return state, pause, errKind
	}
	return state, pause, nil
}

// turnInSession is a turn where connections keep their locks.
func (c *client) turnInSession(ctx context.Context, w *waiter) (string, time.Duration, error) {
	cl, isFirst := w.cl, isClosed(w.turn)
	l, err := c.waitLink(ctx, isFirst)
	switch {
	case err != nil && (ctx.Err() != nil || !errors.Is(err, driver.ErrUnavailable)):
		return "", faultPause, err
	case l == nil && !isFirst:
		return c.untilFirst(ctx, w)
	case l == nil:
		state, err := c.tryWaiting(ctx, cl)
		return state, pollPause, err
	}
	state, err := c.await(ctx, l, cl)
	if state == "wait" {
		return state, 0, err
	}
	return state, yieldPause, err
}

// untilFirst is the turn of a waiter that is not the first, and has no connection to
// wait on.
func (c *client) untilFirst(ctx context.Context, w *waiter) (string, time.Duration, error) {
	select {
	case <-w.turn:
		return "wait", 0, nil
	case <-ctx.Done():
		return "", 0, c.whyStopped(ctx, w.cl.r.Session)
	}
}

// tryWaiting tries once for a waiter that has no connection of its own, on the home link. It
// repeats nothing that failed, as [client.repeat] does.
func (c *client) tryWaiting(ctx context.Context, cl *rowClaim) (string, error) {
	var state string // the job may write it when we have gone
	l, err := c.atHome(ctx)
	if err != nil {
		return "", err
	}
	session := c.sessionOn(l, cl.r)
	j := l.start(c.opts.Timeout, func(ctx context.Context) (err error) {
		state = "blocked"
		if ok, err := l.mayTry(ctx, cl); err != nil || !ok {
			return err
		}
		state, err = l.settle(ctx, cl, session, "select state, tok, pid from holdfast_v10.try_waiting($1, $2, $3, $4, $5, $6)")
		if err != nil {
			return l.tidy(ctx, cl, err)
		}
		return nil
	})
	if !j.wait(ctx) {
		c.withdraw(cl, func() bool { return c.undo(j, cl) })
		return leftBehind, gaveup.Error(ctx, driver.NotDone)
	}
	cl.doubt(j)
	return state, failed(ctx, j.err)
}

// settle makes the claim the holder, by the SQL given, and notes it.
func (l *pgLink) settle(ctx context.Context, cl *rowClaim, session *driver.Session, sql string, more ...any) (string, error) {
	var state string
	var token *int64
	var pid uint32
	args := append([]any{cl.key.space(), cl.key.n, int16(cl.mode), cl.id, l.nonce, uuid(session.ID)}, more...)
	if err := l.conn.QueryRow(ctx, sql, args...).Scan(&state, &token, &pid); err != nil {
		return "", err
	}
	if err := l.sameServer(pid); err != nil {
		return "", err
	}
	if cl.isGranted(&state) {
		l.tookByRow(cl, cl.id, *token, session)
	}
	return state, nil
}

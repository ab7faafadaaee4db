package pghold

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/barrier"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// onHome runs SQL beside the nonce of the home link: on it, or in transaction
// scope, where its transaction would hide what is written, on the pool. If ctx
// ends first the job goes on, and undo is called when it is over.
func (c *client) onHome(ctx context.Context, l *pgLink, run func(ctx context.Context, q querier) error, undo func()) error {
	j := c.startAtHome(l, run)
	if !j.wait(ctx) {
		c.spawn(func() {
			<-j.done
			if j.err == nil && undo != nil {
				undo()
			}
		})
		return gaveup.Error(ctx, driver.NotDone)
	}
	return failed(ctx, j.err)
}

// arriveAtHome is onHome for the request of a claim: if ctx ends first, what it did is taken back.
func (c *client) arriveAtHome(ctx context.Context, l *pgLink, cl *rowClaim, run func(ctx context.Context, q querier) error, undo func()) error {
	j := c.startAtHome(l, run)
	if j.wait(ctx) {
		cl.doubt(j)
		return failed(ctx, j.err)
	}
	c.withdraw(cl, func() bool {
		<-j.done
		if j.err == nil {
			undo()
		}
		return !uncertain(j.err)
	})
	return gaveup.Error(ctx, driver.NotDone)
}

func (c *client) startAtHome(l *pgLink, run func(ctx context.Context, q querier) error) *job {
	if c.opts.Scope == SessionScope {
		return l.start(c.opts.Timeout, func(ctx context.Context) error { return run(ctx, l.conn) })
	}
	return c.onPool(l, run)
}

// onPool runs SQL that writes a row which lives by l. If nobody knows whether it
// was written, l is given up: a row that nobody knows of would keep others
// waiting for ever.
func (c *client) onPool(l *pgLink, run func(ctx context.Context, q querier) error) *job {
	j := &job{done: make(chan struct{})}
	j.state.Store(running)
	ok := c.spawn(func() {
		ctx, cancel := context.WithTimeout(c.life, c.opts.Timeout)
		defer cancel()
		err := run(ctx, c.pool)
		if err != nil && outcome(err) == driver.Unknown {
			l.fail(err)
		}
		j.finish(err)
	})
	if !ok {
		j.finish(errClosed)
	}
	return j
}

// me is the nonce that SQL on this link must not take for that of an ended program.
func (c *client) me(l *pgLink) int64 {
	if c.opts.Scope == SessionScope {
		return l.nonce
	}
	return 0
}

// gather takes a part of a semaphore, or waits for a latch or barrier.
func (c *client) gather(ctx context.Context, cl *rowClaim) error {
	ctx, cancel := c.untilOver(ctx, cl.r.Session)
	defer cancel()
	told := false
	for {
		l, err := c.atHome(ctx)
		if err != nil {
			err = c.whyNot(ctx, cl, err)
		} else {
			err = c.gatherBy(ctx, l, cl, &told)
		}
		switch {
		case !errors.Is(err, errStartAgain):
			return err
		case cl.kind != driver.Barrier || !cl.written: // by another link
		case ctx.Err() != nil:
			return barrier.MaybeCounted(c.whyStopped(ctx, cl.r.Session))
		default:
			return errParty
		}
	}
}

// errParty ends the wait of a party when its connection broke and its row may have been written, or was removed: others may have
// counted it, and do so until the server has noticed. With a second row it would count twice.
var errParty = &driver.Error{Kind: driver.ErrLost, Err: errors.New("the connection broke, or its row was removed, while it waited: others may have counted it")}

// gatherBy is gather by one link.
func (c *client) gatherBy(ctx context.Context, l *pgLink, cl *rowClaim, told *bool) error {
	g, heard := l.join(cl.key)
	defer l.quit(cl.key)
	arrival, cancel := arriving(ctx, cl)
	defer cancel()
	state, err := c.gatherOn(arrival, l, cl, false, told)
	switch {
	case err != nil && ctx.Err() != nil && cl.kind == driver.Barrier:
		return barrier.MaybeCounted(c.whyStopped(ctx, cl.r.Session))
	case err != nil && (l.alive() || ctx.Err() != nil):
		return c.whyNot(ctx, cl, err)
	case state == "granted":
		return nil
	case state == "queued":
		return c.queueUp(ctx, l, cl, g, heard)
	}
	return errStartAgain
}

func (c *client) whyNot(ctx context.Context, cl *rowClaim, err error) error {
	if ctx.Err() != nil {
		return c.whyStopped(ctx, cl.r.Session)
	}
	return err
}

// gatherSQL also tells that a barrier tripped: of its parties the last is granted as it comes.
const gatherSQL = `select state, tok, place, coalesce(pos, 0), has, (case when $4::smallint = 6 and state = 'granted' and holdfast_v10.watched() then
  holdfast_v10.send(jsonb_build_object('k', 'barrier', 'v', 'tripped', 'n', $3::text, 'u', has::text)) end)::text
from holdfast_v10.gather($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`

// gatherOn is the arrival.
// made: the semaphore, latch or barrier has been made before.
func (c *client) gatherOn(ctx context.Context, l *pgLink, cl *rowClaim, made bool, told *bool) (string, error) {
	var state string
	var token, id, has *int64
	var position int
	session := c.sessionOn(l, cl.r)
	err := c.arriveAtHome(ctx, l, cl, func(ctx context.Context, q querier) error {
		waitersLock := int64(0)
		if c.opts.Scope == SessionScope {
			if !made && l.held[cl.key] != (tally{}) { // the connection would find the lock free
				state = "unsure"
				return nil
			}
			waitersLock = l.waitersLockNew(cl.key)
		}
		err := q.QueryRow(ctx, gatherSQL, c.args(cl.key.space(), cl.key.n, cl.name, int16(cl.kind), int16(cl.mode), cl.weigh, cl.limit,
			l.nonce, uuid(session.ID), session.Spec.Owner, []byte(session.Spec.Meta), !cl.r.Try, waitersLock)...).
			Scan(&state, &token, &id, &position, &has, nil)
		cl.written = id != nil || err != nil && outcome(err) == driver.Unknown
		return l.tidyWaitersLock(ctx, cl.key, waitersLock, err)
	}, func() {
		if id != nil {
			c.ungather(cl, *id)
		}
	})
	if err != nil {
		return "", err
	}
	switch state {
	case "unsure":
		if err := c.establish(ctx, l, cl); err != nil {
			return "", err
		}
		return c.gatherOn(ctx, l, cl, true, told)
	case "granted":
		c.hold(l, cl, *id, *token, session)
	case "queued":
		cl.id = *id
		if cl.r.Waiting != nil && !*told {
			*told = true
			cl.r.Waiting(position)
		}
	default:
		return "", c.refusal(ctx, cl, state, position, has)
	}
	return state, nil
}

// establish makes the semaphore, latch or barrier of cl, unless the name is in use
// as another kind. The waiters' lock comes first: a program that took the name quickly before it
// is seen, and after it nobody does. It asks on a connection that has no locks.
func (c *client) establish(ctx context.Context, l *pgLink, cl *rowClaim) error {
	if err := c.takeWaitersLock(ctx, l, cl.key); err != nil {
		return err
	}
	state, kind, err := c.establishOn(ctx, cl, false)
	if err == nil && state == "unsure" {
		if err = c.recorded(ctx); err == nil {
			state, kind, err = c.establishOn(ctx, cl, true)
		}
	}
	if err == nil && state != "ok" {
		err = c.refusal(ctx, cl, state, kind, nil)
	}
	return err
}

func (c *client) establishOn(ctx context.Context, cl *rowClaim, sure bool) (state string, kind int, err error) {
	err = c.ask(ctx, func(ctx context.Context, q querier) error {
		return q.QueryRow(ctx, "select state, coalesce(pos, 0) from holdfast_v10.establish($1, $2, $3, $4, $5, 0, $6)",
			c.args(cl.key.space(), cl.key.n, cl.name, int16(cl.kind), cl.limit, sure)...).Scan(&state, &kind)
	})
	return state, kind, err
}

// refusal is why an arrival was turned away.
func (c *client) refusal(ctx context.Context, cl *rowClaim, state string, position int, has *int64) error {
	switch state {
	case "kind":
		return otherKind(driver.ResourceKind(position))
	case "absent":
		return refuse(fs.ErrNotExist, "there is no such %s: give its limit or count to make it", cl.kind)
	case "heavy":
		return refuse(fs.ErrInvalid, "a weight of %d does not fit into the limit of %d: ask for less", cl.weigh, *has)
	case "limit":
		return refuse(driver.ErrConflict, "it has %d, not %d: use the number that it has, or 0", *has, cl.limit)
	}
	return c.heldError(ctx, cl)
}

// errStartAgain: the row was lost with the link that made it.
var errStartAgain = errors.New("start again")

// queueUp waits until the row is granted. heard is what g had heard before the row was made.
func (c *client) queueUp(ctx context.Context, l *pgLink, cl *rowClaim, g *gathering, heard uint) error {
	session := c.sessionOn(l, cl.r)
	answer := c.awaitRow(l, cl, g, heard)
	defer c.forgetRow(g, cl.id)
	select {
	case a := <-answer:
		switch {
		case a.err != nil && cl.kind == driver.Barrier:
			c.ungather(cl, cl.id)
			return barrier.MaybeCounted(a.err)
		case a.err != nil:
			c.ungather(cl, cl.id)
			return a.err
		case a.token == 0:
			c.ungather(cl, cl.id) // of a semaphore that was removed beside it, the row is there
			return errStartAgain
		}
		c.hold(l, cl, cl.id, a.token, session)
		return nil
	case <-l.down:
		cl.withdrawn.Doubt() // the row is there until the server has noticed
		return errStartAgain
	case <-ctx.Done():
		if cl.kind == driver.Barrier {
			return c.leaveBarrier(ctx, l, cl, session)
		}
		c.ungather(cl, cl.id)
		return c.whyStopped(ctx, cl.r.Session)
	}
}

const dropSQL = "select holdfast_v10.drop_gathered($1, $2, $3, $4)"

// ungather removes a row that nobody wants any more, in the background.
func (c *client) ungather(cl *rowClaim, id int64) {
	cl.withdrawn.Begin()
	c.cleanUp("acquire", cl.name, func(ctx context.Context, q querier, me int64) error {
		_, err := q.Exec(ctx, dropSQL, c.args(cl.key.space(), cl.key.n, []int64{id}, me)...)
		return err
	}, cl.withdrawn.End)
}

// maxPause is the longest pause between two attempts of what has to succeed in the end.
const maxPause = time.Second

// cleanUp runs SQL in the background until the server has answered it: a row that
// stayed would keep others waiting as long as this program lives. run may be repeated;
// me is the nonce of its connection. It goes over the home link, not the pool, which
// may be a busy one of the caller's. It tells over, if that is not nil, whether the server has answered.
func (c *client) cleanUp(op, name string, run func(ctx context.Context, q querier, me int64) error, over func(heard bool)) {
	c.keepTrying(op, name, func() error { return c.cleanUpOnce(run) }, over)
}

// keepTrying runs once in the background until it succeeds, which it tells over, or the Space is closed.
func (c *client) keepTrying(op, name string, once func() error, over func(succeeded bool)) {
	succeeded := false
	end := func() {
		if over != nil {
			over(succeeded)
		}
	}
	begun := c.spawn(func() {
		defer end()
		for pause := faultPause; ; pause = min(2*pause, maxPause) {
			err := once()
			if succeeded = err == nil; succeeded || c.life.Err() != nil {
				return
			}
			c.fault(op, name, err)
			select {
			case <-time.After(pause):
			case <-c.life.Done():
				return
			}
		}
	})
	if !begun {
		end()
	}
}

func (c *client) cleanUpOnce(run func(ctx context.Context, q querier, me int64) error) error {
	ctx, cancel := context.WithTimeout(c.life, c.opts.Timeout)
	defer cancel()
	l, err := c.atHome(ctx)
	if err != nil {
		return err
	}
	return c.onHome(ctx, l, func(ctx context.Context, q querier) error {
		err := run(ctx, q, c.me(l))
		if isRemoved(err) && c.tablesAreGone(ctx, q) {
			return nil // the row has gone with its table
		}
		return err
	}, nil)
}

// heard takes a notification; the caller has the link.
func (l *pgLink) heard(n *pgconn.Notification) {
	c := l.c
	if n.Channel == "holdfast_event" {
		c.hub.publish(n.Payload)
		return
	}
	var what string
	var a, b int64
	if !scanWords(n.Payload, &what, &a, &b) {
		return
	}
	switch what {
	case "w":
		l.wake(Key{n: b, pair: a == 2})
	case "k":
		l.setEasy(Key{n: b, pair: a == 2}, false)
	case "r":
		if n.PID != l.pid { // if we die with it, what is easy is forgotten too
			l.setEasy(Key{n: b, pair: a == 2}, false)
		}
	case "f":
		c.forced(driver.Token(a))
	}
}

package pghold

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
)

// gathering are the waiters of a program for one semaphore, latch or barrier. One look at
// their rows is for all of them: each for itself they would ask as often as there are waiters for
// every one that is granted, and everything else on the link would wait for that. Guarded by
// the client's mutex.
type gathering struct {
	callers int  // that have come to it
	heard   uint // how often something of it was granted
	bell    chan struct{}
	waiters map[int64]chan gathered // by row
	looking bool
}

// gathered is what became of a row that waited: its token, or 0 if it is gone.
type gathered struct {
	token int64
	err   error
}

// lookEvery is how often rows that wait are looked at without a reason: a release is told at
// once, a death by nobody. Without notifications it has to be more often.
const (
	lookEvery      = 500 * time.Millisecond
	lookInTxScopes = 50 * time.Millisecond
)

// join comes to the gathering of a key, until quit, and says what it has heard.
func (l *pgLink) join(k Key) (*gathering, uint) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	g := l.gatherings[k]
	if g == nil {
		g = &gathering{bell: make(chan struct{}, 1), waiters: map[int64]chan gathered{}}
		l.gatherings[k] = g
	}
	g.callers++
	return g, g.heard
}

func (l *pgLink) quit(k Key) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	g := l.gatherings[k]
	if g.callers--; g.callers == 0 {
		delete(l.gatherings, k)
	}
}

// wake has the waiters for a key looked at: something of it was granted.
func (l *pgLink) wake(k Key) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if g := l.gatherings[k]; g != nil {
		g.heard++
		ring(g.bell)
	}
}

// awaitRow has the row of cl looked at. What was heard since before it was made may be of it.
func (c *client) awaitRow(l *pgLink, cl *rowClaim, g *gathering, heard uint) <-chan gathered {
	answer := make(chan gathered, 1)
	c.mu.Lock()
	g.waiters[cl.id] = answer
	if g.heard != heard {
		ring(g.bell)
	}
	first := !g.looking
	g.looking = true
	c.mu.Unlock()
	if first { // if the client is closed, the link ends the wait
		c.spawn(func() { c.lookAfter(l, cl.key, g) })
	}
	return answer
}

func (c *client) forgetRow(g *gathering, id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(g.waiters, id); len(g.waiters) == 0 {
		ring(g.bell) // nobody has to look any more
	}
}

// lookAfter looks at the rows of a gathering as long as some wait.
func (c *client) lookAfter(l *pgLink, k Key, g *gathering) {
	every := lookEvery
	if c.opts.Scope == TransactionScope {
		every = lookInTxScopes
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for c.someWait(g) {
		sweep := false
		select {
		case <-g.bell:
		case <-tick.C:
			sweep = true
		case <-l.down:
			return
		}
		c.look(l, k, g, sweep)
	}
}

// someWait reports whether rows wait. If not, the caller is to look no more: the next one
// that waits finds another.
func (c *client) someWait(g *gathering) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.looking = len(g.waiters) > 0
	return g.looking
}

// waitersOf are the rows that wait.
func (c *client) waitersOf(g *gathering) []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(g.waiters))
}

// lookSQL also tells of all as gone if the semaphore, latch or barrier itself is: nobody grants it any more.
const lookSQL = `select id, tok from holdfast_v10.look($1, $2, $3, $4, $5)
union all select id, 0 from unnest($3::bigint[]) id where $5 and not exists (select from holdfast.resource where space = $1 and key = $2)`

// look tells waiters that their rows were granted, or are gone. If the server does not answer, the next
// look does. sweep: what ended programs had is freed first.
func (c *client) look(l *pgLink, k Key, g *gathering, sweep bool) {
	found, ids := map[int64]gathered{}, c.waitersOf(g)
	if len(ids) == 0 { // what it freed would be told to nobody
		return
	}
	err := c.onHome(c.life, l, func(ctx context.Context, q querier) error {
		rows, err := q.Query(ctx, lookSQL, c.args(k.space(), k.n, ids, c.me(l), sweep)...)
		if err != nil {
			return err
		}
		var id, token int64
		_, err = pgx.ForEachRow(rows, []any{&id, &token}, func() error {
			found[id] = gathered{token: max(token, found[id].token)}
			return nil
		})
		return err
	}, nil)
	switch {
	case err == nil:
		c.tell(g, found)
	case errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrConflict): // the next look does
	case l.alive() && c.life.Err() == nil:
		all := map[int64]gathered{} // found may still be written
		for _, id := range ids {
			all[id] = gathered{err: err}
		}
		c.tell(g, all)
	}
}

// tell hands answers to those that wait for them still.
func (c *client) tell(g *gathering, answers map[int64]gathered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, a := range answers {
		if answer := g.waiters[id]; answer != nil {
			answer <- a
			delete(g.waiters, id)
		}
	}
}

func ring(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

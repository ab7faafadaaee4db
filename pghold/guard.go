package pghold

import (
	"context"
	"maps"
	"slices"
	"time"
)

// The guard of a name is an advisory lock that the home link of every program has
// which waits for the name, or uses it as something that is no lock. Nobody takes
// the name quickly meanwhile. It may be had longer than needed: that costs others
// time, and nothing else.

// linger is how often a link looks which guards it needs no more, and how long
// that of a new semaphore, latch or barrier stays at least.
const linger = 250 * time.Millisecond

// guardOf is a name's guard: any number will do that other names rarely have.
func guardOf(k Key) int64 {
	x := uint64(k.n) ^ uint64(k.space())*0x9e3779b97f4a7c15 ^ 5209599041173340523
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int64(x ^ x>>31)
}

// missingGuard is the guard that has to be taken if a claim is to wait; 0: the
// link has it.
func (l *pgLink) missingGuard(k Key) int64 {
	if _, ok := l.guards[k]; ok {
		return 0
	}
	return guardOf(k)
}

// guard is missingGuard, and notes that it is taken.
func (l *pgLink) guard(k Key) int64 {
	g := l.missingGuard(k)
	if g != 0 {
		l.guards[k] = time.Time{}
		if l.relaxing == nil {
			l.relaxing = time.AfterFunc(linger, l.relax)
		}
	}
	return g
}

// guardNew is guard for a name that may become something that is no lock. Others
// hear of that a moment later: it stays until they have.
func (l *pgLink) guardNew(k Key) int64 {
	g := l.guard(k)
	l.guards[k] = time.Now()
	return g
}

// takeGuard takes the guard of a name that the caller is about to make something
// that is no lock.
func (c *client) takeGuard(ctx context.Context, l *pgLink, k Key) error {
	if c.opts.Scope != SessionScope {
		return nil // the gates are closed
	}
	return c.onHome(ctx, l, func(ctx context.Context, q querier) error {
		g := l.guardNew(k)
		if g == 0 {
			return nil
		}
		_, err := q.Exec(ctx, "select pg_catalog.pg_advisory_lock_shared($1)", g)
		return l.tidyGuard(ctx, k, g, err)
	}, nil)
}

// tidyGuard makes sure that a failed step left no guard, if it was to take it, and
// returns err.
func (l *pgLink) tidyGuard(ctx context.Context, k Key, taken int64, err error) error {
	if err == nil || taken == 0 || l.conn.IsClosed() {
		return err
	}
	l.unshare(ctx, taken)
	delete(l.guards, k)
	return err
}

// unshare gives back a share of an advisory lock of ours, if the link has one.
func (l *pgLink) unshare(ctx context.Context, key int64) {
	l.mustDo(ctx, "select pg_catalog.pg_advisory_unlock_shared($1::bigint)", key)
}

// relax has the link look which guards it needs.
func (l *pgLink) relax() { l.start(l.c.opts.Timeout, l.dropGuards) }

// dropGuards gives back guards of names that nobody here waits for or shares in,
// and that are not new.
func (l *pgLink) dropGuards(ctx context.Context) error {
	var drop []int64
	idle := l.c.idleKeys(l, slices.Collect(maps.Keys(l.guards)))
	idle = slices.DeleteFunc(idle, func(k Key) bool { return time.Since(l.guards[k]) < linger })
	for _, k := range idle {
		drop = append(drop, guardOf(k))
	}
	if len(drop) > 0 {
		_, err := l.conn.Exec(ctx, "select pg_catalog.pg_advisory_unlock_shared(g) from unnest($1::bigint[]) g", drop)
		if err != nil {
			l.relaxing = time.AfterFunc(linger, l.relax)
			return err
		}
	}
	for _, k := range idle {
		delete(l.guards, k)
	}
	l.relaxing = nil
	if len(l.guards) > 0 {
		l.relaxing = time.AfterFunc(linger, l.relax)
	}
	return nil
}

// idleKeys are those that nobody waits for and nobody has a share of.
func (c *client) idleKeys(l *pgLink, keys []Key) []Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared := map[Key]bool{}
	for cl := range l.claims {
		if cl.gathers() {
			shared[cl.key] = true
		}
	}
	return slices.DeleteFunc(keys, func(k Key) bool { return shared[k] || c.lines[k] != nil || c.wakes[k] != nil })
}

package pghold

import (
	"context"
	"maps"
	"slices"
	"time"
)

// The waiters' lock of a name is an advisory lock that the home link of every program has
// which waits for the name, or uses it as something that is no lock. Nobody takes
// the name quickly meanwhile. It may be had longer than needed: that costs others
// time, and nothing else.

// linger is how often a link looks which waiters' locks it needs no more, and how long
// that of a new semaphore, latch or barrier stays at least.
const linger = 250 * time.Millisecond

// waitersLockOf is a name's waiters' lock: any number will do that other names rarely have.
func waitersLockOf(k Key) int64 {
	x := uint64(k.n) ^ uint64(k.space())*0x9e3779b97f4a7c15 ^ 5209599041173340523
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int64(x ^ x>>31)
}

// missingWaitersLock is the waiters' lock that has to be taken if a claim is to wait; 0: the
// link has it.
func (l *pgLink) missingWaitersLock(k Key) int64 {
	if _, ok := l.waitersLocks[k]; ok {
		return 0
	}
	return waitersLockOf(k)
}

// waitersLock is missingWaitersLock, and notes that it is taken.
func (l *pgLink) waitersLock(k Key) int64 {
	g := l.missingWaitersLock(k)
	if g != 0 {
		l.waitersLocks[k] = time.Time{}
		if l.relaxing == nil {
			l.relaxing = time.AfterFunc(linger, l.relax)
		}
	}
	return g
}

// waitersLockNew is waitersLock for a name that may become something that is no lock. Others
// hear of that a moment later: it stays until they have.
func (l *pgLink) waitersLockNew(k Key) int64 {
	g := l.waitersLock(k)
	l.waitersLocks[k] = time.Now()
	return g
}

// takeWaitersLock takes the waiters' lock of a name that the caller is about to make something
// that is no lock.
func (c *client) takeWaitersLock(ctx context.Context, l *pgLink, k Key) error {
	if c.opts.Scope != SessionScope {
		return nil // the fast path is closed
	}
	return c.onHome(ctx, l, func(ctx context.Context, q querier) error {
		g := l.waitersLockNew(k)
		if g == 0 {
			return nil
		}
		_, err := q.Exec(ctx, "select pg_catalog.pg_advisory_lock_shared($1)", g)
		return l.tidyWaitersLock(ctx, k, g, err)
	}, nil)
}

// tidyWaitersLock makes sure that a failed step left no waiters' lock, if it was to take it, and
// returns err.
func (l *pgLink) tidyWaitersLock(ctx context.Context, k Key, taken int64, err error) error {
	if err == nil || taken == 0 || l.conn.IsClosed() {
		return err
	}
	l.unshare(ctx, taken)
	delete(l.waitersLocks, k)
	return err
}

// unshare gives back a share of an advisory lock of ours, if the link has one.
func (l *pgLink) unshare(ctx context.Context, key int64) {
	l.mustDo(ctx, "select pg_catalog.pg_advisory_unlock_shared($1::bigint)", key)
}

// relax has the link look which waiters' locks it needs.
func (l *pgLink) relax() { l.start(l.c.opts.Timeout, l.dropWaitersLocks) }

// dropWaitersLocks gives back waiters' locks of names that nobody here waits for or shares in,
// and that are not new.
func (l *pgLink) dropWaitersLocks(ctx context.Context) error {
	var drop []int64
	idle := l.c.idleKeys(l, slices.Collect(maps.Keys(l.waitersLocks)))
	idle = slices.DeleteFunc(idle, func(k Key) bool { return time.Since(l.waitersLocks[k]) < linger })
	for _, k := range idle {
		drop = append(drop, waitersLockOf(k))
	}
	if len(drop) > 0 {
		_, err := l.conn.Exec(ctx, "select pg_catalog.pg_advisory_unlock_shared(g) from unnest($1::bigint[]) g", drop)
		if err != nil {
			l.relaxing = time.AfterFunc(linger, l.relax)
			return err
		}
	}
	for _, k := range idle {
		delete(l.waitersLocks, k)
	}
	l.relaxing = nil
	if len(l.waitersLocks) > 0 {
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
	return slices.DeleteFunc(keys, func(k Key) bool { return shared[k] || c.queues[k] != nil || l.gatherings[k] != nil })
}

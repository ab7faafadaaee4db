package pghold

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
)

// sweepPage is how many rows one transaction of a sweep looks at: what it removes is
// locked until its end.
const sweepPage = 500

// Sweep removes what programs that have ended left, answers that are kept for a
// repeated request and are too old for one, keys of limiters that are as if they had
// never been used or were used at a rate that is not theirs any more, and, if r.Limits says so, idle semaphores
// and barriers. Tokens come from a sequence that a sweep does not touch. A semaphore or
// barrier that somebody uses at the moment is left alone.
func (c *client) Sweep(ctx context.Context, r *driver.SweepRequest) (reply driver.SweepReply, err error) {
	err = c.removeEnded(func(run func(ctx context.Context, q querier) error) error { return c.ask(ctx, run) })
	if err == nil { // answers are no names
		_, err = c.sweepPages(ctx, "select holdfast_v10.sweep_done($1)", sweepPage)
	}
	var n int64
	for _, sql := range []string{"select holdfast_v10.sweep_usage($1, $2)", orphanedUsage} {
		if err == nil {
			n, err = c.sweepPages(ctx, sql, r.Prefix, sweepPage)
			reply.Removed += n
		}
	}
	if err == nil && r.Limits {
		n, err = c.sweepLimits(ctx, r.Prefix)
		reply.Removed += n
	}
	return reply, err
}

// sweepPages runs a statement, which tells how many rows it removed, as long as that is a whole page.
func (c *client) sweepPages(ctx context.Context, sql string, args ...any) (removed int64, err error) {
	for {
		var n int64
		err := c.ask(ctx, func(ctx context.Context, q querier) error { return q.QueryRow(ctx, sql, c.args(args...)...).Scan(&n) })
		if err != nil {
			return removed, err
		}
		if removed += n; n < sweepPage {
			return removed, nil
		}
	}
}

// orphanedUsage removes a page of keys that never become as if they had not been used, and
// that count for nothing: their limiter was deleted, or has got another rate.
const orphanedUsage = `with removed as (delete from holdfast.usage x using (
  select y.name, y.key, y.epoch from holdfast.usage y left join holdfast.limiter l on l.name = y.name
  where y.idle is null and starts_with(y.name, $1) and y.epoch is distinct from left(l.rate, 32) limit $2) gone
where x.name = gone.name and x.key = gone.key and x.epoch = gone.epoch returning 1) select count(*) from removed`

// sweepLimits goes through all semaphores, latches and barriers, page by page.
func (c *client) sweepLimits(ctx context.Context, prefix string) (removed int64, err error) {
	space, key := int16(0), int64(0)
	for looked := sweepPage; err == nil && looked == sweepPage; {
		var n int64
		err = c.ask(ctx, func(ctx context.Context, q querier) error {
			return q.QueryRow(ctx, "select removed, looked, last_space, last_key from holdfast_v10.sweep_limits($1, $2, $3, $4)",
				c.args(prefix, space, key, sweepPage)...).Scan(&n, &looked, &space, &key)
		})
		removed += n
	}
	return removed, err
}

// tidy removes in the background what has ended, unless that is under way. It is not done over
// the home link: it may wait for others that write keys, and what takes longer than Timeout ends
// its connection. What fails is tried again by the next one, a second or a minute later. It
// goes by time: signs of life, which a busy link does not ask for, are too few.
func (c *client) tidy() {
	if !c.tidying.CompareAndSwap(false, true) {
		return
	}
	run := c.spawn(func() {
		defer c.tidying.Store(false)
		_ = c.removeEnded(c.aside)
	})
	if !run {
		c.tidying.Store(false)
	}
}

// aside runs a statement on the pool, where it may wait for others.
func (c *client) aside(run func(ctx context.Context, q querier) error) error {
	ctx, cancel := context.WithTimeout(c.life, c.opts.Timeout)
	defer cancel()
	return run(ctx, c.pool)
}

// removeEnded removes what ended programs left, and then, page by page, keys after their time or
// session. ask runs a statement, each a transaction: one that waits for the keys must not have
// anything that a claim waits for.
func (c *client) removeEnded(ask func(run func(ctx context.Context, q querier) error) error) error {
	err := ask(func(ctx context.Context, q querier) error {
		_, err := q.Exec(ctx, "select holdfast_v10.sweep()", c.mode)
		return err
	})
	for n := 1; err == nil && n > 0; {
		err = ask(func(ctx context.Context, q querier) error {
			return scanRemoved(q.QueryRow(ctx, "select case when "+isRevision+" then holdfast_v10.kv_sweep($1) else -1 end", c.args(keyPage)...), &n)
		})
	}
	return c.revised(err)
}

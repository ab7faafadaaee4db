package pghold

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/limits"
	"github.com/holdfast-io/holdfast/limit"
)

// usageRow is what a key of a limiter has used, as the server tells it.
type usageRow struct {
	state, rate             string
	now, v                  int64
	at, part, given, leased *int64
	rest                    *string
	allowed                 *bool
}

// value is the state of the key.
func (u *usageRow) value() (s limit.State, err error) {
	switch {
	case u.at == nil:
		return s, nil
	case u.rest != nil:
		err = json.Unmarshal([]byte(*u.rest), &s)
		return s, err
	}
	return limit.State{At: *u.at, Part: *u.part, Given: *u.given, Leased: *u.leased, Known: true}, nil
}

// Limit asks a limiter, by the server's clock. To take from a bucket is one statement;
// for all else the client decides by what the server told it, and the server keeps that
// if nothing was changed meanwhile.
func (c *client) Limit(ctx context.Context, r *driver.LimitRequest) (reply driver.LimitReply, err error) {
	if r.Op == driver.LimitSetRate {
		set := limits.Fresh(r)
		if err = c.limitSet(ctx, r.Name, set.Text); err == nil {
			c.rates.Note(r.Name, set)
		}
		return driver.LimitReply{Rate: r.Rate}, err
	}
	k, u, err := c.usage(ctx, r)
	switch {
	case err != nil:
		return reply, err
	case limits.Takes(k.Rate, r):
		return taken(k, u, r)
	}
	for {
		reply, again, err := c.swapUsage(ctx, k, u, r)
		if !again || err != nil {
			return reply, err
		}
		if k, u, err = c.usage(ctx, r); err != nil {
			return reply, err
		}
	}
}

// limitSet sets a rate, and tells watches.
func (c *client) limitSet(ctx context.Context, name, fresh string) error {
	return c.ask(ctx, func(ctx context.Context, q querier) error {
		_, err := q.Exec(ctx, "select holdfast_v10.limit_set($1, $2)", c.args(name, fresh)...)
		return err
	})
}

// usage asks the server until both agree on the rate. It takes from a bucket at once.
func (c *client) usage(ctx context.Context, r *driver.LimitRequest) (k limits.Known, u *usageRow, err error) {
	k, fresh := c.rates.Guess(r)
	for {
		u = &usageRow{}
		err = c.ask(ctx, func(ctx context.Context, q querier) error {
			return once(ctx, c.askLimiter(ctx, q, k, fresh.Make(r), r, u))
		})
		switch {
		case err != nil:
			return k, u, err
		case u.state == "rate" && limits.Looks(u.rate, r):
			return limits.Fresh(r), u, nil
		case u.state == "rate":
			if k, fresh, err = limits.Agreed(u.rate, r); err != nil {
				return k, u, err
			}
			continue
		case u.state == "made":
			k = fresh
		}
		c.rates.Note(r.Name, k)
		return k, u, nil
	}
}

// once keeps a statement that may have been done from being repeated.
func once(ctx context.Context, err error) error {
	if broken(err) && outcome(err) != driver.NotDone {
		return failed(ctx, err)
	}
	return err
}

func (c *client) askLimiter(ctx context.Context, q querier, k limits.Known, fresh string, r *driver.LimitRequest, u *usageRow) error {
	if !limits.Takes(k.Rate, r) {
		return q.QueryRow(ctx, "select state, rate, now, v, u_at, u_part, u_given, u_leased, u_rest from holdfast_v10.limit_read($1, $2, $3, $4)",
			c.args(r.Name, r.Key, k.Text, fresh)...).Scan(&u.state, &u.rate, &u.now, &u.v, &u.at, &u.part, &u.given, &u.leased, &u.rest)
	}
	args := []any{r.Name, r.Key, k.Text, fresh, k.Rate.Count}
	for _, n := range []int64{r.Cost, k.Rate.Limit(), limits.Lacks(k.Rate)} {
		ns, part := k.Rate.Fill(n)
		args = append(args, ns, part)
	}
	args = append(args, int64(max(r.Wait, 0)), int64(max(r.Ahead, 0)), r.Cost > 0)
	var now *int64
	err := q.QueryRow(ctx, "select state, rate, now, allowed, u_at, u_part, u_given, u_leased from holdfast_v10.limit_take($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
		c.args(args...)...).Scan(&u.state, &u.rate, &now, &u.allowed, &u.at, &u.part, &u.given, &u.leased)
	if now != nil {
		u.now = *now
	}
	return err
}

var errDisagree = errors.New("the server's function and this program decide differently: another version wrote it")

// taken spells out what the server has decided.
func taken(k limits.Known, u *usageRow, r *driver.LimitRequest) (driver.LimitReply, error) {
	s, err := u.value()
	if err != nil {
		return driver.LimitReply{}, err
	}
	k.Rate.Name = r.Rate.Name
	_, reply, _ := limits.Decide(k.Rate, k.Number(), s, u.now, r)
	if u.allowed == nil || *u.allowed != reply.Decision.Allowed {
		return reply, errDisagree
	}
	return reply, nil
}

// swapUsage decides by what was read and keeps that; again: somebody was quicker.
func (c *client) swapUsage(ctx context.Context, k limits.Known, u *usageRow, r *driver.LimitRequest) (reply driver.LimitReply, again bool, err error) {
	old, err := u.value()
	if err != nil {
		return reply, false, err
	}
	rate := k.Rate
	rate.Name = r.Rate.Name
	s, reply, keep := limits.ByOneClock(rate, k.Number(), old, u.now, r)
	if !keep {
		return reply, false, nil // so is a reset of a key that was not in use
	}
	var rest *string
	if !limits.Bucket(rate) {
		text, _ := json.Marshal(s) // numbers
		rest = new(string(text))
	}
	var idle *int64
	if until, ends := limits.Until(rate, s, u.now); ends {
		idle = &until
	}
	var state string
	err = c.ask(ctx, func(ctx context.Context, q querier) error {
		return once(ctx, q.QueryRow(ctx, "select holdfast_v10.limit_swap($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
			c.args(r.Name, r.Key, k.Epoch(), u.v, s.At, s.Part, s.Given, s.Leased, rest, idle, r.Op == driver.LimitReset)...).Scan(&state))
	})
	return reply, state == "again", err
}

// deleteLimiter removes a limiter, and then what its keys used at this rate or an earlier
// one, page by page. That counts for nothing any more: if it fails, it is done in the background.
func (c *client) deleteLimiter(ctx context.Context, name string) error {
	err := c.remove(ctx, "limiter", func(ctx context.Context, q querier) (bool, error) {
		var epoch *string
		err := q.QueryRow(ctx, "select holdfast_v10.limit_delete($1)", c.args(name)...).Scan(&epoch)
		return epoch != nil, err
	})
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Outcome == driver.NotDone {
		return err
	}
	left := err
	if left == nil {
		_, left = c.sweepPages(ctx, forgottenUsage, name, sweepPage)
	}
	if left != nil {
		c.keepTrying("delete", name, func() error {
			ctx, cancel := context.WithTimeout(c.life, removeFor)
			defer cancel()
			_, err := c.sweepPages(ctx, forgottenUsage, name, sweepPage)
			return err
		}, nil)
	}
	return err
}

// forgottenUsage removes a page of what keys of a limiter used at rates that are not its own
// any more. Of a row that is used at a new one meanwhile nothing is removed.
const forgottenUsage = `with removed as (delete from holdfast.usage x using (
  select y.name, y.key, y.epoch from holdfast.usage y
  where y.name = $1 and y.epoch <> coalesce((select left(l.rate, 32) from holdfast.limiter l where l.name = $1), '') limit $2) gone
where x.name = gone.name and x.key = gone.key and x.epoch = gone.epoch returning 1) select count(*) from removed`

package pghold

import (
	"context"
	"errors"
	"io/fs"
	"math/big"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/driver"
)

// number is a counter's number as text: PostgreSQL has no unsigned integers.
func number(n uint64, unsigned bool) string {
	if unsigned {
		return strconv.FormatUint(n, 10)
	}
	return strconv.FormatInt(int64(n), 10)
}

// parse reads it back.
func parse(s string, unsigned bool) (uint64, error) {
	if unsigned {
		return strconv.ParseUint(s, 10, 64)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return uint64(n), err
}

// Count changes a counter, once for each r.ID.
func (c *client) Count(ctx context.Context, r *driver.CountRequest) (driver.CountReply, error) {
	if r.Op == driver.CountLoad {
		return c.load(ctx, r)
	}
	reply, done, err := c.addAlone(ctx, r)
	if done || err != nil {
		return reply, err
	}
	a, b := number(r.A, r.Unsigned), number(r.B, r.Unsigned)
	err = c.ask(ctx, func(ctx context.Context, q querier) error {
		var state, value string
		err := q.QueryRow(ctx, "select state, coalesce(v::text, '0'), swapped from holdfast_v10.count($1::uuid, $2, $3, $4, $5::text::numeric, $6::text::numeric)",
			c.args(uuid(r.ID), r.Name, int16(r.Op), r.Unsigned, a, b)...).Scan(&state, &value, &reply.Swapped)
		if err != nil {
			return err
		}
		if state == "sign" {
			return wrongSign(r.Unsigned)
		}
		reply.Value, err = parse(value, r.Unsigned)
		return err
	})
	return reply, err
}

const addSQL = `update holdfast.counter set value = least(greatest(value + $2::bigint, -9223372036854775808), 9223372036854775807)
where name = $1 and not unsigned returning value::bigint`

// addAlone adds to a counter that is there by a plain UPDATE, which a repetition
// would not be known by: only for requests that nobody repeats. Here it is repeated
// only if it certainly did not happen. false: it takes the function after all, and nothing has
// happened.
func (c *client) addAlone(ctx context.Context, r *driver.CountRequest) (driver.CountReply, bool, error) {
	if !r.Once || r.Unsigned || r.Op != driver.CountAdd {
		return driver.CountReply{}, false, nil
	}
	if err := c.begin(ctx); err != nil {
		return driver.CountReply{}, false, err
	}
	within, cancel := c.within(ctx)
	defer cancel()
	var value int64
	add := func() error { return c.pool.QueryRow(within, addSQL, c.args(r.Name, int64(r.A))...).Scan(&value) }
	err := add()
	for n := 0; n < maxBroken && within.Err() == nil && broken(err) && outcome(err) == driver.NotDone; n++ {
		err = add()
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return driver.CountReply{}, false, nil
	case err != nil && c.life.Err() != nil:
		return driver.CountReply{}, false, &driver.Error{Kind: driver.ErrClosed, Outcome: outcome(err), Err: err}
	}
	return driver.CountReply{Value: uint64(value)}, err == nil, failed(within, err)
}

func wrongSign(unsigned bool) error {
	if unsigned {
		return refuse(driver.ErrConflict, "it is a signed counter: use it as one, or delete it first")
	}
	return refuse(driver.ErrConflict, "it is an unsigned counter: use it as one, or delete it first")
}

func (c *client) load(ctx context.Context, r *driver.CountRequest) (driver.CountReply, error) {
	var reply driver.CountReply
	err := c.ask(ctx, func(ctx context.Context, q querier) error {
		var value *string
		var unsigned *bool
		err := q.QueryRow(ctx, "select max(value)::text, bool_or(unsigned) from holdfast.counter where name = $1", c.args(r.Name)...).Scan(&value, &unsigned)
		if err != nil || value == nil {
			return err
		}
		if *unsigned != r.Unsigned {
			return wrongSign(r.Unsigned)
		}
		reply.Value, err = parse(*value, r.Unsigned)
		return err
	})
	return reply, err
}

// Reserve takes numbers of a sequence.
func (c *client) Reserve(ctx context.Context, r *driver.ReserveRequest) (driver.ReserveReply, error) {
	var reply driver.ReserveReply
	err := c.ask(ctx, func(ctx context.Context, q querier) error {
		var state, value string
		err := q.QueryRow(ctx, "select state, v::text from holdfast_v10.reserve($1::uuid, $2, $3::text::numeric, $4::text::numeric)",
			c.args(uuid(r.ID), r.Name, number(r.N, true), number(r.Start, true))...).Scan(&state, &value)
		if err != nil {
			return err
		}
		if state == "exhausted" {
			return refuse(driver.ErrExhausted, "the sequence has %s numbers left, not %d: take fewer, or begin another", left(value), r.N)
		}
		reply.First, err = strconv.ParseUint(value, 10, 64)
		return err
	})
	return reply, err
}

// left is how many numbers come from next on.
func left(next string) *big.Int {
	n, _ := new(big.Int).SetString(next, 10)
	return n.Sub(new(big.Int).SetUint64(1<<64-1), n)
}

// CountDown takes something off a latch, once for each r.ID.
func (c *client) CountDown(ctx context.Context, r *driver.CountDownRequest) (driver.CountDownReply, error) {
	key, err := c.key(r.Name)
	if err != nil {
		return driver.CountDownReply{}, err
	}
	for {
		reply, there, err := c.countDown(ctx, r, key)
		if there || err != nil {
			return reply, err
		}
		if err := c.newLatch(ctx, r, key); err != nil {
			return reply, err
		}
	}
}

// countDown does it if the latch is there; false: it has to be made.
func (c *client) countDown(ctx context.Context, r *driver.CountDownRequest, key Key) (reply driver.CountDownReply, there bool, err error) {
	err = c.ask(ctx, func(ctx context.Context, q querier) error {
		var state string
		var rest *int64
		err := q.QueryRow(ctx, "select state, rest from holdfast_v10.count_down($1::uuid, $2, $3, $4, $5, $6)",
			c.args(uuid(r.ID), key.space(), key.n, r.Name, r.Count, r.By)...).Scan(&state, &rest)
		switch {
		case err != nil:
			return err
		case state == "kind":
			return errKind
		case state == "absent":
			return refuse(fs.ErrNotExist, "there is no such latch: give its count to make it")
		}
		reply.Left, there = *rest, state != "new"
		return nil
	})
	return reply, there, err
}

// newLatch makes the latch of r.
func (c *client) newLatch(ctx context.Context, r *driver.CountDownRequest, key Key) error {
	l, err := c.atHome(ctx)
	if err != nil {
		return err
	}
	l.join(key) // the waiters' lock stays
	defer l.quit(key)
	return c.establish(ctx, l, &rowClaim{name: r.Name, key: key, kind: driver.Latch, limit: r.Count})
}

// deleteSQL removes an idle semaphore, latch or barrier, and tells the watches; 'kind': the name is that of a lock. As everywhere the lock of watched comes
// before a row that others wait for.
const deleteSQL = `with watch as materialized (select holdfast_v10.watched() as yes),
gone as materialized (select yes, holdfast_v10.forget($1, $2, $3) as state from watch)
select case when state = 'absent' and holdfast_v10.other_kind($1, $2, $3, 0) is not null then 'kind' else state end, (case when yes and state = 'ok' then
  holdfast_v10.send(jsonb_build_object('k', $4::text, 'v', 'deleted', 'n', $5::text)) end)::text from gone`

// Delete removes an idle object.
func (c *client) Delete(ctx context.Context, kind driver.ResourceKind, name string) error {
	switch kind {
	case driver.Counter:
		return c.deleteFrom(ctx, "counter", name)
	case driver.Sequence:
		return c.deleteFrom(ctx, "sequence", name)
	case driver.Limiter:
		return c.deleteLimiter(ctx, name)
	}
	key, err := c.key(name)
	if err != nil {
		return err
	}
	if err := c.recorded(ctx); err != nil { // a lock without a row is another kind, too
		return err
	}
	var state string
	err = c.remove(ctx, kind.String(), func(ctx context.Context, q querier) (bool, error) {
		err := q.QueryRow(ctx, deleteSQL, c.args(key.space(), key.n, int16(kind), kind.String(), name)...).Scan(&state, nil)
		return state != "absent", err
	})
	switch {
	case err != nil:
		return err
	case state == "kind":
		return refuse(driver.ErrConflict, "the name is in use as another kind")
	case state == "held":
		return c.heldError(ctx, &rowClaim{name: name, key: key, kind: kind})
	}
	return nil
}

func (c *client) deleteFrom(ctx context.Context, table, name string) error {
	return c.remove(ctx, table, func(ctx context.Context, q querier) (bool, error) {
		tag, err := q.Exec(ctx, "delete from holdfast."+table+" where name = $1", c.args(name)...)
		return tag.RowsAffected() > 0, err
	})
}

// remove runs a delete until it is answered, which tells whether there was what it deletes.
func (c *client) remove(ctx context.Context, what string, run func(ctx context.Context, q querier) (found bool, err error)) error {
	_, err := c.find(ctx, refuse(fs.ErrNotExist, "there is no such %s", what), run)
	return err
}

// find runs a statement that finds what it ends only once, until it is answered. If it finds
// nothing that is the error missing, unless an earlier run may have done it, unheard.
func (c *client) find(ctx context.Context, missing error, run func(ctx context.Context, q querier) (found bool, err error)) (found bool, err error) {
	perhaps := false
	err = c.ask(ctx, func(ctx context.Context, q querier) (err error) {
		found, err = run(ctx, q)
		perhaps = perhaps || err != nil && outcome(err) != driver.NotDone
		if err == nil && !found && !perhaps {
			return missing
		}
		return err
	})
	return found, err
}

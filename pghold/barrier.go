package pghold

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// leavingFor is how long a party that leaves a barrier waits for the server's word: others count
// it meanwhile.
const leavingFor = 5 * time.Second

// arriving is the context of an arrival: at a barrier it ends later than the caller's.
func arriving(ctx context.Context, cl *rowClaim) (context.Context, context.CancelFunc) {
	if cl.kind != driver.Barrier {
		return ctx, func() {}
	}
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(leavingFor, cancel) })
	return later, func() { stop(); cancel() }
}

// maybeCounted is err of a party that others may have counted.
func maybeCounted(err error) error {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok {
		return err
	}
	c := *e
	c.Outcome = driver.Unknown
	return &c
}

// leaveSQL takes a party back and tells the token that it had been granted by then. The row of the
// barrier is locked by look, before drop_gathered.
const leaveSQL = `select coalesce(t.tok, 0), holdfast_v9.drop_gathered($1, $2, $3, $4, null)
from (select max(tok) as tok from holdfast_v9.look($1, $2, array[$3::bigint], $4, true)) t`

// leaveBarrier takes a party back, unless all had come before.
func (c *client) leaveBarrier(ctx context.Context, l *pgLink, cl *rowClaim, session *driver.Session) error {
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leavingFor)
	defer cancel()
	var token int64
	var was bool
	err := c.onHome(leaving, l, func(ctx context.Context, q querier) error {
		return q.QueryRow(ctx, leaveSQL, c.args(cl.key.space(), cl.key.n, cl.id, c.me(l))...).Scan(&token, &was)
	}, nil)
	switch {
	case err != nil:
		c.ungather(cl, cl.id)
		return maybeCounted(c.whyStopped(ctx, cl.r.Session))
	case !was:
		return maybeCounted(c.whyStopped(ctx, cl.r.Session))
	case token > 0:
		c.hold(l, cl, cl.id, token, session)
		return nil
	}
	return c.whyStopped(ctx, cl.r.Session)
}

package pghold

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/barrier"
)

// arriving is the context of an arrival: at a barrier it ends later than the caller's.
func arriving(ctx context.Context, cl *rowClaim) (context.Context, context.CancelFunc) {
	if cl.kind != driver.Barrier {
		return ctx, func() {}
	}
	return barrier.Arriving(ctx)
}

// leaveSQL takes a party back and tells the token that it had been granted by then. The row of the
// barrier is locked by look, before drop_gathered.
const leaveSQL = `select coalesce(t.tok, 0), pg_catalog.cardinality(holdfast_v10.drop_gathered($1, $2, array[$3::bigint], $4)) > 0
from (select max(tok) as tok from holdfast_v10.look($1, $2, array[$3::bigint], $4, true)) t`

// leaveBarrier takes a party back, unless all had come before.
func (c *client) leaveBarrier(ctx context.Context, l *pgLink, cl *rowClaim, session *driver.Session) error {
	leaving, cancel := barrier.Leaving(ctx)
	defer cancel()
	var token int64
	var was bool
	err := c.onHome(leaving, l, func(ctx context.Context, q querier) error {
		return q.QueryRow(ctx, leaveSQL, c.args(cl.key.space(), cl.key.n, cl.id, c.me(l))...).Scan(&token, &was)
	}, nil)
	switch {
	case err != nil:
		c.ungather(cl, cl.id)
		return barrier.MaybeCounted(c.whyStopped(ctx, cl.r.Session))
	case !was:
		return barrier.MaybeCounted(c.whyStopped(ctx, cl.r.Session))
	case token > 0:
		c.hold(l, cl, cl.id, token, session)
		return nil
	}
	return c.whyStopped(ctx, cl.r.Session)
}

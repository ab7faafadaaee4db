package pghold

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
)

// sweepStep is how many names are swept in one transaction.
const sweepStep = 500

// Sweep removes what idle names have left: what the dead described, elections that nobody
// holds, and if limits are asked for, idle semaphores and barriers. Locks leave nothing.
func (c *client) Sweep(ctx context.Context, r *driver.SweepRequest) (reply driver.SweepReply, err error) {
	err = c.ask(ctx, func(ctx context.Context, q querier) error {
		_, err := q.Exec(ctx, "select holdfast.sweep(0)", c.mode)
		return err
	})
	for after := new(""); err == nil && after != nil; {
		err = c.ask(ctx, func(ctx context.Context, q querier) error {
			var removed int64
			var last *string
			err := q.QueryRow(ctx, "select removed, last from holdfast.sweep_idle($1, $2, $3, $4)", c.args(r.Prefix, *after, r.Limits, int32(sweepStep))...).
				Scan(&removed, &last)
			if err == nil {
				reply.Removed += removed
				after = last
			}
			return err
		})
	}
	return reply, err
}

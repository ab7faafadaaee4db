package drivertest_test

import (
	"context"
	"strings"

	"github.com/holdfast-io/holdfast/driver"
)

func (t *toy) Sweep(ctx context.Context, r *driver.SweepRequest) (reply driver.SweepReply, err error) {
	if err := ctx.Err(); err != nil && !t.e.has("deaf sweep") {
		return reply, err
	}
	t.e.do(func() { reply.Removed = t.e.sweep(r) })
	return reply, nil
}

// sweep forgets idle names. Only limits and counts are remembered of them.
func (e *engine) sweep(r *driver.SweepRequest) (removed int64) {
	if e.has("sweeps what is held") {
		for _, c := range e.claims {
			if c.token != 0 && strings.HasPrefix(c.Wants[0].Name, r.Prefix) {
				e.free(c, false, nil)
				break
			}
		}
	}
	if e.has("sweep restarts tokens") {
		e.rev = 0
	}
	for o := range e.objects {
		holders, waiters := e.split(o.name)
		limit := r.Limits && (o.kind == driver.Semaphore || o.kind == driver.Barrier) && !e.has("sweeps no limits")
		if strings.HasPrefix(o.name, r.Prefix) && len(holders)+len(waiters) == 0 && (limit || e.has("sweeps data")) {
			delete(e.objects, o)
			removed++
		}
	}
	return removed
}

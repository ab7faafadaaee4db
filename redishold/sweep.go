package redishold

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
)

// Sweep removes what idle names have left: of semaphores and barriers their limits,
// if that is asked for. Other names leave nothing. Each step keeps the server for some
// milliseconds.
func (c *client) Sweep(ctx context.Context, r *driver.SweepRequest) (reply driver.SweepReply, err error) {
	for after := ""; ; {
		step, err := c.ask(ctx, r.Prefix, sweepScript, r.Prefix, after, bit(r.Limits))
		if err != nil {
			return reply, err
		}
		in := reader{rest: step[1:]}
		reply.Removed += in.int()
		next, left := in.text(), in.flag()
		if next == "" && !left || in.err != nil {
			return reply, in.err
		}
		if next != "" {
			after = next
		}
	}
}

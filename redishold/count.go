package redishold

import (
	"context"
	"math"
	"strconv"

	"github.com/holdfast-io/holdfast/driver"
)

// Redis counts in int64. A uint64 is kept less 2⁶³, so that it has the same
// order and the same ends.
const bias = 1 << 63

// kept is a counter's number as the server keeps it.
func kept(n uint64, unsigned bool) string {
	if unsigned {
		n ^= bias
	}
	return strconv.FormatInt(int64(n), 10)
}

// told is the number that the server keeps as text.
func told(text string, unsigned bool) (uint64, error) {
	r := reader{rest: []string{text}}
	n := r.uint()
	if unsigned {
		n ^= bias
	}
	return n, r.err
}

// steps are the parts of a change, all of one sign, that INCRBY can take: a
// change may have 64 bits and a sign. 0 has none: INCRBY refuses -0.
func steps(n uint64, negative bool) []string {
	var parts []string
	for {
		part := min(n, math.MaxInt64)
		text := strconv.FormatUint(part, 10)
		if negative && part > 0 {
			text = "-" + text
		}
		parts = append(parts, text)
		if n -= part; n == 0 {
			return parts
		}
	}
}

// change is what an operation does to a counter, as a size and a sign.
func change(r *driver.CountRequest) []string {
	negative := r.Op == driver.CountSub
	if !r.Unsigned && int64(r.A) < 0 {
		return steps(-r.A, !negative)
	}
	return steps(r.A, negative)
}

// Count changes a counter.
func (c *client) Count(ctx context.Context, r *driver.CountRequest) (driver.CountReply, error) {
	if reply, done, err := c.incrBy(ctx, r); done {
		return reply, err
	}
	args := []string{r.Name, bit(r.Unsigned)}
	switch r.Op {
	case driver.CountLoad:
		args = append(args, "load")
	case driver.CountAdd, driver.CountSub:
		args = append(append(args, "add"), change(r)...)
	case driver.CountStore:
		args = append(args, "store", kept(r.A, r.Unsigned))
	case driver.CountSwap:
		args = append(args, "swap", kept(r.A, r.Unsigned), kept(r.B, r.Unsigned))
	}
	reply, err := c.askOnce(ctx, r.ID, r.Name, countScript, args...)
	if err != nil {
		return driver.CountReply{}, err
	}
	if r.Op == driver.CountAdd || r.Op == driver.CountSub {
		c.found(c.counterKey(r))
	}
	in := reader{rest: reply[1:]}
	value, err := told(in.text(), r.Unsigned)
	if err != nil {
		return driver.CountReply{}, err
	}
	return driver.CountReply{Value: value, Swapped: in.flag()}, in.err
}

// Reserve takes numbers of a sequence.
func (c *client) Reserve(ctx context.Context, r *driver.ReserveRequest) (driver.ReserveReply, error) {
	args := []string{r.Name, kept(r.Start, true)}
	if r.N > 0 {
		args = append(args, steps(r.N, false)...)
	}
	reply, err := c.askOnce(ctx, r.ID, r.Name, reserveScript, args...)
	if err != nil {
		return driver.ReserveReply{}, err
	}
	in := reader{rest: reply[1:]}
	first, err := told(in.text(), true)
	return driver.ReserveReply{First: first}, err
}

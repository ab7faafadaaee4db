package holdfast

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
)

// counting is what both counters are.
type counting struct {
	s        *Space
	name     string
	unsigned bool
	err      error
}

func (c *counting) do(ctx context.Context, op string, r *driver.CountRequest) (driver.CountReply, error) {
	if err := firstError(c.err, c.s.r.ready(ctx, driver.FeatureCounter)); err != nil {
		return driver.CountReply{}, wrap(op, c.name, err)
	}
	r.Name, r.Unsigned = c.name, c.unsigned
	if r.ID == [16]byte{} {
		r.ID, r.Once = newID(), true
	}
	reply, err := c.s.r.d.Count(ctx, r)
	return reply, c.s.r.wrap(ctx, op, c.name, driver.FeatureCounter, err)
}

func (c *counting) delete(ctx context.Context) error {
	return c.s.remove(ctx, driver.Counter, c.name, driver.FeatureCounter, c.err)
}

// Counter is a number that everybody counts on, an int64. It is 0 until it is
// changed, and stops at the ends of its range instead of wrapping. A failed
// call may have counted: [NotDone] tells when it surely did not. Safe for
// concurrent use.
type Counter struct{ c counting }

// Counter names a counter; it does no I/O.
func (s *Space) Counter(name string) *Counter {
	name = s.prefix + name
	return &Counter{counting{s: s, name: name, err: firstError(checkName(name, s.r.maxName()), s.cfg.err)}}
}

func (c *Counter) do(ctx context.Context, op string, r *driver.CountRequest) (int64, error) {
	reply, err := c.c.do(ctx, op, r)
	return int64(reply.Value), err
}

// Add adds delta, which may be negative, and returns the sum.
func (c *Counter) Add(ctx context.Context, delta int64) (int64, error) {
	return c.do(ctx, "add", &driver.CountRequest{Op: driver.CountAdd, A: uint64(delta)})
}

// Load returns the value.
func (c *Counter) Load(ctx context.Context) (int64, error) {
	return c.do(ctx, "load", &driver.CountRequest{Op: driver.CountLoad})
}

// Store sets the value.
func (c *Counter) Store(ctx context.Context, value int64) error {
	_, err := c.do(ctx, "store", &driver.CountRequest{Op: driver.CountStore, A: uint64(value)})
	return err
}

// CompareAndSwap sets the value to new if it is old. A counter that was never
// changed is 0.
func (c *Counter) CompareAndSwap(ctx context.Context, old, new int64) (swapped bool, err error) {
	reply, err := c.c.do(ctx, "compare and swap", &driver.CountRequest{Op: driver.CountSwap, A: uint64(old), B: uint64(new)})
	return reply.Swapped, err
}

// Reset is Store of 0.
func (c *Counter) Reset(ctx context.Context) error { return c.Store(ctx, 0) }

// Delete forgets the counter, also whether it is signed.
func (c *Counter) Delete(ctx context.Context) error { return c.c.delete(ctx) }

// Unsigned is the counter as a uint64 that stops at 0. A counter is signed or
// unsigned from its first change on; using it as the other is ErrConflict.
func (c *Counter) Unsigned() *UnsignedCounter {
	u := &UnsignedCounter{c.c}
	u.c.unsigned = true
	return u
}

// UnsignedCounter is a [Counter] without negative numbers.
type UnsignedCounter struct{ c counting }

func (c *UnsignedCounter) do(ctx context.Context, op string, r *driver.CountRequest) (uint64, error) {
	reply, err := c.c.do(ctx, op, r)
	return reply.Value, err
}

// Add adds delta and returns the sum, at most the largest uint64.
func (c *UnsignedCounter) Add(ctx context.Context, delta uint64) (uint64, error) {
	return c.do(ctx, "add", &driver.CountRequest{Op: driver.CountAdd, A: delta})
}

// Sub subtracts delta and returns the difference, at least 0.
func (c *UnsignedCounter) Sub(ctx context.Context, delta uint64) (uint64, error) {
	return c.do(ctx, "sub", &driver.CountRequest{Op: driver.CountSub, A: delta})
}

// Load returns the value.
func (c *UnsignedCounter) Load(ctx context.Context) (uint64, error) {
	return c.do(ctx, "load", &driver.CountRequest{Op: driver.CountLoad})
}

// Store sets the value.
func (c *UnsignedCounter) Store(ctx context.Context, value uint64) error {
	_, err := c.do(ctx, "store", &driver.CountRequest{Op: driver.CountStore, A: value})
	return err
}

// CompareAndSwap sets the value to new if it is old.
func (c *UnsignedCounter) CompareAndSwap(ctx context.Context, old, new uint64) (swapped bool, err error) {
	reply, err := c.c.do(ctx, "compare and swap", &driver.CountRequest{Op: driver.CountSwap, A: old, B: new})
	return reply.Swapped, err
}

// Reset is Store of 0.
func (c *UnsignedCounter) Reset(ctx context.Context) error { return c.Store(ctx, 0) }

// Delete forgets the counter, also whether it is signed.
func (c *UnsignedCounter) Delete(ctx context.Context) error { return c.c.delete(ctx) }

package client

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
	"github.com/holdfast-io/holdfast/internal/core"
)

// Force ends the claim on a name that has a token.
func (c *Client) Force(ctx context.Context, r *driver.ForceRequest) (driver.ForceReply, error) {
	cmd := core.Command{Op: core.OpForce, Name: r.Name, Token: uint64(r.Token)}
	if r.Now {
		cmd.Flags = core.Now
	}
	res, at, err := c.ask(ctx, &cmd)
	return driver.ForceReply{Until: convert.Left(at, res.Deadline)}, err
}

// Resize sets a semaphore's limit.
func (c *Client) Resize(ctx context.Context, name string, limit int64) error {
	_, _, err := c.ask(ctx, &core.Command{Op: core.OpResize, Name: name, Limit: limit})
	return err
}

// Delete removes an idle object.
func (c *Client) Delete(ctx context.Context, kind driver.ResourceKind, name string) error {
	_, _, err := c.ask(ctx, &core.Command{Op: core.OpDelete, Kind: core.Kind(kind), Name: name})
	if errors.Is(err, driver.ErrConflict) {
		return convert.InUse(ctx, c, kind, name, err)
	}
	return err
}

// Sweep deletes idle semaphores and barriers, if it is asked to: nothing else
// outlives its last user.
func (c *Client) Sweep(ctx context.Context, r *driver.SweepRequest) (driver.SweepReply, error) {
	if err := c.open(ctx); err != nil {
		return driver.SweepReply{}, err
	}
	return convert.Sweep(ctx, c, r)
}

// Count changes a counter. One that its caller may ask for again is counted once.
func (c *Client) Count(ctx context.Context, r *driver.CountRequest) (driver.CountReply, error) {
	cmd := &core.Command{Op: core.OpCount, Name: r.Name, Count: core.CountOp(r.Op), Unsigned: r.Unsigned, A: r.A, B: r.B}
	var res core.Result
	var err error
	if r.Once || r.ID == [16]byte{} || r.Op == driver.CountLoad {
		res, _, err = c.ask(ctx, cmd)
	} else {
		res, _, err = c.askOnce(ctx, r.ID, cmd)
	}
	return driver.CountReply{Value: res.Number, Swapped: res.OK}, err
}

// Reserve takes numbers of a sequence.
func (c *Client) Reserve(ctx context.Context, r *driver.ReserveRequest) (driver.ReserveReply, error) {
	res, _, err := c.ask(ctx, &core.Command{Op: core.OpReserve, Name: r.Name, A: r.N, B: r.Start})
	return driver.ReserveReply{First: res.Number}, err
}

// CountDown takes something off a latch.
func (c *Client) CountDown(ctx context.Context, r *driver.CountDownRequest) (driver.CountDownReply, error) {
	res, _, err := c.ask(ctx, &core.Command{Op: core.OpCountDown, Name: r.Name, A: uint64(r.By), Limit: r.Count})
	return driver.CountDownReply{Left: int64(res.Number)}, err
}

// Limit asks a limiter.
func (c *Client) Limit(ctx context.Context, r *driver.LimitRequest) (driver.LimitReply, error) {
	res, _, err := c.ask(ctx, &core.Command{Op: core.OpLimit, Name: r.Name, Ask: convert.Ask(r)})
	return convert.LimitReply(r, res.Limit), err
}

package convert

import (
	"context"
	"errors"
	"io/fs"

	"github.com/holdfast-io/holdfast/driver"
)

// sweepPage is how many names are looked at in one step.
const sweepPage = 1000

// Sweep sweeps a machine, in which only semaphores and barriers outlive their
// last user: idle ones are deleted, each on its own, if the request asks for it.
func Sweep(ctx context.Context, d driver.Driver, r *driver.SweepRequest) (reply driver.SweepReply, err error) {
	if !r.Limits {
		return reply, nil
	}
	ask := &driver.InspectRequest{Name: r.Prefix, Prefix: true, Max: sweepPage}
	for more := true; more && err == nil; {
		var page driver.InspectReply
		if page, err = d.Inspect(ctx, ask); err != nil {
			break
		}
		err = sweepPageOf(ctx, d, page.Resources, &reply)
		ask.After, more = page.Next, page.Next != ""
	}
	return reply, err
}

// sweepPageOf deletes the idle ones of a page. One that is used or deleted
// meanwhile is no longer ours to judge.
func sweepPageOf(ctx context.Context, d driver.Driver, page []driver.Resource, reply *driver.SweepReply) error {
	for i := range page {
		r := &page[i]
		if !limited(r.Kind) || len(r.Holders)+len(r.Waiters) > 0 {
			continue
		}
		err := d.Delete(ctx, r.Kind, r.Name)
		switch {
		case err == nil:
			reply.Removed++
		case errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrConflict), errors.Is(err, fs.ErrNotExist):
		default:
			return err
		}
	}
	return nil
}

// limited reports whether a kind keeps a limit that its next user brings along.
func limited(k driver.ResourceKind) bool { return k == driver.Semaphore || k == driver.Barrier }

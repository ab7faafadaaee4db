package filehold

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
)

// maxUnsure is how many commands a Space may have of which nobody knows whether they are
// on disk. Without a bound, callers that never ask again would fill the memory;
// forgetting one that is asked for again would do it twice.
const maxUnsure = 1 << 16

// askOnce is ask for a command that its caller may ask for again under the same id. It
// has taken effect when its caller leaves a disk that is slow, or is told that it
// failed: the repetition then only waits for the disk.
func (c *client) askOnce(ctx context.Context, id [16]byte, cmd core.Command) (*order, error) {
	ctx, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer c.end()
	o, err := c.first(ctx, id, cmd)
	if err != nil {
		return nil, err
	}
	if err := c.e.flush(ctx, o.end); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unsure, id) // its caller knows, and will not ask again
	return o, nil
}

// first is the command as it took effect the first time, which is now if it has not yet.
func (c *client) first(ctx context.Context, id [16]byte, cmd core.Command) (*order, error) {
	c.mu.Lock()
	o, full := c.unsure[id], len(c.unsure) >= maxUnsure
	c.mu.Unlock()
	if o != nil {
		return o, nil
	}
	if full {
		return nil, driver.Errorf("", cmd.Name, driver.ErrExhausted,
			"of %d calls of this Space it is not known whether they are on disk, which is the most there can be: repeat those first", maxUnsure)
	}
	o, err := c.write(ctx, cmd)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsure[id] = o
	return o, nil
}

package gather

import (
	"context"
	"fmt"
	"sync"
)

// calls are those to the file systems of this machine, one at a time for each path: one to a
// mount that is gone never returns, and every further one would take another thread.
type calls struct {
	mu    sync.Mutex
	under map[string]chan struct{} // closed when the call has returned
}

var local = calls{under: map[string]chan struct{}{}}

// within is what f finds out about a path, or an error if ctx ends before: then f goes on.
func within[T any](ctx context.Context, path string, f func() (T, error)) (found T, err error) {
	if err := local.begin(ctx, path); err != nil {
		return found, err
	}
	type answer struct {
		found T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		defer local.end(path)
		found, err := f()
		done <- answer{found, err}
	}()
	select {
	case a := <-done:
		return a.found, a.err
	case <-ctx.Done():
		return found, silent(path)
	}
}

func silent(path string) error {
	return fmt.Errorf("%s: the file system did not answer in time", path)
}

// begin waits until nobody asks about the path.
func (c *calls) begin(ctx context.Context, path string) error {
	for {
		c.mu.Lock()
		other := c.under[path]
		if other == nil {
			c.under[path] = make(chan struct{})
		}
		c.mu.Unlock()
		if other == nil {
			return nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return silent(path)
		}
	}
}

func (c *calls) end(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.under[path])
	delete(c.under, path)
}

package filehold

import (
	"context"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/filelog"
)

// flush returns when the log is on disk up to p, or when ctx ends: then it goes
// on in the background.
func (e *engine) flush(ctx context.Context, p filelog.Position) error {
	if ctx.Done() == nil {
		return e.sync(ctx, p)
	}
	e.ref()
	over := make(chan error, 1)
	go func() {
		err := e.sync(ctx, p)
		e.unref() // before the answer: a caller that then closes the Space has closed its files
		over <- err
	}()
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
		return stopped(ctx, driver.Unknown)
	}
}

// sync puts the log on disk up to p. One of which a sync has failed is replaced first: nothing
// that is written to it would ever be known to be on disk. If that fails, Flush says so.
func (e *engine) sync(ctx context.Context, p filelog.Position) error {
	e.mu.Lock()
	suspected := e.log.Suspected()
	e.mu.Unlock()
	if suspected {
		_ = e.locked(ctx, e.compact)
	}
	return e.log.Flush(p)
}

// here is up to where the log was applied.
func (e *engine) here() filelog.Position {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.log.Here()
}

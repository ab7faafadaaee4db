package filehold

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/filelog"
	"github.com/holdfast-io/holdfast/internal/gaveup"
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
		return gaveup.Error(ctx, driver.Unknown)
	}
}

// maxReplaced is how often a log is replaced for one change.
const maxReplaced = 3

// sync puts the log on disk up to p. One of which a sync has failed, here or in another process at
// any moment, is replaced: nothing that is written to it would ever be known to be on disk. What was
// written before is in what takes its place. Flush says so if it cannot be replaced.
func (e *engine) sync(ctx context.Context, p filelog.Position) error {
	err := e.log.Flush(p)
	for n := 0; n < maxReplaced && errors.Is(err, filelog.ErrSuspect) && e.locked(ctx, e.compact) == nil; n++ {
		err = e.log.Flush(p)
	}
	return err
}

// here is up to where the log was applied.
func (e *engine) here() filelog.Position {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.log.Here()
}

package filehold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/holdfast-io/holdfast/driver"
)

// syncer puts the log on disk, once for all waiters together.
type syncer struct {
	mu   sync.Mutex
	done position
}

// flush returns when the log is on disk up to p, or when ctx ends: then it goes
// on in the background.
func (e *engine) flush(ctx context.Context, p position) error {
	if ctx.Done() == nil {
		return e.flushNow(p)
	}
	e.ref()
	over := make(chan error, 1)
	go func() {
		err := e.flushNow(p)
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

// here is up to where the log was applied.
func (e *engine) here() position {
	e.mu.Lock()
	defer e.mu.Unlock()
	return at(e.log.generation, e.log.read)
}

// flushNow does it, unless it was done. Who comes while another does it shares
// the next one.
func (e *engine) flushNow(p position) error {
	s := &e.syncer
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done >= p {
		return nil
	}
	read := e.here()
	e.mu.Lock()
	fd, err := dup(e.log.fd)
	e.mu.Unlock()
	if err == nil {
		err = errors.Join(e.syncLog(fd), syscall.Close(fd))
	}
	if err != nil {
		return &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.Unknown, Err: fmt.Errorf("sync the log: %w", err)}
	}
	s.done = read
	for old := e.ctl.load(wDurable); old < uint64(read) && !e.ctl.swap(wDurable, old, uint64(read)); old = e.ctl.load(wDurable) {
	}
	return nil
}

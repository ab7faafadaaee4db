package storage

import (
	"errors"
	"fmt"
	"syscall"
)

// Full reports that the files take Options.SoftLimit bytes or more, or that Probe has
// found less room than Options.Reserve: refuse what makes the state grow, go on with what
// shrinks it, then snapshot and compact. The store itself goes on as long as it finds
// room.
func (s *Store) Full() bool {
	return s.low.Load() || s.opts.SoftLimit > 0 && s.Size() >= s.opts.SoftLimit
}

// Probe looks how much room the file system has. The store does so by itself when it
// takes more of it; call it now and then, since others take and free room, too.
func (s *Store) Probe() {
	space, ok := s.fs.(Space)
	if !ok || s.opts.Reserve == 0 {
		return
	}
	free, err := space.Free(s.dir)
	s.low.Store(err == nil && free >= 0 && free < s.opts.Reserve+s.nextSnapshot())
}

// nextSnapshot is how many bytes the next snapshot will take, about.
func (s *Store) nextSnapshot() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, f := range s.snaps {
		if f.good {
			return f.size
		}
	}
	return 0
}

// lacksRoom reports whether a write failed for lack of room only.
func lacksRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, errQuota) }

// noRoom is the error of something that was given up before it changed anything.
func (s *Store) noRoom(op, file string, err error) error {
	s.low.Store(s.opts.Reserve > 0)
	return failed(op, file, fmt.Errorf("%w: %w", ErrNoRoom, err), "free some space on the disk of "+s.dir)
}

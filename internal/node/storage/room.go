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
	return s.low.Load() != nil || s.opts.SoftLimit > 0 && s.Size() >= s.opts.SoftLimit
}

// Probe looks how much room the file system has. The store does so by itself when it
// takes more of it; call it now and then, since others take and free room, too.
func (s *Store) Probe() {
	space, ok := s.fs.(Space)
	if !ok || s.opts.Reserve == 0 {
		return
	}
	free, err := space.Free(s.dir)
	again, next := s.reusable(), s.nextSnapshot()
	if err != nil || free < 0 || free+again >= s.opts.Reserve+next {
		s.low.Store(nil) // not known, or enough
		return
	}
	s.low.Store(new(fmt.Sprintf("%s of the disk are free, and %s in files of the log that count as free; needed are %s in reserve, and %s for a snapshot",
		mebi(free), mebi(again), mebi(s.opts.Reserve), mebi(next))))
}

// reusable is what segments that wait to be used again count as room: the log grows into them
// before it takes any of the disk. Snapshots cannot, so that they stand for half of the reserve at most.
func (s *Store) reusable() (bytes int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, f := range s.spares {
		bytes += f.size
	}
	return min(bytes, s.opts.Reserve/2)
}

// Lack says why Full is true, in numbers as far as they are known; "": it is not.
func (s *Store) Lack() string {
	if s.opts.SoftLimit > 0 && s.Size() >= s.opts.SoftLimit {
		return fmt.Sprintf("the data takes %s, and may take %s", mebi(s.Size()), mebi(s.opts.SoftLimit))
	}
	if why := s.low.Load(); why != nil {
		return *why
	}
	return ""
}

// mebi is a number of bytes for a reader.
func mebi(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// fits refuses to make a store on a disk that has no room for it, before anything is written.
func (s *Store) fits() error {
	space, ok := s.fs.(Space)
	if !ok {
		return nil
	}
	need := s.opts.SegmentSize + voteSize + identitySize
	free, err := space.Free(s.dir)
	if err != nil || free < 0 || free >= need {
		return nil // not known, or enough
	}
	return failed("create", s.dir, fmt.Errorf("%w: %s of the disk are free, and a new node takes %s", ErrNoRoom, mebi(free), mebi(need)), "free some space on the disk, or name a directory on a larger one")
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

// noRoom is the error of something that was given up before it changed anything. Until the next look at the disk that
// counts for more than how much of it is free: there may be a quota.
func (s *Store) noRoom(op, file string, err error) error {
	if s.opts.Reserve > 0 {
		s.low.Store(new(fmt.Sprintf("a write found no room: %v", err)))
	}
	return failed(op, file, fmt.Errorf("%w: %w", ErrNoRoom, err), "free some space on the disk of "+s.dir)
}

// named is a lock that knows whether its file still has its name.
type named interface{ Named() error }

// Present ends the store if its directory was removed or replaced: what it answers would be known to
// nobody later, and another process could be given the same directory.
func (s *Store) Present() error {
	s.mu.RLock()
	lock, ok := s.lock.(named)
	s.mu.RUnlock()
	if !ok {
		return nil
	}
	err := lock.Named()
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = failed("look at", s.path(lockName), err, adviseGone)
	}
	return s.err
}

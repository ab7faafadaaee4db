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
	s.free.Store(free)
	s.low.Store(err == nil && free >= 0 && free+s.reusable() < s.opts.Reserve+s.nextSnapshot())
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

// Lack says in numbers why Full is true; "": it is not.
func (s *Store) Lack() string {
	switch {
	case s.opts.SoftLimit > 0 && s.Size() >= s.opts.SoftLimit:
		return fmt.Sprintf("the data takes %s, and may take %s", mebi(s.Size()), mebi(s.opts.SoftLimit))
	case s.low.Load():
		return fmt.Sprintf("%s of the disk are free, and %s in files of the log that count as free; needed are %s in reserve, and %s for a snapshot",
			mebi(s.free.Load()), mebi(s.reusable()), mebi(s.opts.Reserve), mebi(s.nextSnapshot()))
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

// noRoom is the error of something that was given up before it changed anything.
func (s *Store) noRoom(op, file string, err error) error {
	s.low.Store(s.opts.Reserve > 0)
	return failed(op, file, fmt.Errorf("%w: %w", ErrNoRoom, err), "free some space on the disk of "+s.dir)
}

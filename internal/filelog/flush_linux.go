package filelog

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/holdfast-io/holdfast/driver"
)

// Flush returns when the log is on disk up to p. Callers that come while one is under
// way share the next one. The guard must not be held.
//
// Linux tells of a page that it could not write once, and takes it for written then: the
// next sync succeeds, and the page is not on disk. So after one that failed no other
// makes anything of that generation durable, for any process, until it is replaced: Flush
// fails with [ErrSuspect].
func (l *Log) Flush(p Position) error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	if l.flushed >= p {
		return nil
	}
	read, err := l.sync()
	if err == nil && l.suspects(read) {
		err = ErrSuspect
	}
	if err != nil {
		return &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.Unknown, Err: fmt.Errorf("sync %s: %w; it may not be on disk: see that the disk works and has room", l.path(), err)}
	}
	l.flushed = read
	l.raise(Durable, uint64(read))
	return nil
}

// sync puts on disk what was applied, and returns up to where that is.
func (l *Log) sync() (Position, error) {
	l.Guard.Lock()
	read := l.Here()
	fd, err := dup(l.now.fd)
	l.Guard.Unlock()
	if err != nil {
		return read, err
	}
	return read, errors.Join(l.synced(fd, read), syscall.Close(fd))
}

// synced syncs a file, and notes for all processes if that fails.
func (l *Log) synced(fd int, read Position) error {
	err := l.Sync(fd)
	if err != nil {
		l.raise(Suspect, read.Generation())
	}
	return err
}

// suspected reports that a sync of the log has failed: it has to be replaced.
func (l *Log) suspected() bool { return l.suspects(l.Here()) }

func (l *Log) suspects(p Position) bool { return l.Shared.Load(Suspect) >= p.Generation() }

// raise sets a shared word that only grows.
func (l *Log) raise(w Word, to uint64) {
	for {
		old := l.Shared.Load(w)
		if old >= to || l.Shared.Swap(w, old, to) || l.Shared.Err() != nil {
			return
		}
	}
}

// FlushNow puts all that was written on disk, with the guard held.
func (l *Log) FlushNow() error {
	if err := l.synced(l.now.fd, l.Here()); err != nil {
		return &fs.PathError{Op: "sync", Path: l.path(), Err: err}
	}
	return nil
}

// dup is another descriptor of a file, which programs that this one starts do not get.
func dup(fd int) (int, error) {
	for {
		n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
		if errno == 0 {
			return int(n), nil
		}
		if errno != syscall.EINTR {
			return -1, errno
		}
	}
}

package filelog

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/holdfast-io/holdfast/driver"
)

// Flush returns when the log is on disk up to p. Callers that come while one is under
// way share the next one. The guard must not be held.
func (l *Log) Flush(p Position) error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	if l.flushed >= p {
		return nil
	}
	l.Guard.Lock()
	read := l.Here()
	fd, err := dup(l.now.fd)
	l.Guard.Unlock()
	if err == nil {
		err = errors.Join(l.Sync(fd), syscall.Close(fd))
	}
	if err != nil {
		return &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.Unknown, Err: fmt.Errorf("sync the log: %w", err)}
	}
	l.flushed = read
	l.raiseDurable(read)
	return nil
}

func (l *Log) raiseDurable(to Position) {
	for {
		old := l.Shared.Load(Durable)
		if old >= uint64(to) || l.Shared.Swap(Durable, old, uint64(to)) || l.Shared.Err() != nil {
			return
		}
	}
}

// FlushNow puts all that was written on disk, with the guard held.
func (l *Log) FlushNow() error { return l.Sync(l.now.fd) }

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

package filelog

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// Trim cuts off what a process that was killed has written and never counted, and
// refuses a log that was cut short or removed: what is written to it would be lost.
// It needs the lock between processes, and all that counts must have been applied.
func (l *Log) Trim() error {
	var st syscall.Stat_t
	if err := syscall.Fstat(l.now.fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: l.path(), Err: err}
	}
	switch {
	case st.Nlink == 0:
		return l.now.damaged(0, errors.New("it was removed while it was in use"))
	case uint64(st.Size) < l.now.read:
		return l.now.damaged(uint64(st.Size), errors.New("it was cut short while it was in use"))
	case uint64(st.Size) > l.now.read:
		return l.now.Truncate(int64(l.now.read))
	}
	return nil
}

// Salvage is Load after a restart of the machine: it takes the log as far as it is
// whole and cuts off the rest, a record that its writer was never told to be on disk.
// What is known to have been on disk has to be there. It needs the lock between
// processes.
func (l *Log) Salvage() error {
	l.Shared.Store(Replacing, 0)
	f, h, err := l.open()
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := f.rest()
	if err != nil {
		return err
	}
	bad := f.skipWhole(b)
	durable := Position(l.Shared.Load(Durable))
	if whole := At(h.generation, f.read); whole < durable || f.read < h.snapshot {
		return f.damaged(f.read, fmt.Errorf("what was on disk is not whole: %w", bad))
	}
	if err := errors.Join(f.Truncate(int64(f.read)), f.Sync()); err != nil {
		return err
	}
	l.switchTo(At(h.generation, f.read))
	return l.Load()
}

// skipWhole moves over the records of b, which begins where f was read to, and says
// what ends them.
func (f *file) skipWhole(b []byte) error {
	for len(b) > 0 {
		_, rest, err := decodeRecord(b)
		if err != nil {
			return err
		}
		f.read += uint64(len(b) - len(rest))
		b = rest
	}
	return errors.New("records at its end are missing")
}

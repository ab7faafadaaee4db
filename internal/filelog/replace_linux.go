package filelog

import (
	"errors"
	"os"
)

// Compact replaces the log if that is worth it or a sync of it has failed, and reports
// whether it did. It needs the lock between processes, and everything before must have been applied. A
// replacement that fails leaves the log as it was, and is tried again by the next.
func (l *Log) Compact() (bool, error) {
	if l.now.read < max(l.CompactAt, 4*l.now.snapshot) && !l.suspected() {
		return false, nil
	}
	next := l.now.generation + 1
	last, _ := appendRecord(nil, Record{Kind: Moved})
	l.Shared.Store(Replacing, 1)
	if err := l.now.append(last); err != nil {
		return false, err
	}
	size, err := l.writeWhole(next)
	if err != nil {
		return false, errors.Join(err, l.repair())
	}
	l.switchTo(At(next, size))
	return true, l.follow()
}

// writeWhole writes a new generation, puts it on disk and into its place, and returns
// its size.
func (l *Log) writeWhole(generation uint64) (uint64, error) {
	b, err := l.snapshot(generation)
	if err != nil {
		return 0, err
	}
	tmp, err := l.Temp()
	if err != nil {
		return 0, err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), l.path())
	}
	if err != nil {
		return 0, err
	}
	return uint64(len(b)), syncDir(l.Dir)
}

// syncDir makes a rename last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// snapshot is the beginning of a generation: the state as it is.
func (l *Log) snapshot(generation uint64) ([]byte, error) {
	b := make([]byte, headerSize)
	var bad error
	l.State.Snapshot(func(r Record) {
		if bad == nil {
			b, bad = appendRecord(b, r)
		}
	})
	appendHeader(b[:0], header{generation, uint64(len(b))})
	return b, bad
}

// follow finishes the log that was replaced and goes on with the next one.
func (l *Log) follow() error {
	if err := l.readOut(); err != nil {
		return err
	}
	f, h, err := l.open()
	if err != nil {
		return err
	}
	if h.generation != l.now.generation+1 {
		_ = f.Close()
		return ErrBehind
	}
	_ = l.now.Close()
	f.read = h.snapshot
	l.now = f
	return nil
}

// readOut applies the rest of a log that has its last record.
func (l *Log) readOut() error {
	b, err := l.now.rest()
	for err == nil && len(b) > 0 {
		if r, _, bad := decodeRecord(b); bad == nil && r.Kind == Moved {
			return nil
		}
		b, err = l.applyFirst(b)
	}
	if err == nil {
		err = l.now.damaged(l.now.read, errors.New("it was replaced, but does not say so"))
	}
	return err
}

// switchTo tells every process that a log, which is on disk, is in its place.
func (l *Log) switchTo(p Position) {
	l.Shared.Store(End, uint64(p))
	l.Shared.Store(Durable, uint64(p))
	l.Shared.Store(Replacing, 0)
}

// Settle completes a replacement that a process left half done when it ended. It
// needs the lock between processes.
func (l *Log) Settle() error {
	if l.Shared.Load(Replacing) == 0 {
		return nil
	}
	return l.repair()
}

// repair finds out whether a log was put into its place, and says so.
func (l *Log) repair() error {
	f, h, err := l.open()
	if err != nil {
		return err
	}
	defer f.Close()
	if h.generation != l.End().Generation()+1 {
		l.Shared.Store(Replacing, 0)
		return nil
	}
	st, err := f.Stat()
	if err == nil {
		l.switchTo(At(h.generation, uint64(st.Size())))
	}
	return err
}

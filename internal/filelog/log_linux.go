package filelog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// State is what the records make. Its methods are called with the guard held.
type State interface {
	// Apply lets a record take effect.
	Apply(Record) error
	// Snapshot passes records to add that make the state as it is.
	Snapshot(add func(Record))
	// Restore begins anew with the records of a snapshot. It ends with the first
	// error that it is given, and then leaves the state as it was.
	Restore(iter.Seq2[Record, error]) error
}

// Shared is the words that all processes see at once, such as a mapped file's. End and
// Durable are Positions.
type Shared interface {
	Load(Word) uint64
	Store(w Word, v uint64)
	Swap(w Word, old, v uint64) bool
	// Err says why the words cannot be trusted any more.
	Err() error
}

// Word names one of the shared words.
type Word int

const (
	End       Word = iota // up to where the log counts; At(1, 0): there is none yet
	Durable               // up to where it is on disk
	Replacing             // 1: a process is replacing the log
	Suspect               // the generation of which a sync has failed; 0: none
)

// Config is what a Log is made with; all of it is needed.
type Config struct {
	Dir    string
	Shared Shared
	State  State
	// Guard is held by the caller during every call but Flush, which takes it itself.
	Guard sync.Locker
	// Temp makes a file in Dir that will get the log's name.
	Temp func() (*os.File, error)
	// Sync puts an open file on disk.
	Sync func(fd int) error
	// CompactAt is from which size on, in bytes, a log is replaced by a snapshot; the
	// size grows to four times that of what the last snapshot kept, whichever process
	// wrote it.
	CompactAt uint64
}

// Log is the log as far as this process has read it.
type Log struct {
	Config
	now *file // nil: nothing was loaded
	buf []byte

	flushing sync.Mutex
	flushed  Position // guarded by flushing
}

// New returns the log of c.Dir. Nothing is read before [Log.Load] or [Log.Salvage].
func New(c Config) *Log { return &Log{Config: c} }

// Loaded reports whether there is a state to work with.
func (l *Log) Loaded() bool { return l.now != nil }

// Close closes the file.
func (l *Log) Close() error {
	if l.now == nil {
		return nil
	}
	return l.now.Close()
}

// Here is up to where the log was applied.
func (l *Log) Here() Position { return At(l.now.generation, l.now.read) }

// End is up to where the log counts, for every process.
func (l *Log) End() Position { return Position(l.Shared.Load(End)) }

func (l *Log) path() string { return filepath.Join(l.Dir, Name) }

// Make writes the first generation, with the state as it is, if there is none. It
// needs the lock between processes.
func (l *Log) Make() error {
	st, err := os.Lstat(l.path())
	switch {
	case err == nil && l.End().Offset() == 0: // its maker ended before it could say so
		l.switchTo(At(1, uint64(st.Size())))
		return nil
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case l.End().Offset() > 0:
		return Damaged(l.path(), "it is missing")
	}
	size, err := l.writeWhole(1)
	if err == nil {
		l.switchTo(At(1, size))
	}
	return err
}

// Load makes the state of the log that is there now, up to what counts. It needs the
// lock between processes, so that the log is not replaced meanwhile.
func (l *Log) Load() error {
	f, h, err := l.open()
	if err != nil {
		return err
	}
	end := l.End()
	if h.generation != end.Generation() {
		err = Damaged(f.Name(), fmt.Sprintf("it is number %d of the logs, and number %d is in use", h.generation, end.Generation()))
	} else {
		err = l.restore(f, h)
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	_ = l.Close()
	l.now = f
	return l.readTo(end.Offset())
}

// restore reads the snapshot.
func (l *Log) restore(f *file, h header) error {
	b, err := f.bytes(h.snapshot)
	if err != nil {
		return err
	}
	err = l.State.Restore(func(yield func(Record, error) bool) {
		for len(b) > 0 {
			r, rest, err := decodeRecord(b)
			if !yield(r, err) || err != nil {
				return
			}
			b = rest
		}
	})
	if err != nil {
		return f.damaged(h.snapshot-uint64(len(b)), err)
	}
	f.read = h.snapshot
	return nil
}

// CatchUp applies what others have written. [ErrBehind]: too much of it.
func (l *Log) CatchUp() error {
	for {
		end := l.End()
		if end.Generation() == l.now.generation {
			return l.readTo(end.Offset())
		}
		if err := l.Shared.Err(); err != nil {
			return err
		}
		if err := l.follow(); err != nil {
			return err
		}
	}
}

// readTo applies the records up to end.
func (l *Log) readTo(end uint64) error {
	if l.now.read == end {
		return nil
	}
	b, err := l.now.bytes(end)
	for err == nil && len(b) > 0 {
		b, err = l.applyFirst(b)
	}
	return err
}

// applyFirst applies the first record of b, which begins where the log was read to,
// and returns the rest.
func (l *Log) applyFirst(b []byte) ([]byte, error) {
	r, rest, err := decodeRecord(b)
	if err == nil {
		err = l.State.Apply(r)
	}
	if err != nil {
		return nil, l.now.damaged(l.now.read, err)
	}
	l.now.read += uint64(len(b) - len(rest))
	return rest, nil
}

// Append writes a record, which then counts for every process, and applies it. It
// needs the lock between processes, and everything before must have been applied.
func (l *Log) Append(r Record) error {
	var err error
	if l.buf, err = appendRecord(l.buf[:0], r); err != nil {
		return Unwritten(l.now.Name(), err)
	}
	if err := l.now.append(l.buf); err != nil {
		return err
	}
	end := l.now.read + uint64(len(l.buf))
	l.Shared.Store(End, uint64(At(l.now.generation, end)))
	if err := l.State.Apply(r); err != nil {
		return err
	}
	l.now.read = end
	return nil
}

// file is one generation, as far as this process has read it.
type file struct {
	*os.File
	fd         int
	generation uint64
	snapshot   uint64 // size of what it began with
	read       uint64 // all before it was applied
}

// open opens the log that is there now.
func (l *Log) open() (*file, header, error) {
	f, err := os.OpenFile(l.path(), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, header{}, err
	}
	front := make([]byte, headerSize)
	n, _ := f.ReadAt(front, 0)
	h, err := decodeHeader(front[:n])
	if err != nil {
		_ = f.Close()
		return nil, h, Damaged(f.Name(), err.Error())
	}
	return &file{f, int(f.Fd()), h.generation, h.snapshot, uint64(headerSize)}, h, nil
}

func (f *file) damaged(at uint64, err error) error {
	return Damaged(f.Name(), fmt.Sprintf("at byte %d: %v", at, err))
}

// bytes are those from what was read up to end.
func (f *file) bytes(end uint64) ([]byte, error) {
	if end < f.read {
		return nil, f.damaged(end, fmt.Errorf("it is said to end there, but was read to %d", f.read))
	}
	b := make([]byte, end-f.read)
	n, err := f.ReadAt(b, int64(f.read))
	if n == len(b) {
		return b, nil
	}
	if err == io.EOF {
		err = fmt.Errorf("it was cut short: %d bytes are missing", len(b)-n)
	}
	return nil, f.damaged(f.read+uint64(n), err)
}

// rest is all that the file has after what was read.
func (f *file) rest() ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return f.bytes(uint64(st.Size()))
}

// append writes at the end; a part that was written is taken back.
func (f *file) append(b []byte) error {
	if _, err := f.WriteAt(b, int64(f.read)); err != nil {
		return errors.Join(Unwritten(f.Name(), err), f.Truncate(int64(f.read)))
	}
	return nil
}

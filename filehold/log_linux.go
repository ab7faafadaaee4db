package filehold

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/holdfast-io/holdfast/internal/core"
)

// logFile is one generation of the log, as far as this process has read it.
type logFile struct {
	f          *os.File
	fd         int
	generation uint64
	read       uint64 // all before it was applied
}

// makeLog writes the first generation, with an empty machine, if there is none.
// The store is locked.
func (e *engine) makeLog() error {
	path := filepath.Join(e.sub, logName)
	_, err := os.Lstat(path)
	switch {
	case err == nil && e.end().offset() == 0:
		return e.adoptLog()
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case e.end().offset() > 0:
		return damaged(path, "it is missing: put it back, or remove the directory when nobody uses it")
	}
	e.m = core.New(e.config())
	size, err := e.writeLog(1)
	if err != nil {
		return err
	}
	e.switchTo(at(1, size))
	return nil
}

// adoptLog takes over a first log whose maker died before it could say so.
func (e *engine) adoptLog() error {
	st, err := os.Stat(filepath.Join(e.sub, logName))
	if err != nil {
		return err
	}
	e.switchTo(at(1, uint64(st.Size())))
	return nil
}

// config is what every process makes its machine with. Liveness is the
// kernel's: no session ends by time.
func (e *engine) config() core.Config {
	return core.Config{Revision: e.ctl.load(wRevisions) + 1, MaxTTL: int64(forever)}
}

// writeLog writes a new generation whole, puts it on disk and into its place,
// and returns its size.
func (e *engine) writeLog(generation uint64) (uint64, error) {
	tmp, err := tempFile(e.sub, logName, e.perm)
	if err != nil {
		return 0, err
	}
	defer os.Remove(tmp.Name())
	b := e.snapshot(generation)
	_, err = tmp.Write(b)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), filepath.Join(e.sub, logName))
	}
	if err != nil {
		return 0, err
	}
	return uint64(len(b)), syncDir(e.sub)
}

// snapshot is the beginning of a generation: the machine as it is.
func (e *engine) snapshot(generation uint64) []byte {
	b := make([]byte, headerSize)
	v := e.m.View()
	defer v.Close()
	for done := false; !done; {
		var chunk []byte
		chunk, done = v.Next(nil, 64<<10)
		b = appendRecord(b, recChunk, chunk)
	}
	b = appendRecord(b, recMembers, appendMembers(nil, e.allSessions()))
	appendHeader(b[:0], header{generation, uint64(len(b))})
	return b
}

// allSessions lists the sessions of every process, in order.
func (e *engine) allSessions() []core.SessionID {
	var ids []core.SessionID
	for _, p := range e.procs {
		for id := range p {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b core.SessionID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// openLog opens the log that is there now.
func (e *engine) openLog() (*logFile, header, error) {
	f, err := os.OpenFile(filepath.Join(e.sub, logName), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, header{}, err
	}
	front := make([]byte, headerSize)
	n, _ := f.ReadAt(front, 0)
	h, err := decodeHeader(front[:n])
	if err != nil {
		_ = f.Close()
		return nil, h, damaged(f.Name(), err.Error())
	}
	return &logFile{f: f, fd: int(f.Fd()), generation: h.generation, read: uint64(headerSize)}, h, nil
}

// load makes the machine of the log that is there now, up to what counts. The
// store is locked, so that nobody replaces it meanwhile.
func (e *engine) load() error {
	l, h, err := e.openLog()
	if err != nil {
		return err
	}
	end := e.end()
	if h.generation != end.generation() {
		err = damaged(l.f.Name(), fmt.Sprintf("it is number %d of the logs, and number %d is in use", h.generation, end.generation()))
	} else {
		err = e.restore(l, h)
	}
	if err != nil {
		_ = l.f.Close()
		return err
	}
	if e.log != nil {
		_ = e.log.f.Close()
	}
	e.log = l
	return e.readTo(end.offset())
}

// restore reads the snapshot.
func (e *engine) restore(l *logFile, h header) error {
	b, err := l.bytes(h.snapshot)
	if err != nil {
		return err
	}
	x := core.NewRestorer()
	procs := map[procID]map[core.SessionID]struct{}{}
	for len(b) > 0 {
		kind, body, rest, err := decodeRecord(b)
		switch {
		case err != nil:
		case kind == recChunk:
			err = x.Write(body)
		case kind == recMembers:
			err = addMembers(procs, body)
		default:
			err = fmt.Errorf("a record of type %d is in the snapshot", kind)
		}
		if err != nil {
			return l.damaged(h.snapshot-uint64(len(b)), err)
		}
		b = rest
	}
	m, err := x.Machine()
	if err != nil {
		return l.damaged(h.snapshot, err)
	}
	e.m, e.procs, l.read = m, procs, h.snapshot
	return nil
}

func addMembers(procs map[procID]map[core.SessionID]struct{}, body []byte) error {
	ids, err := decodeMembers(body)
	for _, id := range ids {
		join(procs, id)
	}
	return err
}

func (l *logFile) damaged(at uint64, err error) error {
	return damaged(l.f.Name(), fmt.Sprintf("at byte %d: %v", at, err))
}

// bytes are those from what was read up to end.
func (l *logFile) bytes(end uint64) ([]byte, error) {
	if end < l.read {
		return nil, l.damaged(end, fmt.Errorf("it is said to end there, but was read to %d", l.read))
	}
	b := make([]byte, end-l.read)
	n, err := l.f.ReadAt(b, int64(l.read))
	if n == len(b) {
		return b, nil
	}
	if err == io.EOF {
		err = fmt.Errorf("it was cut short: %d bytes are missing", len(b)-n)
	}
	return nil, l.damaged(l.read+uint64(n), err)
}

// readTo applies the records up to end. e.mu is held.
func (e *engine) readTo(end uint64) error {
	if e.log.read == end {
		return nil
	}
	b, err := e.log.bytes(end)
	if err != nil {
		return err
	}
	for len(b) > 0 {
		kind, body, rest, err := decodeRecord(b)
		if err == nil {
			err = e.apply(kind, body)
		}
		if err != nil {
			return e.log.damaged(e.log.read, err)
		}
		e.log.read += uint64(len(b) - len(rest))
		b = rest
	}
	return nil
}

// errBehind: what this process has not read is not there any more.
var errBehind = errors.New("the log was replaced more than once")

// catchUp applies what others have written. Who was left too far behind needs
// the store's lock to go on: errBehind. e.mu is held.
func (e *engine) catchUp() error {
	for {
		end := e.end()
		if end.generation() == e.log.generation {
			return e.readTo(end.offset())
		}
		if err := e.ctl.err(); err != nil {
			return err
		}
		if err := e.follow(); err != nil {
			return err
		}
	}
}

// end is up to where the log counts.
func (e *engine) end() position { return position(e.ctl.load(wEnd)) }

// follow finishes the log that was replaced and goes on with the next one.
func (e *engine) follow() error {
	if err := e.readOut(); err != nil {
		return err
	}
	l, h, err := e.openLog()
	if err != nil {
		return err
	}
	if h.generation == e.log.generation+1 {
		_ = e.log.f.Close()
		l.read = h.snapshot
		e.log = l
		return nil
	}
	_ = l.f.Close()
	return errBehind
}

// resume begins with the log that is there now, and tells everybody here what
// he missed. The store is locked, e.mu is held.
func (e *engine) resume() error {
	if err := e.load(); err != nil {
		return err
	}
	e.wake(e.hub.Jump(e.m.Revision()))
	for id := range e.procs {
		e.met(id)
	}
	for _, u := range e.users {
		u.recall()
	}
	e.rearm()
	return nil
}

// readOut applies the rest of a log that has its last record.
func (e *engine) readOut() error {
	st, err := e.log.f.Stat()
	if err != nil {
		return err
	}
	b, err := e.log.bytes(uint64(st.Size()))
	for err == nil && len(b) > 0 {
		var kind byte
		var body, rest []byte
		if kind, body, rest, err = decodeRecord(b); err == nil && kind == recMoved {
			return nil
		}
		if err == nil {
			err = e.apply(kind, body)
		}
		if err == nil {
			e.log.read += uint64(len(b) - len(rest))
		}
		b = rest
	}
	if err == nil {
		err = errors.New("it was replaced, but does not say so")
	}
	return e.log.damaged(e.log.read, err)
}

// write appends a record that then counts for everybody, and applies it. The
// store is locked, e.mu is held and everything before was applied.
func (e *engine) write(kind byte, body []byte) error {
	if e.m.Revision()+revisionBlock/2 > e.ctl.load(wRevisions) {
		if err := e.ctl.raise(wRevisions, e.m.Revision()+2*revisionBlock); err != nil {
			return err
		}
	}
	e.buf = appendRecord(e.buf[:0], kind, body)
	if err := e.log.append(e.buf); err != nil {
		return err
	}
	end := e.log.read + uint64(len(e.buf))
	e.ctl.store(wEnd, uint64(at(e.log.generation, end)))
	if err := e.readOwn(kind, body, end); err != nil {
		return err
	}
	if kind == recEvent || e.concernsAll() {
		e.ring()
		return nil
	}
	e.ringGranted()
	return nil
}

// readOwn applies what this process wrote.
func (e *engine) readOwn(kind byte, body []byte, end uint64) error {
	if err := e.apply(kind, body); err != nil {
		return err
	}
	e.log.read = end
	return nil
}

// append writes at the end; a part that was written is taken back.
func (l *logFile) append(b []byte) error {
	if _, err := l.f.WriteAt(b, int64(l.read)); err != nil {
		return errors.Join(unwritten(l.f.Name(), err), l.f.Truncate(int64(l.read)))
	}
	return nil
}

// compactAt is from which size on a log is replaced by a snapshot; it doubles
// with the size of what is kept.
const compactAt = 4 << 20

// compact replaces the log if it is worth it. The store is locked, e.mu is held
// and everything before was applied. What fails is tried again after the next
// change; the maker of this one need not know.
func (e *engine) compact() error {
	if e.log.read < max(e.compactAt, 4*e.kept) {
		return nil
	}
	next := e.log.generation + 1
	e.ctl.store(wSwitching, 1)
	if err := e.log.append(appendRecord(nil, recMoved, nil)); err != nil {
		return err
	}
	size, err := e.writeLog(next)
	if err != nil {
		return errors.Join(err, e.repair())
	}
	e.kept = size
	e.switchTo(at(next, size))
	e.ring()
	return e.follow()
}

// switchTo tells everybody that a log, which is on disk, is in its place.
func (e *engine) switchTo(p position) {
	e.ctl.store(wEnd, uint64(p))
	e.ctl.store(wDurable, uint64(p))
	e.ctl.store(wSwitching, 0)
}

// settle finishes what somebody who died left half done. The store is locked.
func (e *engine) settle() error {
	if e.ctl.load(wSwitching) == 0 {
		return nil
	}
	return e.repair()
}

// repair finds out whether a log was put into its place, and says so.
func (e *engine) repair() error {
	l, h, err := e.openLog()
	if err != nil {
		return err
	}
	defer l.f.Close()
	if h.generation == e.end().generation()+1 {
		st, err := l.f.Stat()
		if err != nil {
			return err
		}
		e.switchTo(at(h.generation, uint64(st.Size())))
		return nil
	}
	e.ctl.store(wSwitching, 0)
	return nil
}

// trim cuts off what somebody who died wrote but never counted, and refuses a
// log that somebody cut short or removed: what is written to it would be lost.
// The store is locked and everything that counts was applied.
func (e *engine) trim() error {
	var st syscall.Stat_t
	if err := syscall.Fstat(e.log.fd, &st); err != nil {
		return err
	}
	switch {
	case st.Nlink == 0:
		return e.log.damaged(0, errors.New("it was removed while it was in use"))
	case uint64(st.Size) < e.log.read:
		return e.log.damaged(uint64(st.Size), errors.New("it was cut short while it was in use"))
	case uint64(st.Size) > e.log.read:
		return e.log.f.Truncate(int64(e.log.read))
	}
	return nil
}

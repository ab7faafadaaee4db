package filehold

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/holdfast-io/holdfast/internal/core"
)

// A process has up to four files in the live directory: a pipe that it keeps
// open and flocked as long as it lives, what it holds and awaits of lock files,
// one that says that it watches, and a bell of its own.
const (
	liveDir    = "live"
	pipeExt    = ".pipe"
	claimsExt  = ".claims"
	watcherExt = ".watch"
	bellExt    = ".bell"
)

func (e *engine) liveFile(p procID, ext string) string {
	return filepath.Join(e.sub, liveDir, p.String()+ext)
}

// join notes a session.
func join(procs map[procID]map[core.SessionID]struct{}, id core.SessionID) {
	p := procOf(id)
	if procs[p] == nil {
		procs[p] = map[core.SessionID]struct{}{}
	}
	procs[p][id] = struct{}{}
}

// part forgets a session.
func part(procs map[procID]map[core.SessionID]struct{}, id core.SessionID) {
	p := procOf(id)
	delete(procs[p], id)
	if len(procs[p]) == 0 {
		delete(procs, p)
	}
}

// appear makes this process known. The store is locked, so that nobody takes a
// pipe for that of an ended process that is being made.
func (e *engine) appear() error {
	path := e.liveFile(e.proc, pipeExt)
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		return &fs.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err == nil {
		e.cut, err = setPerm(f, e.perm)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	e.live = f
	if err := flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return &fs.PathError{Op: "flock", Path: path, Err: err}
	}
	claims := e.liveFile(e.proc, claimsExt)
	if err := e.linkNew(lockTemp, claims); err != nil { // others read it as soon as it is there
		return err
	}
	return e.slots.open(claims)
}

// vanish removes the files of a process, the pipe last.
func (e *engine) vanish(p procID) error {
	var errs []error
	for _, ext := range []string{claimsExt, watcherExt, bellExt, pipeExt} {
		if err := os.Remove(e.liveFile(p, ext)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// openPipe opens a process's pipe to see its end: reading it gives nothing as
// long as the process lives, and the end of the file after.
func (e *engine) openPipe(p procID) (*os.File, error) {
	return os.OpenFile(e.liveFile(p, pipeExt), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
}

// gone reports that a process has certainly ended: the kernel has closed its
// pipe. A pipe that somebody removed proves nothing.
func (e *engine) gone(p procID) bool {
	if p == e.proc {
		return false
	}
	fd, err := syscall.Open(e.liveFile(p, pipeExt), syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	n, err := syscall.Read(fd, make([]byte, 1))
	return n == 0 && err == nil
}

// processes lists those that have a pipe.
func (e *engine) processes() ([]procID, error) {
	files, err := os.ReadDir(filepath.Join(e.sub, liveDir))
	if err != nil {
		return nil, err
	}
	var list []procID
	for _, f := range files {
		if p, ok := parseProc(f.Name()); ok {
			list = append(list, p)
		}
	}
	return list, nil
}

func parseProc(file string) (p procID, ok bool) {
	text, ok := strings.CutSuffix(file, pipeExt)
	if !ok || len(text) != 2*len(p) {
		return p, false
	}
	return p, decodeProc(&p, text)
}

// endSessionsOfGone ends the sessions of all processes that have ended. The store is locked,
// e.mu is held.
func (e *engine) endSessionsOfGone() error {
	list, err := e.processes()
	if err != nil {
		return err
	}
	alone := true
	for _, p := range list {
		if e.gone(p) {
			err = errors.Join(err, e.endSessionsOf(p))
		} else if p != e.proc {
			alone = false
		}
	}
	if alone {
		e.ctl.store(wSleepers, uint64(e.sleeping()))
	}
	return err
}

// endSessionsOf ends the sessions of an ended process, tells its lock files' ends to
// the watchers, and removes its files.
func (e *engine) endSessionsOf(p procID) error {
	err := e.endSessions(p)
	if err == nil {
		err = e.tellHolds(p)
	}
	if err != nil {
		return err
	}
	if _, err := os.Lstat(e.liveFile(p, watcherExt)); err == nil {
		e.ctl.add(wWatchers, -1)
	}
	return e.vanish(p)
}

// tellHolds writes the events of the lock files that an ended process held.
func (e *engine) tellHolds(p procID) error {
	if e.ctl.load(wWatchers) == 0 {
		return nil
	}
	held, _, _ := readSlots(e.liveFile(p, claimsExt), nil) // what cannot be read is not told: it must not keep the rest
	for _, s := range held {
		if s.state != slotHolds {
			continue
		}
		ev := lockEvent{verb: core.VerbExpired, kind: s.kind, mode: s.mode, reason: core.CodeNoSession, token: s.token, session: s.session, name: s.name}
		if err := e.write(recEvent, appendLockEvent(nil, &ev)); err != nil {
			return err
		}
	}
	return nil
}

// endSessions ends all sessions of a process. The store is locked, e.mu is held.
func (e *engine) endSessions(p procID) error {
	for len(e.procs[p]) > 0 {
		var entry core.Entry
		for id := range e.procs[p] {
			entry.Frames = append(entry.Frames, core.AppendFrame(nil, &core.Frame{Session: id, Commands: []core.Command{{Op: core.OpEnd}}}))
			if len(entry.Frames) == 100 {
				break
			}
		}
		if err := e.writeEntry(&entry); err != nil {
			return err
		}
	}
	return nil
}

// reap ends the sessions of a process that was seen to end, unless another has. The store is
// not locked.
func (e *engine) reap(ctx context.Context, p procID) error {
	if !e.gone(p) {
		return nil
	}
	return e.locked(ctx, func() error {
		if !e.gone(p) {
			return nil
		}
		return e.endSessionsOf(p)
	})
}

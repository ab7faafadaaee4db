package filehold

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/filelog"
	"github.com/holdfast-io/holdfast/internal/gaveup"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// forever is the TTL of a session that only its process's end ends.
const forever = 100 * 365 * 24 * time.Hour

// procID names a process in the directory; the ids of its sessions begin with
// it.
type procID [8]byte

func (p procID) String() string { return hex.EncodeToString(p[:]) }

func procOf(id core.SessionID) procID { return procID(id[:8]) }

// engine is a directory as this process uses it; all Spaces on it share one. It
// keeps a machine that has applied the log as far as it was read: the state of
// everything but lock files.
type engine struct {
	seams
	dir  string // as it was opened
	sub  string // dir/.holdfast
	self identity
	perm fs.FileMode // of every file
	cut  bool        // the process's umask would take some of it away
	root int         // file descriptor of dir
	low  int         // a low one that is kept for the pump; -1: it is used
	ctl  *control
	proc procID
	live *os.File // the flocked pipe that says that we live

	began   time.Time     // of driver.Now
	beganAt int64         // the same in cluster time
	writing chan struct{} // held with the store's lock

	mu      sync.Mutex // guards all below
	m       *core.Machine
	log     *filelog.Log
	hub     *watch.Hub
	readers map[*watch.Watcher]*reader
	next    slotPlace                              // the first one for the next event
	procs   map[procID]map[core.SessionID]struct{} // living sessions
	users   map[core.SessionID]*user               // of this process
	plain   *user                                  // of calls that hang on no session
	out     core.Output
	bell    *os.File // written when the log grew and somebody sleeps
	pump    *pump    // nil: nobody waits
	sleeper int

	slots slots
	gates gates
	idle  idle

	clients map[*client]struct{}

	refs int // guarded by engines
}

// seams are what tests replace.
type seams struct {
	bootID    func() (string, error)
	syncLog   func(fd int) error
	syncCtl   func(fd int) error
	fallback  time.Duration // between two looks when no bell rings
	compactAt uint64
	flock     func(fd, how int) error // the first one, which finds out
	unlink    func(dirfd int, file string) error
	version   uint64 // that this program knows
}

var production = seams{
	bootID: bootID, syncLog: fdatasync, syncCtl: fdatasync, fallback: time.Second, compactAt: compactAt, flock: flock, unlink: unlinkAt, version: version,
}

// engines are the directories that this process uses.
var engines = struct {
	sync.Mutex
	byDir map[identity]*engine
}{byDir: map[identity]*engine{}}

// openEngine returns the engine of dir, which leave gives back.
func openEngine(dir string, perm fs.FileMode, s seams) (*engine, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := makeDir(dir, perm); err != nil {
		return nil, err
	}
	root, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	self, err := fdIdentity(root)
	if err != nil {
		return nil, errors.Join(&fs.PathError{Op: "stat", Path: dir, Err: err}, syscall.Close(root))
	}
	engines.Lock()
	defer engines.Unlock()
	if e := engines.byDir[self]; e != nil {
		if err := e.agrees(perm); err != nil {
			return nil, errors.Join(err, syscall.Close(root))
		}
		e.refs++
		return e, syscall.Close(root)
	}
	e, err := newEngine(dir, root, self, perm, s)
	if err != nil {
		return nil, err
	}
	engines.byDir[self] = e
	return e, nil
}

// newEngine takes over root, which is closed if it fails.
func newEngine(dir string, root int, self identity, perm fs.FileMode, s seams) (*engine, error) {
	e := &engine{
		seams: s, perm: perm, dir: dir, sub: filepath.Join(dir, ".holdfast"), root: root, self: self, refs: 1,
		writing: make(chan struct{}, 1), readers: map[*watch.Watcher]*reader{},
		users: map[core.SessionID]*user{}, clients: map[*client]struct{}{},
	}
	_, _ = rand.Read(e.proc[:])
	e.gates.e = e
	if err := e.openFiles(); err != nil {
		return nil, errors.Join(err, syscall.Close(root))
	}
	if err := e.locked(context.Background(), e.enter); err != nil {
		return nil, errors.Join(err, e.closeFiles())
	}
	return e, nil
}

// openFiles opens what needs no lock. The kernel closes the files of a process
// that ends from the last to the first, and to end a watch takes it
// milliseconds: that one comes first here, so that nobody waits for it.
func (e *engine) openFiles() error {
	low, err := openAt(e.root, ".", syscall.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return &fs.PathError{Op: "open", Path: e.dir, Err: err}
	}
	e.low = low
	if err := e.openStore(); err != nil {
		return errors.Join(err, e.closeLow())
	}
	return nil
}

// closeLow closes what was kept for the pump.
func (e *engine) closeLow() error {
	if e.low < 0 {
		return nil
	}
	return syscall.Close(e.low)
}

// openStore opens the files of the store.
func (e *engine) openStore() error {
	if err := os.MkdirAll(filepath.Join(e.sub, liveDir), 0o777); err != nil {
		return err
	}
	ctl, err := openControl(e.sub, e.perm, e.version, e.syncCtl)
	if err != nil {
		return err
	}
	if err := e.agree(ctl); err != nil {
		return errors.Join(err, ctl.close())
	}
	e.ctl = ctl
	e.log = e.newLog()
	if err := e.flock(ctl.fd, syscall.LOCK_SH|syscall.LOCK_NB); err != nil && !busy(err) {
		_ = ctl.close()
		if noLocks(err) {
			return driver.Errorf("open", e.dir, errors.ErrUnsupported, "its file system has no flock (%w): use a directory on a local disk", err)
		}
		return &fs.PathError{Op: "flock", Path: ctl.path, Err: err}
	}
	_ = flock(ctl.fd, syscall.LOCK_UN)
	e.bell, err = e.shared(bellName)
	if err != nil {
		_ = ctl.close()
	}
	return err
}

// enter reads the state and makes us known. The store is locked.
func (e *engine) enter() error {
	if err := e.ctl.adopt(); err != nil {
		return err
	}
	if err := errors.Join(sweep(e.sub, filelog.Name), sweep(e.sub, lockTemp)); err != nil {
		return err
	}
	e.m = core.New(e.config())
	if err := e.log.Make(); err != nil {
		return err
	}
	if err := e.reboot(); err != nil {
		return err
	}
	if !e.log.Loaded() {
		if err := e.log.Settle(); err != nil {
			return err
		}
		if err := e.log.Load(); err != nil {
			return err
		}
	}
	e.hub = watch.NewHub(0, e.m.Revision())
	if err := e.appear(); err != nil {
		return err
	}
	u, err := e.openUser(nil, driver.Spec{})
	if err != nil {
		return err
	}
	e.plain = u
	e.began, e.beganAt = driver.Now(), e.now()
	return e.endSessionsOfGone()
}

// closeFiles closes everything that is open.
func (e *engine) closeFiles() error {
	e.idle.close()
	err := e.slots.close()
	if e.live != nil {
		err = errors.Join(err, e.vanish(e.proc), e.live.Close())
	}
	return errors.Join(err, e.log.Close(), e.bell.Close(), e.ctl.close(), e.closeLow(), syscall.Close(e.root))
}

// leave is the end of one Space; the last one ends the engine. An engine that
// cannot tell the others so is found gone by them.
func (e *engine) leave() error {
	if !e.unused() {
		return nil
	}
	e.endPump()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := e.locked(ctx, func() error { return e.endSessions(e.proc) }); err != nil {
		return errors.Join(err, e.live.Close()) // a wait for the lock may still use the rest
	}
	return e.closeFiles()
}

// unused ends one use, and reports whether it was the last. A Space that is opened from then on gets an engine of its
// own, as it would in another process: it does not wait for the end of this one, which may wait for the store's lock.
func (e *engine) unused() bool {
	engines.Lock()
	defer engines.Unlock()
	if e.refs--; e.refs > 0 {
		return false
	}
	delete(engines.byDir, e.self)
	return true
}

// ref keeps the engine open for a call that may outlive its Space; unref ends
// that.
func (e *engine) ref() {
	engines.Lock()
	defer engines.Unlock()
	e.refs++
}

// refUsed is ref for what begins by itself, beside a Close: false if that was the last use.
func (e *engine) refUsed() bool {
	engines.Lock()
	defer engines.Unlock()
	if e.refs == 0 {
		return false
	}
	e.refs++
	return true
}

func (e *engine) unref() {
	if err := e.leave(); err != nil {
		e.failed("close", err)
	}
}

// now is cluster time: that of the kernel since boot, and what was before.
func (e *engine) now() int64 { return int64(e.ctl.load(wBase)) + int64(boottime()) }

// about is cluster time without a system call, for people.
func (e *engine) about() int64 { return e.beganAt + int64(driver.Now().Sub(e.began)) }

// locked runs f with the store's lock, with everything applied and with e.mu
// held. It gives up when ctx ends; f then has not run.
func (e *engine) locked(ctx context.Context, f func() error) error {
	select {
	case e.writing <- struct{}{}:
	case <-ctx.Done():
		return gaveup.Error(ctx, driver.NotDone)
	case <-closed(ctx):
		return errClosed
	}
	if err := e.lockStore(ctx); err != nil {
		return err
	}
	defer e.unlockStore()
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.ready(); err != nil {
		return err
	}
	return f()
}

// lockStore takes the lock between processes. A wait that nobody wants any more
// goes on in the background and gives back what it gets.
func (e *engine) lockStore(ctx context.Context) error {
	err := flock(e.ctl.fd, syscall.LOCK_EX|syscall.LOCK_NB)
	if !busy(err) {
		return e.lockedBy(err)
	}
	got := make(chan error, 1)
	go func() { got <- flock(e.ctl.fd, syscall.LOCK_EX) }()
	select {
	case err := <-got:
		return e.lockedBy(err)
	case <-ctx.Done():
		err = gaveup.Error(ctx, driver.NotDone)
	case <-closed(ctx):
		err = errClosed
	}
	go func() {
		if <-got == nil {
			_ = flock(e.ctl.fd, syscall.LOCK_UN)
		}
		<-e.writing
	}()
	return err
}

// lockedBy is the end of a wait for the lock; an error ends the turn within the process.
func (e *engine) lockedBy(err error) error {
	if err == nil {
		return nil
	}
	<-e.writing
	return &fs.PathError{Op: "flock", Path: e.ctl.path, Err: err}
}

func (e *engine) unlockStore() {
	_ = flock(e.ctl.fd, syscall.LOCK_UN)
	<-e.writing
}

// ready mends what killed processes left and applies what the others wrote. The store is
// locked, e.mu is held.
func (e *engine) ready() error {
	if err := e.ctl.err(); err != nil {
		return err
	}
	if !e.log.Loaded() {
		return nil // entering
	}
	if err := e.log.Settle(); err != nil {
		return err
	}
	err := e.log.CatchUp()
	if err == filelog.ErrBehind {
		err = e.resume()
	}
	if err != nil {
		return err
	}
	return e.log.Trim()
}

// token takes the next token.
func (e *engine) token(ctx context.Context) (uint64, error) {
	for {
		if t, ok := e.ctl.draw(); ok {
			return t, nil
		}
		if err := e.locked(ctx, func() error { return e.ctl.reach(e.ctl.load(wNext)) }); err != nil {
			return 0, err
		}
	}
}

// check says whether the directory is still the one that was opened. If it is not, that is for good, and so
// [driver.ErrClosed], too.
func (e *engine) check() error {
	var st syscall.Stat_t
	err := syscall.Stat(e.dir, &st)
	switch {
	case err == nil && (identity{uint64(st.Dev), st.Ino}) == e.self:
		return e.ctl.err()
	case err != nil && err != syscall.ENOENT && err != syscall.ENOTDIR:
		return driver.Errorf("", e.dir, driver.ErrUnavailable, "the directory cannot be looked at: %w", err)
	}
	return driver.Errorf("", e.dir, driver.ErrUnavailable,
		"%w for this program: the directory was removed or replaced by another: holds of before keep nobody out there; close every Space on it and open it anew", driver.ErrClosed)
}

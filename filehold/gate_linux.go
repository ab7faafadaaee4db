package filehold

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
)

// gates are the lock files that somebody in this process waits for. Per file and
// mode there is one thread that waits in the kernel, for the first in
// line here. When everybody has left, it goes on waiting, and gives back what it
// gets.
type gates struct {
	e       *engine
	mu      sync.Mutex
	byFile  map[string]*gate
	threads int
	known   map[string]lockName
}

// lockName is where the lock of a name is.
type lockName struct{ name, file, path string }

// knownNames bounds how many are remembered.
const knownNames = 10_000

// find is where the lock of a name is.
func (gs *gates) find(name string) (lockName, error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if n, ok := gs.known[name]; ok {
		return n, nil
	}
	file, err := lockFile(gs.e.dir, name)
	if err != nil {
		return lockName{}, err
	}
	if gs.known == nil || len(gs.known) >= knownNames {
		gs.known = map[string]lockName{}
	}
	n := lockName{name, file, filepath.Join(gs.e.dir, file)}
	gs.known[name] = n
	return n, nil
}

// maxThreads bounds how many threads of a process wait in the kernel.
const maxThreads = 2000

// gate is one lock file.
type gate struct {
	gs      *gates
	at      lockName
	queue   []*gateTurn
	blocked [2]bool // by mode: a thread waits
}

// gateTurn is one waiter.
type gateTurn struct {
	kind driver.ResourceKind
	mode driver.Mode
	got  chan granted // has room for one
}

// granted is a locked file, or why there is none.
type granted struct {
	file openFile
	err  error
}

func how(m driver.Mode) int {
	if m == driver.Shared {
		return syscall.LOCK_SH
	}
	return syscall.LOCK_EX
}

// try locks the file if nobody has it or waits for it here; busy: errBusy.
func (gs *gates) try(ctx context.Context, n lockName, mode driver.Mode) (openFile, error) {
	gs.mu.Lock()
	g := gs.byFile[n.file]
	waiting := g != nil && len(g.queue) > 0
	gs.mu.Unlock()
	if waiting {
		return openFile{}, errBusy
	}
	return gs.e.lockFile(ctx, n, how(mode)|syscall.LOCK_NB)
}

var errBusy = errors.New("somebody has it")

// lockFile opens and locks the file that has the name now: a file that was
// removed under its holder keeps nobody out, so the lock has to be on the one
// that the next will find.
func (e *engine) lockFile(ctx context.Context, n lockName, how int) (openFile, error) {
	for {
		f, err := e.openLock(ctx, n)
		if err != nil {
			return f, err
		}
		if err := flock(f.fd, how); err != nil {
			e.idle.put(f)
			if busy(err) {
				return f, errBusy
			}
			return f, &fs.PathError{Op: "flock", Path: n.path, Err: err}
		}
		same, err := e.current(f, n.path)
		if same {
			return f, nil
		}
		_ = syscall.Close(f.fd)
		if err != nil {
			return f, err
		}
	}
}

// current reports whether f is the file that has the name.
func (e *engine) current(f openFile, path string) (bool, error) {
	now, err := pathIdentity(path)
	if err == nil && now == f.id {
		return true, nil
	}
	return false, e.check()
}

// openLock is the lock file, open, which is made if the name is nothing else.
func (e *engine) openLock(ctx context.Context, n lockName) (openFile, error) {
	if f, ok := e.idle.take(n.file); ok {
		return f, nil
	}
	fd, err := openAt(e.root, n.file, syscall.O_RDONLY|syscall.O_NONBLOCK)
	if err == syscall.ENOENT {
		if err = e.locked(ctx, func() error { return e.makeLock(n.name, n.file) }); err == nil {
			return e.openLock(ctx, n)
		}
	}
	if errno, ok := err.(syscall.Errno); ok {
		err = &fs.PathError{Op: "open", Path: n.path, Err: errno}
	}
	if err != nil {
		return openFile{}, err
	}
	return regular(fd, n)
}

// regular is the open lock file, which it closes if it is something else.
func regular(fd int, n lockName) (openFile, error) {
	var st syscall.Stat_t
	err := syscall.Fstat(fd, &st)
	switch {
	case err != nil:
		err = &fs.PathError{Op: "stat", Path: n.path, Err: err}
	case st.Mode&syscall.S_IFMT != syscall.S_IFREG:
		err = driver.Errorf("", n.name, fs.ErrInvalid, "%s is no regular file: remove it", n.path)
	}
	if err != nil {
		return openFile{}, errors.Join(err, syscall.Close(fd))
	}
	return openFile{n.file, fd, identity{uint64(st.Dev), st.Ino}}, nil
}

// makeLock makes the lock file of a name that is nothing else, and sees to it
// that its tokens are above those that the name had as something else. The store
// is locked.
func (e *engine) makeLock(name, file string) error {
	if err := e.check(); err != nil {
		return err
	}
	if r, ok := e.m.InspectPage("", name, core.Cursor{}, 1); ok {
		return conflict(name, driver.ResourceKind(r.Kind))
	}
	if err := e.ctl.reach(e.m.Revision()); err != nil {
		return err
	}
	if e.cut {
		return e.linkNew(lockTemp, filepath.Join(e.dir, file))
	}
	fd, err := openAt(e.root, file, syscall.O_RDONLY|syscall.O_CREAT)
	if err != nil {
		return err
	}
	return syscall.Close(fd)
}

// conflict is the error of a name that is something else.
func conflict(name string, kind driver.ResourceKind) error {
	return driver.Errorf("", name, driver.ErrConflict, "the name is that of a %s: use another", kind)
}

// awaited reports whether the last in line here waits for the file as that kind.
func (gs *gates) awaited(n lockName, kind driver.ResourceKind) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.byFile[n.file]
	return g != nil && len(g.queue) > 0 && g.queue[len(g.queue)-1].kind == kind
}

// queue joins the line at the file; place is 1 for the first.
func (gs *gates) queue(n lockName, kind driver.ResourceKind, mode driver.Mode) (t *gateTurn, place int, err error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g := gs.byFile[n.file]
	if g == nil {
		g = &gate{gs: gs, at: n}
	}
	if gs.threads >= maxThreads && !g.blocked[mode] {
		return nil, 0, driver.Errorf("", n.name, driver.ErrExhausted, "this process waits for %d lock files already: wait for fewer at a time, or in several processes", gs.threads)
	}
	if gs.byFile == nil {
		gs.byFile = map[string]*gate{}
	}
	gs.byFile[n.file] = g
	t = &gateTurn{kind: kind, mode: mode, got: make(chan granted, 1)}
	g.queue = append(g.queue, t)
	g.kick()
	return t, len(g.queue), nil
}

// kick has the kernel asked for the first in line. gs.mu is held.
func (g *gate) kick() {
	if len(g.queue) > 0 {
		if m := g.queue[0].mode; !g.blocked[m] {
			g.blocked[m] = true
			g.gs.threads++
			g.gs.e.ref()
			go g.block(m)
		}
		return
	}
	if !g.blocked[driver.Exclusive] && !g.blocked[driver.Shared] {
		delete(g.gs.byFile, g.at.file)
	}
}

// block waits in the kernel, in a thread of its own.
func (g *gate) block(m driver.Mode) {
	e := g.gs.e
	defer e.unref()
	f, err := e.lockFile(context.Background(), g.at, how(m))
	g.gs.mu.Lock()
	defer g.gs.mu.Unlock()
	g.gs.threads--
	g.blocked[m] = false
	switch {
	case err != nil:
		g.fail(m, err)
	case len(g.queue) > 0 && g.queue[0].mode == m:
		g.queue[0].got <- granted{file: f}
		g.queue = g.queue[1:]
	default:
		e.idle.put(f)
	}
	g.kick()
}

// fail tells everybody of the mode.
func (g *gate) fail(m driver.Mode, err error) {
	g.queue = slices.DeleteFunc(g.queue, func(t *gateTurn) bool {
		if t.mode == m {
			t.got <- granted{err: err}
		}
		return t.mode == m
	})
}

// leave gives the place in line up, or back what was granted meanwhile.
func (gs *gates) leave(n lockName, t *gateTurn) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if g := gs.byFile[n.file]; g != nil {
		if i := slices.Index(g.queue, t); i >= 0 {
			g.queue = slices.Delete(g.queue, i, i+1)
			g.kick()
			return
		}
	}
	if r := <-t.got; r.err == nil {
		gs.e.idle.put(r.file)
	}
}

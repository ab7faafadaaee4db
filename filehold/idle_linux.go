package filehold

import (
	"sync"
	"syscall"
)

// openFile is a lock file that is open. Its number is nobody else's as long as
// it is, so that comparing numbers tells for sure whether it still has its name.
type openFile struct {
	name string // in the directory
	fd   int
	id   identity
}

// idle are lock files that were given back and stay open, unlocked: taking one
// again then costs no open. They are given back by unlocking, not by closing,
// so that a child that is just being started keeps nothing locked.
type idle struct {
	mu     sync.Mutex
	files  map[string]openFile
	closed bool
}

// maxIdle bounds how many stay open.
const maxIdle = 64

// take is the open file of a name, if there is one.
func (i *idle) take(name string) (openFile, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f, ok := i.files[name]
	delete(i.files, name)
	return f, ok
}

// put unlocks a file and keeps it, in the place of any other if there are many.
func (i *idle) put(f openFile) {
	if flock(f.fd, syscall.LOCK_UN) != nil || !i.keep(f) {
		_ = syscall.Close(f.fd)
	}
}

// keep is false if the file is not needed.
func (i *idle) keep(f openFile) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.files[f.name]; ok || i.closed {
		return false
	}
	for other, g := range i.files {
		if len(i.files) < maxIdle {
			break
		}
		delete(i.files, other)
		_ = syscall.Close(g.fd)
	}
	if i.files == nil {
		i.files = map[string]openFile{}
	}
	i.files[f.name] = f
	return true
}

// close closes them all; what comes later is closed at once.
func (i *idle) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, f := range i.files {
		_ = syscall.Close(f.fd)
	}
	i.files, i.closed = nil, true
}

package filehold

import (
	"context"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/convert"
)

// Sweep removes lock files that nobody holds or waits for, and idle semaphores
// and barriers if limits are asked for. Of a lock file only the beginning of the
// name is known, and that not in full: a file too many that is removed is made
// anew by its next user.
func (c *client) Sweep(ctx context.Context, r *driver.SweepRequest) (reply driver.SweepReply, err error) {
	ctx, err = c.begin(ctx)
	if err != nil {
		return reply, err
	}
	defer c.end()
	if reply.Removed, err = c.e.sweepLocks(ctx, r.Prefix); err != nil {
		return reply, err
	}
	limits, err := convert.Sweep(ctx, c, r)
	reply.Removed += limits.Removed
	return reply, err
}

// sweepStep is how many files are looked at before others may write the store.
const sweepStep = 16

// sweepLocks goes through the directory.
func (e *engine) sweepLocks(ctx context.Context, prefix string) (removed int64, err error) {
	fd, err := openAt(e.root, ".", syscall.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: e.dir, Err: err}
	}
	dir := os.NewFile(uintptr(fd), e.dir)
	defer dir.Close()
	for {
		files, err := dir.Readdirnames(sweepStep)
		if err == io.EOF {
			return removed, nil
		}
		if err != nil {
			return removed, err
		}
		err = e.locked(ctx, func() error {
			for _, file := range files {
				if !isLockFile(e.dir, file) || !mayBegin(file, prefix) {
					continue
				}
				gone, err := e.sweepLock(file)
				if err != nil {
					return err
				}
				removed += gone
			}
			return nil
		})
		if err != nil {
			return removed, err
		}
	}
}

// sweepLock removes a lock file, locked, so that no process holds it, and none that
// has it open believes in it: everybody compares the file that was locked with the
// one that has the name. The name may be something else from then on, and its tokens
// the machine gives. The store is locked, so that nobody makes either meanwhile.
func (e *engine) sweepLock(file string) (int64, error) {
	fd, err := openAt(e.root, file, syscall.O_RDONLY|syscall.O_NONBLOCK)
	if err != nil {
		return 0, nil // gone, or not ours to open
	}
	defer syscall.Close(fd)
	if !e.sweepable(fd, file) {
		return 0, nil
	}
	if err := e.raise(e.ctl.load(wNext)); err != nil {
		return 0, err
	}
	if err := e.unlink(e.root, file); err != nil {
		return 0, &fs.PathError{Op: "remove", Path: e.dir + "/" + file, Err: err}
	}
	return 1, nil
}

// sweepable locks an open file; false: it is held, or was replaced, or is no lock
// file: those are empty.
func (e *engine) sweepable(fd int, file string) bool {
	var open, named syscall.Stat_t
	if flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) != nil || syscall.Fstat(fd, &open) != nil || lstatAt(e.root, file, &named) != nil {
		return false
	}
	return open.Mode&syscall.S_IFMT == syscall.S_IFREG && open.Size == 0 && open.Dev == named.Dev && open.Ino == named.Ino
}

// isLockFile reports whether a file of dir has a name as lockFile gives it.
func isLockFile(dir, file string) bool {
	if text, ok := strings.CutSuffix(file, lockExt); ok {
		return len(text) >= hashLen && isHash(text[len(text)-hashLen:])
	}
	// The shorter forms are only used where the path is long.
	return len(dir)+1+maxFileName > maxPath && (len(file) == hashLen || len(file) == shortHash) && isHash(file)
}

func isHash(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune(alphabet, r) }) < 0
}

// mayBegin reports whether the name of a lock file may begin with prefix, as far
// as the file tells.
func mayBegin(file, prefix string) bool {
	text, ok := strings.CutSuffix(file, lockExt)
	if !ok {
		return true
	}
	return strings.HasPrefix(text[:len(text)-hashLen], readableStem(prefix))
}

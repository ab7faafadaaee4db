package fence

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"
)

// errBusy: another file handle has the lock, in this process or another one.
var errBusy = errors.New("locked")

// How often a waiting process looks; flock itself cannot be cancelled.
const (
	firstLook = time.Millisecond
	lastLook  = 50 * time.Millisecond
)

// lockFile waits until it has locked the file at path, making it if necessary.
// Closing the file, or the death of the process, unlocks it.
func lockFile(ctx context.Context, path string, m Mode) (*os.File, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for look := firstLook; ; look = min(2*look, lastLook) {
		f, err := tryLockFile(path, m)
		if !errors.Is(err, errBusy) {
			return f, err
		}
		timer.Reset(look)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func tryLockFile(path string, m Mode) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(f, m); err != nil {
			f.Close()
			return nil, err
		}
		same, err := atPath(f, path)
		if same {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// atPath reports that path still leads to f: a lock on a file that Forget has
// removed keeps out nobody.
func atPath(f *os.File, path string) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return os.SameFile(mine, there), nil
}

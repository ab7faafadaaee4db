//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package fence

import (
	"errors"
	"os"
)

const canFlock = false

func flock(f *os.File, _ Mode) error {
	return &os.PathError{Op: "flock", Path: f.Name(), Err: errors.ErrUnsupported}
}

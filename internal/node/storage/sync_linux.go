package storage

import (
	"os"
	"syscall"
)

// dataSync is fdatasync, which on a preallocated file has no metadata to write.
func dataSync(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var sync error
	err = conn.Control(func(fd uintptr) {
		for {
			if sync = syscall.Fdatasync(int(fd)); sync != syscall.EINTR {
				return
			}
		}
	})
	if err == nil && sync != nil {
		err = &os.PathError{Op: "fdatasync", Path: f.Name(), Err: sync}
	}
	return err
}

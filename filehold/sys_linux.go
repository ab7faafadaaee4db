package filehold

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// flock asks the kernel for a lock, again if a signal came between.
func flock(fd, how int) error {
	for {
		if err := syscall.Flock(fd, how); err != syscall.EINTR {
			return err
		}
	}
}

// busy reports that somebody else has the lock.
func busy(err error) bool { return err == syscall.EWOULDBLOCK }

// noLocks reports that the file system has no flock.
func noLocks(err error) bool {
	return err == syscall.ENOSYS || err == syscall.ENOLCK || err == syscall.EOPNOTSUPP || err == syscall.EINVAL
}

func openAt(dirfd int, file string, flags int) (int, error) {
	for {
		fd, err := syscall.Openat(dirfd, file, flags|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o666)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

func unlinkAt(dirfd int, file string) error {
	for {
		if err := syscall.Unlinkat(dirfd, file); err != syscall.EINTR {
			return err
		}
	}
}

// lstatAt does not follow a symbolic link.
func lstatAt(dirfd int, file string, st *syscall.Stat_t) error {
	fd, err := syscall.Openat(dirfd, file, oPath|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	return syscall.Fstat(fd, st)
}

// oPath is O_PATH: the file is named, and not opened.
const oPath = 0x200000

func fdatasync(fd int) error {
	for {
		if err := syscall.Fdatasync(fd); err != syscall.EINTR {
			return err
		}
	}
}

// syncDir makes a rename or a new name last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// tempFile makes a file that will be renamed to name, with all of its mode.
func tempFile(dir, name string, perm fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name+tempExt+rand.Text()), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	if _, err := setPerm(f, perm); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return f, nil
}

// tempExt is between the name of such a file and a random text.
const tempExt = "-new-"

// sweep removes those that killed processes left.
func sweep(dir, name string) error {
	old, err := filepath.Glob(filepath.Join(dir, name+tempExt+"*"))
	for _, path := range old {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

const clockBoottime = 7

// boottime is the time since the machine booted, sleep included.
func boottime() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic("filehold: no CLOCK_BOOTTIME: " + errno.Error())
	}
	return time.Duration(ts.Nano())
}

// bootID names this boot of the machine.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// identity is what makes two names the same file.
type identity struct{ dev, ino uint64 }

func fdIdentity(fd int) (identity, error) {
	var st syscall.Stat_t
	err := syscall.Fstat(fd, &st)
	return identity{uint64(st.Dev), st.Ino}, err
}

// pathIdentity does not follow a symbolic link in the last place.
func pathIdentity(path string) (identity, error) {
	var st syscall.Stat_t
	err := syscall.Lstat(path, &st)
	return identity{uint64(st.Dev), st.Ino}, err
}

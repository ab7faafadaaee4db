//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pghold

import (
	"time"

	"golang.org/x/sys/unix"
)

const canNap = true

// awaitInput returns true when a socket can be read or has failed, and false after
// d, or earlier if a signal comes.
func awaitInput(fd uintptr, d time.Duration) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(d.Milliseconds()))
	return n > 0 && err == nil
}

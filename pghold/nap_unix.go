//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pghold

import (
	"time"

	"golang.org/x/sys/unix"
)

const canNap = true

// awaitInput returns when a socket can be read or has failed, after d at the
// latest; a signal may end it early.
func awaitInput(fd uintptr, d time.Duration) {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(d.Milliseconds()))
}

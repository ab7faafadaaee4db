package child

import (
	"os"
	"os/signal"
	"syscall"
	"unsafe"
)

// hasForeground reports that in and out are a terminal whose foreground is this
// program's. Elsewhere, as in a pipeline, the others of the job would lose it.
func hasForeground(in, out *os.File) bool {
	group, ok := foreground(in)
	_, both := foreground(out)
	return ok && both && group == syscall.Getpgrp()
}

// foreground is the process group that has the terminal; false: f is none.
func foreground(f *os.File) (int, bool) {
	var group int32
	errno := ioctl(f, syscall.TIOCGPGRP, unsafe.Pointer(&group))
	return int(group), errno == 0
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) syscall.Errno {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(arg))
	return errno
}

// ignoreTerminal lets this program write to the terminal, and take it back,
// although it is in the background now. The command has started with the
// default: what is ignored would be ignored there, too.
func (r *running) ignoreTerminal() {
	if r.ownsTTY {
		signal.Ignore(syscall.SIGTTOU)
	}
}

// takeTerminalBack makes this program the foreground again.
func (r *running) takeTerminalBack() {
	if !r.ownsTTY {
		return
	}
	group := int32(syscall.Getpgrp())
	ioctl(r.Stdin, syscall.TIOCSPGRP, unsafe.Pointer(&group))
	signal.Reset(syscall.SIGTTOU)
}

// stopsOfChildren tells that a child has ended or stopped, if that is wanted.
func stopsOfChildren(wanted bool) (<-chan os.Signal, func()) {
	if !wanted {
		return nil, func() {}
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCHLD)
	return c, func() { signal.Stop(c) }
}

// childInfo is the kernel's siginfo, as far as it tells of children.
type childInfo struct {
	signo, errno, code int32
	_                  [0]uint64 // aligned as the machine does
	pid                int32
	uid                uint32
	status             int32
	_                  [104]byte
}

const (
	idPID     = 1
	wantStops = 2 // WSTOPPED
	wasStop   = 5 // CLD_STOPPED
)

// stoppedByTerminal reports that the process was stopped by a key or for using
// the terminal; not by SIGSTOP, which somebody meant.
func stoppedByTerminal(pid int) bool {
	var info childInfo
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), wantStops|syscall.WNOHANG, 0, 0)
	if errno != 0 || info.code != wasStop {
		return false
	}
	sig := syscall.Signal(info.status)
	return sig == syscall.SIGTSTP || sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
}

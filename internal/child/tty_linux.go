package child

import (
	"os"
	"os/signal"
	"syscall"
	"unsafe"
)

// hasForeground reports that in and out are a terminal that has in its foreground this
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
	if r.tty != nil {
		signal.Ignore(syscall.SIGTTOU)
	}
}

// giveTerminal makes the command the foreground of the terminal, if it is not, and this program
// is it or a group that has gone. The others of a pipeline lose it, which is less than a command
// that holds and does not run.
func (r *running) giveTerminal() bool {
	tty := r.tty
	if tty == nil {
		var err error
		if tty, err = os.OpenFile("/dev/tty", os.O_RDWR, 0); err != nil {
			return false
		}
	}
	if !give(tty, r.cmd.Process.Pid) {
		if tty != r.tty {
			tty.Close()
		}
		return false
	}
	r.tty = tty
	return true
}

// give makes the group the foreground unless another has it. A background that does so would
// be stopped unless it ignores the signal, which a command that runs does not inherit.
func give(tty *os.File, group int) bool {
	now, ok := foreground(tty)
	switch {
	case !ok:
		return false
	case now == group:
		signal.Ignore(syscall.SIGTTOU) // for when it is taken back
		return true
	case now != syscall.Getpgrp() && syscall.Kill(-now, 0) != syscall.ESRCH:
		return false
	}
	signal.Ignore(syscall.SIGTTOU)
	to := int32(group)
	return ioctl(tty, syscall.TIOCSPGRP, unsafe.Pointer(&to)) == 0
}

// takeTerminalBack makes this program the foreground again, unless a shell that it was started by, or
// the session's, has taken the terminal meanwhile.
func (r *running) takeTerminalBack() {
	if r.tty == nil {
		return
	}
	own := int32(syscall.Getpgrp())
	if now, ok := foreground(r.tty); ok && !ofAncestor(now) && now != ofSession() {
		ioctl(r.tty, syscall.TIOCSPGRP, unsafe.Pointer(&own))
	}
	signal.Reset(syscall.SIGTTOU)
	if r.tty != r.Stdin {
		r.tty.Close()
	}
}

// ofAncestor reports that the group is that of a process by which this one was started, as a shell's.
func ofAncestor(group int) bool {
	for id := os.Getppid(); id > 0; {
		p, lives := lookAt(id)
		if !lives || p.group == group {
			return lives
		}
		id = p.parent
	}
	return false
}

// ofSession is the group of the session's first process, a shell that is no ancestor any more once what
// it started has ended; 0: it has gone.
func ofSession() int {
	leader, _, errno := syscall.RawSyscall(syscall.SYS_GETSID, 0, 0, 0)
	if errno != 0 {
		return 0
	}
	group, _ := syscall.Getpgid(int(leader))
	return max(group, 0)
}

// stops tells that a child has ended or stopped, or that this program was to be stopped by
// ^Z, which is not done while it holds.
func stops() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 2)
	signal.Notify(c, syscall.SIGCHLD, syscall.SIGTSTP)
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

// stoppedBy is the signal that has stopped the process since it was asked last; 0: none.
func stoppedBy(pid int) syscall.Signal {
	var info childInfo
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), wantStops|syscall.WNOHANG, 0, 0)
	if errno != 0 || info.code != wasStop {
		return 0
	}
	return syscall.Signal(info.status)
}

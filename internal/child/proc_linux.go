package child

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// openFiles are copies of all files and connections that the program opened
// itself. Locks on files, and connections, end with the last copy.
func openFiles() []*os.File {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	var files []*os.File
	for _, n := range names {
		fd, err := strconv.Atoi(n.Name())
		if err != nil || fd <= 2 || !keepsSomething(n.Name()) || !ownFile(fd) {
			continue
		}
		copied, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 3)
		if errno == 0 {
			files = append(files, os.NewFile(copied, n.Name()))
		}
	}
	return files
}

// keepsSomething reports that the descriptor is a file, a named pipe or a
// connection, and not something of the process itself.
func keepsSomething(fd string) bool {
	target, err := os.Readlink("/proc/self/fd/" + fd)
	if err != nil {
		return false
	}
	system := strings.HasPrefix(target, "/dev/") || strings.HasPrefix(target, "/proc/") || strings.HasPrefix(target, "/sys/")
	return strings.HasPrefix(target, "socket:") || strings.HasPrefix(target, "/") && !system
}

// ownFile reports that the program opened it; what it was given by its own
// parent is handed on without CLOEXEC anyway.
func ownFile(fd int) bool {
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
	return errno == 0 && flags&syscall.FD_CLOEXEC != 0
}

// anyAlive reports that a process of the group lives. Who is dead and not yet
// buried does nothing any more, and may stay so where nobody buries.
func anyAlive(group int) bool {
	if syscall.Kill(-group, 0) == syscall.ESRCH {
		return false
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err == nil && livesIn(p.Name(), group) {
			return true
		}
	}
	return false
}

// livesIn reports that a process is of the group and not dead. Its stat is
// "pid (name) state ppid group …", and the name may have brackets in it.
func livesIn(pid string, group int) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(fields) > 2 && fields[2] == strconv.Itoa(group) && !strings.Contains("ZXx", fields[0])
}

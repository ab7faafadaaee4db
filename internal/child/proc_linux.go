package child

import (
	"bytes"
	"fmt"
	"iter"
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

// commandOf is the command that holder has started: its child with a group of its
// own that is younger than this process; 0: it has none, or is not our parent any
// more.
func commandOf(holder int) int {
	self, ok := lookAt(os.Getpid())
	if !ok || holder != self.parent {
		return 0
	}
	for p := range processes() {
		if p.parent == holder && p.group == p.id && p.id != self.id && p.began >= self.began {
			return p.id
		}
	}
	return 0
}

// process is one that lives. One that has ended and is not yet buried does nothing any more, and may stay so where
// nobody buries.
type process struct{ id, parent, group, began int }

func processes() iter.Seq[process] {
	return func(yield func(process) bool) {
		names, _ := os.ReadDir("/proc")
		for _, n := range names {
			id, err := strconv.Atoi(n.Name())
			if err != nil {
				continue
			}
			if p, lives := lookAt(id); lives && !yield(p) {
				return
			}
		}
	}
}

// lookAt reads the stat of a process, "pid (name) state ppid group …", the 20th of which is how
// many threads it has, and the 22nd when it began; the name may have brackets in it. One with a
// main thread that has ended is a zombie by its state, and works on if it has others.
func lookAt(id int) (p process, lives bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return p, false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 || strings.Contains("Xx", fields[0]) {
		return p, false
	}
	if threads, _ := strconv.Atoi(fields[17]); fields[0] == "Z" && threads < 2 {
		return p, false
	}
	parent, _ := strconv.Atoi(fields[1])
	group, _ := strconv.Atoi(fields[2])
	began, _ := strconv.Atoi(fields[19])
	return process{id, parent, group, began}, true
}

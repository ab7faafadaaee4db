package filehold_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A process whose system calls on a directory can be made to fail: it is started under
// a filter of the kernel (seccomp) that asks the test about each of them. So every call
// of the real program can fail, and none has to be replaced in it.

// watchedCalls are the calls that a file system can refuse, by where they name a file: a
// descriptor, or a path behind the descriptor of a directory.
var watchedCalls = map[uint64]struct {
	name string
	path int // the argument that is a path; 0: the first is a descriptor
}{
	unix.SYS_OPENAT: {"open", 1}, unix.SYS_READ: {"read", 0}, unix.SYS_PREAD64: {"read", 0}, unix.SYS_WRITE: {"write", 0}, unix.SYS_PWRITE64: {"write", 0},
	unix.SYS_FSYNC: {"sync", 0}, unix.SYS_FDATASYNC: {"sync", 0}, unix.SYS_FTRUNCATE: {"truncate", 0}, unix.SYS_FALLOCATE: {"truncate", 0},
	unix.SYS_FCHMOD: {"chmod", 0}, unix.SYS_FLOCK: {"lock", 0}, unix.SYS_GETDENTS64: {"list", 0}, unix.SYS_RENAMEAT: {"rename", 1},
	unix.SYS_LINKAT: {"link", 1}, unix.SYS_UNLINKAT: {"remove", 1}, unix.SYS_MKDIRAT: {"make", 1}, unix.SYS_MKNODAT: {"make", 1},
}

func init() {
	roles["filtered host"] = func(string) error { return becomeFiltered() }
}

// becomeFiltered puts the filter on, hands its other end to the parent as descriptor 3
// says, and becomes a host.
func becomeFiltered() error {
	runtime.LockOSThread() // the filter is this thread's, and so the next program's
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the number of the call
	for nr := range watchedCalls {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(nr)},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	self, err := os.Executable()
	if err := errors.Join(err, os.Setenv("FILEHOLD_ROLE", "host")); err != nil {
		return err
	}
	env := os.Environ()
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(fd)), nil, 0); err != nil {
		return err
	}
	_, _ = unix.Close(3), unix.Close(int(fd))
	return syscall.Exec(self, os.Args[:1], env)
}

// injector decides about the calls of one process on a directory.
type injector struct {
	dir    string
	listen int // of the filter
	over   sync.WaitGroup

	mu     sync.Mutex
	left   int // calls until the fault; 0: it is not armed
	fault  string
	struck bool
	dead   bool
	where  string // the call that met it
}

// filtered is a farm whose calls on a directory an injector decides about.
func filtered(t testing.TB, dir string) *filePath {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "theirs")
	i, p := &injector{dir: dir}, &filePath{dir: dir}
	p.i = i
	p.f, p.end = newFarm(t, func(c *exec.Cmd) {
		p.cmd = c
		c.Env = append(c.Env, "FILEHOLD_ROLE=filtered host")
		c.ExtraFiles = []*os.File{theirs}
	})
	_ = theirs.Close()
	defer unix.Close(pair[0])
	if i.listen, err = receiveFD(pair[0]); err != nil {
		t.Fatal(err)
	}
	i.over.Go(i.run)
	return p
}

// receiveFD is a descriptor that somebody sends.
func receiveFD(socket int) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), oob, 0)
	if err != nil {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) == 0 {
		return -1, errors.Join(errors.New("the process did not send its filter"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return -1, err
	}
	unix.CloseOnExec(fds[0])
	return fds[0], nil
}

// arm has the k-th call from now on meet a fault.
func (i *injector) arm(k int, fault string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.left, i.fault, i.struck = k, fault, false
}

func (i *injector) disarm() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.left = 0
	return i.struck
}

// hit: the fault has come.
func (i *injector) hit() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.struck
}

func (i *injector) isDead() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.dead
}

// notification and verdict are seccomp_notif and seccomp_notif_resp.
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	at         uint64
	args       [6]uint64
}

type verdict struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// The ioctls of a filter's other end, and the flag that lets a call go on.
const (
	notifyReceive = 0xc0502100
	notifySend    = 0xc0182101
	goOn          = 1
)

// run decides until the process is gone.
func (i *injector) run() {
	defer unix.Close(i.listen)
	for {
		ready := []unix.PollFd{{Fd: int32(i.listen), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err != nil && err != unix.EINTR {
			return
		}
		if ready[0].Revents&unix.POLLIN == 0 {
			if ready[0].Revents != 0 {
				return
			}
			continue
		}
		var n notification
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(i.listen), notifyReceive, uintptr(unsafe.Pointer(&n))); errno != 0 {
			continue // the thread that asked has gone
		}
		v := verdict{id: n.id, flags: goOn}
		if errno := i.decide(&n); errno != 0 {
			v.flags, v.errno = 0, -int32(errno)
		}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(i.listen), notifySend, uintptr(unsafe.Pointer(&v)))
	}
}

// decide is the error that a call ends with; 0: it is done.
func (i *injector) decide(n *notification) syscall.Errno {
	call := watchedCalls[uint64(n.nr)]
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.left == 0 || !i.about(n, call.path) {
		return 0
	}
	if i.left--; i.left > 0 {
		return 0
	}
	i.struck, i.where = true, call.name
	if i.fault == "kill" {
		i.dead = true
		_ = unix.Kill(int(n.pid), unix.SIGKILL)
		return unix.EINTR
	}
	if call.name == "lock" && n.args[1]&unix.LOCK_UN != 0 && i.fault != "EINTR" {
		return 0 // what is locked can be unlocked
	}
	return fileFaults[i.fault][call.name]
}

// about reports whether a call is about the directory.
func (i *injector) about(n *notification, path int) bool {
	proc := "/proc/" + strconv.Itoa(int(n.pid))
	inside := func(file string) bool { return file == i.dir || strings.HasPrefix(file, i.dir+"/") }
	if path > 0 {
		file, err := readText(proc+"/mem", int64(n.args[path]))
		if err != nil || filepath.IsAbs(file) {
			return err == nil && inside(file)
		}
	}
	link, err := os.Readlink(proc + "/fd/" + strconv.Itoa(int(int32(n.args[0]))))
	return err == nil && inside(strings.TrimSuffix(link, " (deleted)"))
}

// readText is a text of another process.
func readText(mem string, at int64) (string, error) {
	f, err := os.Open(mem)
	if err != nil {
		return "", err
	}
	defer f.Close()
	page := make([]byte, 512)
	n, err := f.ReadAt(page, at)
	text, _, found := strings.Cut(string(page[:n]), "\x00")
	if !found {
		return "", errors.Join(errors.New("no end"), err)
	}
	return text, nil
}

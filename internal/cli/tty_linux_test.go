package cli_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// terminal is a pseudo-terminal with a program on it.
type terminal struct {
	t     *testing.T
	keys  *os.File
	shown string
	cmd   *exec.Cmd
}

// onTerminal runs the program as a shell would run it in the foreground.
func onTerminal(t *testing.T, dir string, args ...string) *terminal {
	t.Helper()
	return showing(t, dir, "holdfast", args...)
}

// showing is onTerminal for another program.
func showing(t *testing.T, dir, name string, args ...string) *terminal {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keys.Close() })
	var unlocked, number int32
	control(t, keys, syscall.TIOCSPTLCK, &unlocked)
	control(t, keys, syscall.TIOCGPTN, &number)
	screen, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	like := program(t, dir)
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = like.Dir, like.Env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = screen, screen, screen
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &terminal{t: t, keys: keys, cmd: cmd}
}

func control(t *testing.T, f *os.File, request uintptr, arg *int32) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(arg)))
	})
	if err != nil || errno != 0 {
		t.Fatal(err, errno)
	}
}

// sees waits until the terminal shows the text after what was seen before.
func (m *terminal) sees(text string) {
	m.t.Helper()
	if err := m.keys.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		m.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for !strings.Contains(m.shown, text) {
		n, err := m.keys.Read(buf)
		m.shown += string(buf[:n])
		if err != nil {
			m.t.Fatalf("the terminal shows %q, then %v; want %q", m.shown, err, text)
		}
	}
	_, m.shown, _ = strings.Cut(m.shown, text)
}

func (m *terminal) types(keys string) {
	m.t.Helper()
	if _, err := m.keys.WriteString(keys); err != nil {
		m.t.Fatal(err)
	}
}

// exits waits for the end of the program.
func (m *terminal) exits(want int) {
	m.t.Helper()
	_ = m.cmd.Wait()
	if got := m.cmd.ProcessState.ExitCode(); got != want {
		m.t.Errorf("exit code %d, want %d", got, want)
	}
}

// A command under a lock has the terminal: it reads keys, and ^Z
// does not put a held lock to sleep.
func TestTerminal(t *testing.T) {
	m := onTerminal(t, t.TempDir(), "lock", "x", "--", "sh", "-c",
		`echo up; read line; echo "got $line"; while read line; do echo "got $line"; done; exit 5`)
	m.sees("up")
	m.types("one\n")
	m.sees("got one")
	m.types("\x1a") // ^Z
	m.sees("what holds is not suspended")
	m.types("two\n")
	m.sees("got two")
	m.types("\x04") // ^D
	m.exits(5)
}

// ^C ends a command that does not care for it, and the exit code says so.
func TestTerminal_Interrupt(t *testing.T) {
	m := onTerminal(t, t.TempDir(), "lock", "x", "--", "cat")
	m.types("up\n")
	m.sees("up")    // the terminal's echo
	m.sees("up")    // the command's own
	m.types("\x03") // ^C
	m.exits(130)
}

// After the command the terminal is the program's again: a shell could go on.
func TestTerminal_ComesBack(t *testing.T) {
	m := onTerminal(t, t.TempDir(), "lock", "x", "--", "sh", "-c",
		"holdfast lock y -- sh -c 'read line; echo inner $line'; read line; echo outer $line")
	m.types("a\nb\n")
	m.sees("inner a")
	m.sees("outer b")
	m.exits(0)
}

// A waiter at a terminal is told for whom.
func TestTerminal_Waiting(t *testing.T) {
	dir := t.TempDir()
	m := onTerminal(t, dir, "lock", "--owner", "ann", "x", "--", "sh", "-c", "echo up; read line")
	m.sees("up")
	w := onTerminal(t, dir, "lock", "x", "--", "echo", "granted")
	w.sees(`waiting for "x"`)
	m.types("\n")
	m.exits(0)
	w.sees("granted")
	w.exits(0)
}

// Of several names that one is told which another holds, not one that is held by the waiter already.
func TestTerminal_WaitingForOneOfThem(t *testing.T) {
	dir := t.TempDir()
	m := onTerminal(t, dir, "lock", "--owner", "ann", "y", "--", "sh", "-c", "echo up; read line")
	m.sees("up")
	w := onTerminal(t, dir, "lock", "x", "y", "z", "--", "echo", "granted")
	w.sees("waiting for ")
	m.types("\n")
	m.exits(0)
	w.sees(`"y", place 1, held by ann`)
	w.sees("granted")
	w.exits(0)
}

// A command in a pipeline gets the terminal when it asks for it: without it it would be
// stopped, and hold for ever.
func TestTerminal_InAPipeline(t *testing.T) {
	m := onTerminal(t, t.TempDir(), "lock", "outer", "--", "sh", "-c",
		"holdfast lock x -- sh -c 'read line </dev/tty; echo inner $line' | cat; read line; echo outer $line")
	m.types("a\n")
	m.sees("inner a")
	m.types("b\n")
	m.sees("outer b")
	m.exits(0)
}

// A command in the background that asks for the terminal cannot get it: it is ended, instead
// of being stopped while it holds.
func TestTerminal_InTheBackground(t *testing.T) {
	m := onTerminal(t, t.TempDir(), "lock", "outer", "--", "sh", "-c",
		"set -m; holdfast lock x -- sh -c 'read line </dev/tty; echo got $line' & wait $!; echo code $?")
	m.sees("the command wants the terminal")
	m.sees("code 143")
	m.exits(0)
}

// The program itself is not suspended either while it holds.
func TestTerminal_NotSuspended(t *testing.T) {
	m := onTerminal(t, t.TempDir(), "lock", "x", "--", "sh", "-c", "echo up; read line; echo got $line")
	m.sees("up")
	if err := m.cmd.Process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	m.sees("what holds is not suspended")
	m.types("a\n")
	m.sees("got a")
	m.exits(0)
}

// A command that cannot be executed gives the terminal back.
func TestTerminal_CannotStart(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "none"), []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	m := onTerminal(t, dir, "lock", "outer", "--", "sh", "-c", "holdfast lock x -- ./none; echo code $?; read line; echo got $line")
	m.sees("code 126")
	m.types("a\n")
	m.sees("got a")
	m.exits(0)
}

func init() {
	played["take-terminal"] = takesTerminal
	played["tiny-shell"] = tinyShell
	played["outer-shell"] = outerShell
	played["left-shell"] = leftShell
}

// outerShell has a tiny shell in the foreground, as an interactive shell has another.
func outerShell() {
	cmd := exec.Command("tiny-shell")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: true}
	if err := cmd.Run(); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// setForeground gives the terminal to a group.
func setForeground(tty *os.File, group int) {
	ossignal.Ignore(syscall.SIGTTOU)
	to := int32(group)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, tty.Fd(), syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&to))); errno != 0 {
		panic(errno)
	}
}

// takesTerminal is a program with a group of its own that takes the terminal: take-terminal FILE.
// Then it makes the file, and stays if it is called stay.
func takesTerminal() {
	_ = syscall.Setpgid(0, 0)
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	setForeground(tty, syscall.Getpgrp())
	_ = os.WriteFile(os.Args[1], nil, 0o600)
	if os.Args[1] == "stay" {
		<-time.After(time.Minute)
	}
	os.Exit(0)
}

// tinyShell has holdfast in the foreground, takes the terminal back while that runs, as a shell
// does when its job was stopped, and says whether it still has it in the end.
func tinyShell() { tiny(exec.Command("holdfast", "lock", "x", "--", "sh", "-c", untilGo), false) }

// leftShell is one of which the job has ended, as the shell sees it, and left holdfast behind.
func leftShell() {
	tiny(exec.Command("sh", "-c", "exec 4<&0; holdfast lock x -- sh -c '"+untilGo+"' <&4 & until [ -e up ]; do sleep 0.01; done"), true)
}

const untilGo = "echo >up; until [ -e go ]; do sleep 0.01; done"

func tiny(cmd *exec.Cmd, leaves bool) {
	all, theirs, err := os.Pipe() // which ends with the last that has it
	if err != nil {
		panic(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdin, os.Stdout, os.Stderr, []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: true}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	_ = theirs.Close()
	for _, err := os.Stat("up"); err != nil; _, err = os.Stat("up") {
		runtime.Gosched()
	}
	if leaves {
		_ = cmd.Wait()
	}
	setForeground(os.Stdin, syscall.Getpgrp())
	_ = os.WriteFile("go", nil, 0o600)
	_, _ = io.Copy(io.Discard, all)
	var now int32
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, os.Stdin.Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&now)))
	fmt.Println("has it:", int(now) == syscall.Getpgrp())
	os.Exit(0)
}

// A command that wants a terminal which another has by now is ended; continued, it would want it
// again at once, for ever.
func TestTerminal_LostToAnother(t *testing.T) {
	m := onTerminal(t, t.TempDir(), "lock", "x", "--", "sh", "-c", "take-terminal stay & until [ -e stay ]; do sleep 0.01; done; read line")
	m.sees("which is another's; it is told to end")
	m.exits(143)
}

// A command gets the terminal back from a program that took it and has ended.
func TestTerminal_LostToNobody(t *testing.T) {
	m := onTerminal(t, t.TempDir(), "lock", "x", "--", "sh", "-c", "take-terminal gone; echo up; read line; echo got $line")
	m.types("a\n")
	m.sees("got a")
	m.exits(0)
}

// So does that of a shell that was started by another.
func TestTerminal_TheInnerShellHasIt(t *testing.T) {
	m := showing(t, t.TempDir(), "outer-shell")
	m.sees("has it: true")
	m.exits(0)
}

// So does that of a shell with a job that has ended, and left holdfast behind.
func TestTerminal_TheShellThatItWasLeftByHasIt(t *testing.T) {
	m := showing(t, t.TempDir(), "left-shell")
	m.sees("has it: true")
	m.exits(0)
}

// A terminal that the shell has taken back stays the shell's.
func TestTerminal_TheShellHasIt(t *testing.T) {
	m := showing(t, t.TempDir(), "tiny-shell")
	m.sees("has it: true")
	m.exits(0)
}

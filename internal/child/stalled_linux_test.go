package child_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/holdtest"
	"github.com/holdfast-io/holdfast/internal/child"
	"github.com/holdfast-io/holdfast/internal/services"
)

// A command is told to end before anybody else is told of it: the note may wait for a reader.
func TestRun_ToldBeforeTheNote(t *testing.T) {
	h := hold(t, holdtest.Space(t, holdfast.TTL(time.Hour)))
	noted := make(chan struct{})
	r := noting(t, h, time.Hour, func(string) { <-noted }, `trap 'echo told; exit 3' TERM; echo up; while :; do sleep 0.01; done`)
	r.line(t)
	holdtest.Lose(h, errors.New("an operator decided so"))
	told := make(chan string, 1)
	go func() { told <- r.line(t) }()
	select {
	case got := <-told:
		if got != "told" {
			t.Errorf("the command says %q", got)
		}
		close(noted)
	case <-time.After(30 * time.Second):
		t.Error("the command is not told as long as nobody reads the note")
		close(noted)
		<-told
	}
	<-r.result
}

// A warden kills, and ends, also if nobody reads what it says: until it has ended, the files
// that it keeps are open.
func TestWarden_Stalled(t *testing.T) {
	_, stderr := services.FullPipe(t)
	w := exec.CommandContext(t.Context(), "/proc/self/exe", child.WardenArg)
	w.Stderr = stderr
	in, err := w.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sleep", "1000")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(30*time.Second, func() { _ = w.Process.Kill(); _ = c.Process.Kill() })
	defer late.Stop()
	fmt.Fprintf(in, "group %d\nuntil 1\n", c.Process.Pid)
	_, _ = c.Process.Wait()
	_ = w.Wait()
	if code := w.ProcessState.ExitCode(); code != 3 {
		t.Errorf("the warden ends with %d; want 3: it has killed the command, and ended by itself", code)
	}
}

// A process that cannot be started to watch over a command is told from one that cannot run.
func TestRun_NoWarden(t *testing.T) {
	h := hold(t, holdtest.Space(t))
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := before
	none.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, err := (&child.Command{Path: "/bin/true", Args: []string{"true"}, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Notes: os.Stderr}).Run(h)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, child.ErrNoWarden) || !errors.Is(err, syscall.EMFILE) {
		t.Errorf("no more files: %v", err)
	}
}

// mainlessArg has this program end its main thread, and go on.
const mainlessArg = "_mainless"

func init() {
	if len(os.Args) == 2 && os.Args[1] == mainlessArg {
		runtime.LockOSThread() // main is on the main thread
	}
}

// mainless goes on in other threads until it is killed.
func mainless() {
	go func() {
		<-time.After(30 * time.Second)
		fmt.Println("nobody has ended it")
		os.Exit(1)
	}()
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

// What a command leaves behind is ended also if its main thread has ended, so that the system
// says of it what it says of processes that have ended.
func TestRun_EndsTheHeadless(t *testing.T) {
	h := hold(t, holdtest.Space(t))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := under(t, h, 50*time.Millisecond, `'`+self+`' `+mainlessArg+` & until grep -q '^State:.*Z' /proc/$!/status; do sleep 0.01; done; exit 4`)
	if end := <-r.result; end.Code != 4 || end.err != nil {
		t.Errorf("%+v", end)
	}
	if got := r.line(t); got != "" {
		t.Error(got)
	}
}

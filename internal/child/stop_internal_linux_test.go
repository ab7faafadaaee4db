package child

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// always is a hold that lasts.
type always struct{}

func (always) Done() <-chan struct{}       { return nil }
func (always) Err() error                  { return nil }
func (always) Deadline() (time.Time, bool) { return time.Time{}, false }

// A command that ^Z stopped before anybody listened for that goes on, too.
func TestStoppedAtOnce(t *testing.T) {
	cmd := exec.Command("sh", "-c", "kill -TSTP $$; exit 7")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
	var info childInfo // the stop itself is left for the program to find
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idPID, uintptr(cmd.Process.Pid), uintptr(unsafe.Pointer(&info)), wantStops|syscall.WEXITED|syscall.WNOWAIT, 0, 0)
	if errno != 0 || info.code != wasStop {
		t.Fatalf("the command did not stop: %v, %+v", errno, info)
	}
	exited, notes := make(chan *os.ProcessState, 1), 0
	go func() {
		_ = cmd.Wait()
		exited <- cmd.ProcessState
	}()
	r := &running{Command: &Command{Note: func(string) { notes++ }}, h: always{}, cmd: cmd, kin: family{group: cmd.Process.Pid}, exited: exited}
	r.pace = newPace(time.Second, 0, false)
	if state := r.follow(); state.ExitCode() != 7 || notes != 1 {
		t.Errorf("it ended with %v after %d notes", state, notes)
	}
}

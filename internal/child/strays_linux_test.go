package child_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/holdtest"
	"github.com/holdfast-io/holdfast/internal/child"
)

// stray is a script that leaves its group, does not hear SIGTERM, and says so after 20 s if nobody has killed it.
const stray = `setsid sh -c 'trap "" TERM INT; echo up; n=0; while [ $n -lt 200 ]; do sleep 0.1; n=$((n+1)); done; echo nobody has ended it' & `

// A command that is ended is ended with what has left its group.
func TestRun_EndsWhatLeftTheGroup(t *testing.T) {
	tests := map[string]func(*run, *holdfast.Hold){
		"lost":    func(_ *run, h *holdfast.Hold) { holdtest.Lose(h, errors.New("an operator decided so")) },
		"stopped": func(r *run, _ *holdfast.Hold) { close(r.stop) },
		"asked": func(r *run, _ *holdfast.Hold) {
			for range 3 {
				r.ask(syscall.SIGINT)
			}
		},
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			h := hold(t, holdtest.Space(t, holdfast.TTL(time.Hour)))
			r := under(t, h, 50*time.Millisecond, `trap '' INT; `+stray+`while :; do sleep 0.1; done`)
			if got := r.line(t); got != "up" {
				t.Fatal(got)
			}
			end(r, h)
			if end := <-r.result; end.err != nil {
				t.Errorf("%+v", end)
			}
			if got := r.line(t); got != "" {
				t.Error(got)
			}
		})
	}
}

// What left the group of a command that has ended by itself, as a daemon does, goes on.
func TestRun_SparesDaemons(t *testing.T) {
	path := t.TempDir() + "/words"
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	words, err := os.OpenFile(path, os.O_RDWR, 0) // for both, so that nobody waits for the other
	if err != nil {
		t.Fatal(err)
	}
	defer words.Close()
	h := hold(t, holdtest.Space(t))
	r := under(t, h, 50*time.Millisecond, `setsid sh -c 'touch "$0.up"; read word <"$0"; echo $word' `+path+` & until [ -e `+path+`.up ]; do sleep 0.01; done; exit 4`)
	if end := <-r.result; end.Code != 4 || strings.Contains(end.notes, "left processes") {
		t.Errorf("%+v", end)
	}
	fmt.Fprintln(words, "goes on")
	if got := r.line(t); got != "goes on" {
		t.Errorf("the daemon says %q", got)
	}
}

// A warden ends what has left the group, too, also if the command itself is gone: the kernel kills it with its holdfast.
// What left the group of a command that has ended by itself goes on, as far as the warden can know of that end.
func TestWarden_EndsWhatLeftTheGroup(t *testing.T) {
	tests := map[string]struct {
		itself, killed bool // the command ends by itself; holdfast is killed
		orders         string
		goesOn         bool
	}{
		"killed":                        {killed: true},
		"killed after the command":      {killed: true, orders: "spare\n", goesOn: true},
		"stopped":                       {orders: "until 1\n"},
		"stopped before the command":    {itself: true, orders: "until 1\n", goesOn: true},
		"stopped as it ended a command": {itself: true, orders: "ending\nuntil 1\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			mark := rand.Text()
			w, orders, _ := piped(t, "", "/proc/self/exe", child.WardenArg)
			d, words, said := piped(t, mark, "sh", "-c", "echo up; read word; echo $word")
			if _, err := io.ReadFull(said, make([]byte, len("up\n"))); err != nil {
				t.Fatal(err)
			}
			c, hold, _ := piped(t, mark, "sh", "-c", "read word")
			fmt.Fprintf(orders, "mark %s\ngroup %d\n", mark, c.Process.Pid)
			if tt.itself {
				hold.Close()
				child.AwaitEnd(t, c.Process.Pid)
			}
			if io.WriteString(orders, tt.orders); tt.killed {
				_ = c.Process.Kill()
				_, _ = c.Process.Wait()
				orders.Close()
			}
			_ = w.Wait()
			io.WriteString(words, "goes on\n")
			got, _ := io.ReadAll(said)
			_, _ = d.Wait(), c.Wait()
			if goesOn, code := string(got) == "goes on\n", w.ProcessState.ExitCode(); goesOn != tt.goesOn || (code == 3) == tt.goesOn {
				t.Errorf("it says %q, and the warden ends with %d", got, code)
			}
		})
	}
}

// piped starts a process that leads a group of its own.
func piped(t *testing.T, mark string, args ...string) (*exec.Cmd, io.WriteCloser, io.Reader) {
	t.Helper()
	c := exec.CommandContext(t.Context(), args[0], args[1:]...)
	c.Env = append(os.Environ(), "HOLDFAST_WARDEN="+mark)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, in, out
}

package child_test

import (
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
				r.signals <- syscall.SIGINT
			}
		},
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			h := hold(t, holdtest.Space(t, holdfast.TTL(time.Hour)))
			r := under(t, h, 50*time.Millisecond, stray+`trap '' INT; while :; do sleep 0.1; done`)
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
func TestWarden_EndsWhatLeftTheGroup(t *testing.T) {
	w := exec.CommandContext(t.Context(), "/proc/self/exe", child.WardenArg)
	in, err := w.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "-c", stray+`wait`)
	c.Env = append(os.Environ(), "HOLDFAST_WARDEN=ABC")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("up\n"))); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(in, "mark ABC\ngroup %d\n", c.Process.Pid)
	_ = c.Process.Kill()
	_, _ = c.Process.Wait()
	in.Close()
	rest, err := io.ReadAll(out)
	if err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	if err := w.Wait(); w.ProcessState.ExitCode() != 3 {
		t.Errorf("the warden: %v", err)
	}
}

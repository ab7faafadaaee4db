package cli_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services"
)

// program is the holdfast program on a directory of the test's own.
func program(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "holdfast", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=file://"+filepath.Join(dir, "space"), "XDG_CONFIG_HOME="+dir)
	return cmd
}

// A hundred processes that count in a plain file lose nothing: only one is at it
// at a time.
func TestCrowd(t *testing.T) {
	const processes = 100
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "count"), []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range processes {
		all.Go(func() {
			cmd := program(t, dir, "lock", "x", "--", "sh", "-c", "read n <count; echo $((n+1)) >count")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	got, err := os.ReadFile(filepath.Join(dir, "count"))
	if err != nil || strings.TrimSpace(string(got)) != strconv.Itoa(processes) {
		t.Errorf("counted %q, %v; want %d", got, err, processes)
	}
}

// When holdfast is killed, the name stays taken until its command is gone: the
// warden keeps it, however late it gets to run.
func TestKilled_NameIsKeptUntilTheCommandIsGone(t *testing.T) {
	for _, family := range [][]string{{"lock"}, {"rlock"}, {"sem", "--limit", "1"}, {"elect"}} {
		t.Run(family[0], func(t *testing.T) {
			dir := t.TempDir()
			keptUntilGone(t, dir, "file://"+filepath.Join(dir, "space"), family)
		})
	}
	t.Run("postgres", func(t *testing.T) {
		pg := services.SharedPostgreSQL(t)
		keptUntilGone(t, t.TempDir(), pg.URL(pg.CreateDatabase(t)), []string{"lock"})
	})
}

func keptUntilGone(t *testing.T, dir, url string, family []string) {
	args := append([]string{"--url", url}, family...)
	holder := program(t, dir, append(args, "x", "--", "sh", "-c", "sleep 1000 & echo up; wait")...)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "up\n" {
		t.Fatalf("the command says %q, %v", line, err)
	}
	warden := wardenOf(t, holder.Process.Pid)
	signal(t, warden, syscall.SIGSTOP)
	t.Cleanup(func() { _ = syscall.Kill(warden, syscall.SIGCONT) })
	signal(t, holder.Process.Pid, syscall.SIGKILL)
	_, _ = holder.Process.Wait()

	want := []string{"--url", url, family[0], "--try", "x", "--", "true"}
	if family[0] == "rlock" {
		want[2] = "wlock"
	}
	if code := exitCode(t, program(t, dir, want...)); code != 75 {
		t.Errorf("the command lives, and another one's try exits with %d; want 75", code)
	}
	signal(t, warden, syscall.SIGCONT)
	if _, err := lines.ReadString('\n'); err == nil { // ends with the last process of the group
		t.Error("the command goes on")
	}
	want[3] = "--wait=1h" // the warden ends just after the command
	if code := exitCode(t, program(t, dir, want...)); code != 0 {
		t.Errorf("the command is gone, and the next exits with %d", code)
	}
}

func signal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("signal %v to %d: %v", sig, pid, err)
	}
}

func exitCode(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if e, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || e.ExitCode() < 0) {
		t.Fatalf("%v: %s", err, out)
	}
	return cmd.ProcessState.ExitCode()
}

// wardenOf is the child of a process that was started as its warden.
func wardenOf(t *testing.T, parent int) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range stats {
		pid := filepath.Base(filepath.Dir(stat))
		if ppid(stat) != parent {
			continue
		}
		line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		if bytes.HasSuffix(line, []byte("\x00_warden\x00")) {
			n, _ := strconv.Atoi(pid)
			return n
		}
	}
	t.Fatal(fmt.Errorf("process %d has no warden", parent))
	return 0
}

// ppid is the parent of a process, 0 if it has gone.
func ppid(stat string) int {
	data, err := os.ReadFile(stat)
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	n, _ := strconv.Atoi(fields[1])
	return n
}

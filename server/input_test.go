package server_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/server"
)

func contains(err error, words ...string) bool {
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			return false
		}
	}
	return true
}

// childDir makes this test binary a process that runs a node on that directory
// until its input ends.
const childDir = "HOLDFAST_TEST_CHILD_DIR"

// TestChild is that process; by itself it does nothing.
func TestChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		return
	}
	s, err := server.New(server.Config{Dir: dir})
	if err != nil {
		fmt.Println("child:", err)
		return
	}
	defer s.Close()
	fmt.Println("child: runs")
	io.Copy(io.Discard, os.Stdin)
}

// child starts that process, as nobody in particular, and returns what it says.
func child(t *testing.T, dir string) (says string, end func()) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "child")
	copyProgram(t, bin)
	cmd := exec.Command(bin, "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Dir = filepath.Dir(bin)
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if says, ok := strings.CutPrefix(lines.Text(), "child: "); ok {
			return says, func() {
				in.Close()
				io.Copy(io.Discard, out)
				cmd.Wait()
			}
		}
	}
	t.Fatalf("the child said nothing: %v", cmd.Wait())
	return "", nil
}

// copyProgram puts the test binary where any user can run it.
func copyProgram(t *testing.T, to string) {
	t.Helper()
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for d := filepath.Dir(to); d != filepath.Clean(os.TempDir()) && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

// readable lets any user look into a directory of this test.
func readable(t *testing.T, dir string) {
	t.Helper()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
}

// files is all that a directory holds.
func files(t *testing.T, dir string) string {
	t.Helper()
	all := ""
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all += fmt.Sprintf("%s %x\n", e.Name(), b)
	}
	return all
}

// Promise: "no write permission …: a clear message naming the file and the way
// out; nothing overwritten".
func TestNoPermission(t *testing.T) {
	used := t.TempDir()
	start(t, server.Config{Dir: used}).Close()
	empty := t.TempDir()
	if err := os.Chmod(empty, 0o555); err != nil {
		t.Fatal(err)
	}
	readable(t, used)
	before := files(t, used)
	if os.Getuid() != 0 {
		if err := os.Chmod(filepath.Join(used, "LOCK"), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{used, filepath.Join(empty, "new"), empty} {
		says, end := child(t, dir)
		end()
		if !strings.Contains(says, dir) || !strings.Contains(says, "permission denied") || !strings.Contains(says, "make it readable and writable") {
			t.Errorf("in %s the child said %q", dir, says)
		}
	}
	if files(t, used) != before {
		t.Error("something was changed")
	}
}

// Promise: "two processes": the second one is told which file, and what to do.
func TestTwoProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "node")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	says, end := child(t, dir)
	defer end()
	if says != "runs" {
		t.Fatalf("the child said %q", says)
	}
	_, err := server.New(server.Config{Dir: dir})
	if !errors.Is(err, storage.ErrLocked) || !contains(err, filepath.Join(dir, "LOCK"), "stop the other process") {
		t.Errorf("beside a running process: %v", err)
	}
}

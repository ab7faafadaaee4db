package cli_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/services"
)

// A reader of the standard error that stalls, as behind ^S or a pager, keeps neither the command
// running when the hold is lost nor the name.
func TestLock_StalledReader(t *testing.T) {
	addr, dir := services.Addr(t), t.TempDir()
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, "d"), "--listen", addr}}
	n.start()
	defer n.signal(syscall.SIGTERM)
	url := "holdfast://" + addr
	life := filepath.Join(dir, "life")
	if err := syscall.Mkfifo(life, 0o600); err != nil {
		t.Fatal(err)
	}
	read, write := services.FullPipe(t)
	holder := program(t, dir, "--url", url, "lock", "--ttl", "1h", "--grace", "100ms", "x", "--", "sh", "-c", "trap '' TERM; exec >life; echo up; exec sleep 1000")
	holder.Stderr = write
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	f, err := os.Open(life)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	if line, err := lines.ReadString('\n'); line != "up\n" {
		t.Fatalf("the command says %q, %v", line, err)
	}
	does(t, url, "release", "--force", "x")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = lines.ReadString('\n') // ends with the command
	}()
	select {
	case <-ended:
		does(t, url, "lock", "--wait", "1m", "x", "--", "true")
	case <-time.After(time.Minute):
		t.Error("the command runs on, although its hold is lost, as long as nobody reads")
	}
	said, err := io.ReadAll(read)
	if text := strings.TrimLeft(string(said), "\x00"); err != nil || !strings.Contains(text, "the command is told to end") || !strings.Contains(text, "error: the hold was lost") {
		t.Errorf("it says %q, %v", text, err)
	}
	if _ = holder.Wait(); holder.ProcessState.ExitCode() != 76 {
		t.Errorf("it exits with %v", holder.ProcessState)
	}
}

// A reader of the standard error that leaves, as head does, does not end the program: the rest
// of the command is ended as always, and its code is passed back.
func TestLock_ReaderLeaves(t *testing.T) {
	for _, family := range [][]string{{"lock", "x"}, {"session", "run", "--put", "k=v"}} {
		dir := t.TempDir()
		holder := program(t, dir, append(family, "--", "sh", "-c",
			"(exec 2>/dev/null; trap 'echo told >told; exit' TERM; echo up; while :; do sleep 0.01; done) & until [ -e gone ]; do sleep 0.01; done; exit 7")...)
		out, err := holder.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		holder.Stderr = holder.Stdout // both are read by one that leaves
		if err := holder.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
			t.Fatalf("the command says %q, %v", line, err)
		}
		out.Close()
		if err := os.WriteFile(filepath.Join(dir, "gone"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _ = holder.Wait(); holder.ProcessState.ExitCode() != 7 {
			t.Errorf("%s: it ends with %v, want the command's 7", family[0], holder.ProcessState)
		}
		if told, err := os.ReadFile(filepath.Join(dir, "told")); err != nil || string(told) != "told\n" {
			t.Errorf("%s: what the command left was not told to end: %q, %v", family[0], told, err)
		}
	}
}

// A form that drips keeps a connection of an edge node for some time only.
func TestEdge_SlowForm(t *testing.T) {
	t.Parallel()
	url := edgeProcess(t, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nkey="); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("the connection stands: %v", err)
	}
}

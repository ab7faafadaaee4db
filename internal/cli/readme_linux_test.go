package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/internal/services/programs"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// readmePort is where the README's node serves.
const readmePort = "127.0.0.1:7420"

// lockByGRPC is the README's example.
func lockByGRPC(ctx context.Context, node string) error {
	conn, err := grpc.NewClient(node, grpc.WithTransportCredentials(insecure.NewCredentials())) // "127.0.0.1:7420"
	if err != nil {
		return err
	}
	defer conn.Close()
	locks := pb.NewLockServiceClient(conn)
	hold, err := locks.Lock(ctx, &pb.LockRequest{Name: "nightly", Owner: "w1", TtlMs: 60_000})
	if err != nil {
		return err
	}
	fmt.Println("token", hold.GetFencingToken())
	_, err = locks.Unlock(ctx, &pb.UnlockRequest{Key: hold.GetKey()})
	return err
}

// What the README tells to type says what it shows, on a node that serves; only
// the port is another.
func TestReadme(t *testing.T) {
	if _, err := programs.Curl.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	addr, dir := services.Addr(t), checkout(t)
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, "d"), "--listen", addr}}
	n.start()
	defer n.signal(syscall.SIGTERM)
	examples := examplesOf(string(readme))
	if len(examples) < 6 {
		t.Fatalf("only %d examples are found", len(examples))
	}
	token := ""
	for _, e := range examples {
		got := typed(t, dir, strings.NewReplacer(readmePort, addr, "TOKEN", token).Replace(e.command))
		if !matches(e.want, got) {
			t.Errorf("$ %s\n%swant:\n%s", e.command, got, strings.Join(e.want, "\n"))
		}
		var answer struct{ Token json.Number }
		if json.Unmarshal([]byte(got), &answer) == nil && answer.Token != "" {
			token = answer.Token.String()
		}
	}
	if err := lockByGRPC(t.Context(), addr); err != nil {
		t.Errorf("the README's gRPC client: %v", err)
	}
	isInTest(t, string(readme))
}

// checkout is a directory that looks as the README finds it: with the program in
// bin, and somebody's backup.sh.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program, err := exec.LookPath("holdfast")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(dir, "bin", "holdfast")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "backup.sh"), []byte("#!/bin/sh\necho backed up\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// typed is what a shell says, in an account without any files.
func typed(t *testing.T, dir, command string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=", "HOME="+dir, "XDG_STATE_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	out, _ := cmd.CombinedOutput() // a refusal is told by what it says
	return string(out)
}

// isInTest: the README's gRPC code is that of lockByGRPC.
func isInTest(t *testing.T, readme string) {
	t.Helper()
	source, err := os.ReadFile("readme_linux_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(readme, "```go\n")
	code, _, _ := strings.Cut(blocks[len(blocks)-1], "```")
	if flat := strings.ReplaceAll(string(source), "\n\t", "\n"); !strings.Contains(flat, strings.TrimSpace(code)) || !strings.Contains(code, "grpc.") {
		t.Errorf("the README's code is not that of lockByGRPC:\n%s", code)
	}
}

// The three things to try that a node prints when it starts work as printed.
func TestGreeting(t *testing.T) {
	if _, err := programs.Curl.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	addr, dir := services.Addr(t), checkout(t)
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, "d"), "--listen", addr}}
	greeting := n.start()
	defer n.signal(syscall.SIGTERM)
	var said []string
	for line := range strings.Lines(greeting) {
		if command, ok := strings.CutPrefix(line, "  "); ok {
			said = append(said, strings.TrimSpace(typed(t, dir, strings.Replace(command, "sleep 30", "echo slept", 1))))
		}
	}
	if got := strings.Join(said, "; "); got != `slept; nightly is free; {"value":1}` {
		t.Errorf("%s\nsays %s", greeting, got)
	}
}

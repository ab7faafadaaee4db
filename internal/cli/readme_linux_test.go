package cli_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast/internal/pasted"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/internal/services/programs"
)

// readmePort is where the README's node serves.
const readmePort = "127.0.0.1:7420"

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
	program := byGRPC(t)
	if got := pasted.Go(t, "../..", strings.Replace(program.Code, readmePort, addr, 1), "run", "."); got != program.Output {
		t.Errorf("the README's gRPC client prints:\n%swant:\n%s", got, program.Output)
	}
}

// byGRPC is the README's program that speaks to the node.
func byGRPC(t *testing.T) pasted.Program {
	t.Helper()
	for _, p := range pasted.Programs(t, "../../README.md") {
		if strings.Contains(p.Code, readmePort) {
			return p
		}
	}
	t.Fatal("no program of the README speaks to its node")
	return pasted.Program{}
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

package holdfast_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The README's program runs as pasted, in a module of its own outside the
// repository.
func TestReadmeProgram(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\n")
	code, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the README has no Go code")
	}
	got := outside(t, code, "run", ".")
	if want := "working with a token: true <nil>\n"; got != want {
		t.Errorf("the README's program prints %q; want %q", got, want)
	}
}

// What is behind internal is not for others: a program that imports it does not
// build.
func TestInternalIsInternal(t *testing.T) {
	got := outside(t, "package main\n\nimport _ \"github.com/holdfast-io/holdfast/internal/core\"\n\nfunc main() {}\n", "build", ".")
	if !strings.Contains(got, "use of internal package") {
		t.Errorf("a program outside can use the core: %q", got)
	}
}

// outside runs the go command on a program in a module of its own that requires
// this one, and returns all that it prints.
func outside(t *testing.T, program string, args ...string) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	own := regexp.MustCompile(`(?m)^module .*$`).ReplaceAllString(string(mod), "module example.org/app")
	own += "\nrequire github.com/holdfast-io/holdfast v0.0.0\nreplace github.com/holdfast-io/holdfast => " + here + "\n"
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": own, "go.sum": string(sum), "main.go": program} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, _ := cmd.CombinedOutput() // a failure is told by what it prints
	return string(out)
}

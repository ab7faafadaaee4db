// Package pasted runs a program of a document as it is printed there: imports
// included, in a module of its own outside the repository. Tests use it, so that
// no document shows code that does not work for its readers.
package pasted

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Program is a complete program of a document.
type Program struct {
	Code string
	// Output is the block of text that follows the code, "" if none does.
	Output string
}

// Programs are the complete programs of a document, in their order.
func Programs(t testing.TB, document string) (all []Program) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```go\npackage main\n")
	for _, b := range blocks[1:] {
		code, rest, ok := strings.Cut(b, "```\n")
		if !ok {
			t.Fatalf("%s: a program has no end", document)
		}
		p := Program{Code: "package main\n" + code}
		if shown, ok := strings.CutPrefix(rest, "\n```text\n"); ok {
			p.Output, _, _ = strings.Cut(shown, "```")
		}
		all = append(all, p)
	}
	return all
}

// Go runs the go command on a program in a module of its own that requires the one
// at root, and returns all that it prints: a failure is told by that.
func Go(t testing.TB, root, program string, args ...string) string {
	t.Helper()
	return Files(t, root, map[string]string{"main.go": program}, args...)
}

// Files is Go for a package of several files, by name.
func Files(t testing.TB, root string, files map[string]string, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{"go.mod": module(t, root), "go.sum": read(t, root, "go.sum")})
	write(t, dir, files)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, _ := cmd.CombinedOutput()
	return string(out)
}

func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

var moduleLine = regexp.MustCompile(`(?m)^module .*$`)

// module is the go.mod of a program that requires the module at root.
func module(t testing.TB, root string) string {
	t.Helper()
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	own := moduleLine.ReplaceAllString(read(t, root, "go.mod"), "module example.org/app")
	return own + "\nrequire github.com/holdfast-io/holdfast v0.0.0\nreplace github.com/holdfast-io/holdfast => " + here + "\n"
}

func read(t testing.TB, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

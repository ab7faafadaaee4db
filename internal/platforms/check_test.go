package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module makes a module of files.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.com/m\n\ngo 1.26\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What a platform lacks is told for it, in packages and in their tests, and for no
// other; a test that needs a package which the platform does not have is left out.
func TestCheck(t *testing.T) {
	dir := module(t, map[string]string{
		"a/a.go":           "package a\n\nimport \"syscall\"\n\nvar S = syscall.SIGUSR1\n",
		"b/b.go":           "package b\n",
		"b/b_test.go":      "package b_test\n\nimport \"testing\"\n\nfunc TestB(t *testing.T) { only(t) }\n",
		"b/b_unix_test.go": "//go:build unix\n\npackage b_test\n\nimport \"testing\"\n\nfunc only(t *testing.T) {}\n",
		"c/c.go":           "//go:build unix\n\npackage c\n",
		"d/d.go":           "package d\n",
		"d/d_test.go":      "package d_test\n\nimport _ \"example.com/m/c\"\n\nvar _ int = \"no number\"\n",
	})
	s := newSources()
	for platform, want := range map[string][]string{
		"windows": {"a.go", "SIGUSR1", "b_test.go", "undefined: only"},
		"darwin":  {"d_test.go", "no number"},
	} {
		errs, err := check(s, dir, platform, "amd64")
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, e := range errs {
			text.WriteString(e.Error() + "\n")
		}
		if len(errs) != len(want)/2 {
			t.Errorf("%s: %d errors:\n%s", platform, len(errs), &text)
		}
		for _, w := range want {
			if !strings.Contains(text.String(), w) {
				t.Errorf("%s: %q is not told:\n%s", platform, w, &text)
			}
		}
	}
}

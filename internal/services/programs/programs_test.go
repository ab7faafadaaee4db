//go:build unix

package programs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services/programs"
)

// machine makes executables at the given paths below a fresh root.
func machine(t *testing.T, paths ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, path := range paths {
		full := filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte("#!/bin/sh\n"), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestFind(t *testing.T) {
	for name, test := range map[string]struct {
		files []string
		want  string // "" means missing
	}{
		"nowhere":                      {nil, ""},
		"on PATH":                      {[]string{"path/db", "path/mkdb"}, "path/db"},
		"PATH wins":                    {[]string{"path/db", "path/mkdb", "lib/9/bin/db", "lib/9/bin/mkdb"}, "path/db"},
		"half a set does not count":    {[]string{"path/db", "lib/9/bin/db", "lib/9/bin/mkdb"}, "lib/9/bin/db"},
		"highest version, as a number": {[]string{"lib/9/bin/db", "lib/9/bin/mkdb", "lib/15/bin/db", "lib/15/bin/mkdb", "lib/9.6/bin/db", "lib/9.6/bin/mkdb"}, "lib/15/bin/db"},
		"the other name":               {[]string{"path/otherdb"}, "path/otherdb"},
		"the best name first":          {[]string{"path/otherdb", "lib/9/bin/db", "lib/9/bin/mkdb"}, "lib/9/bin/db"},
	} {
		t.Run(name, func(t *testing.T) {
			root := machine(t, test.files...)
			t.Setenv("PATH", filepath.Join(root, "path"))
			p := programs.Program{
				Package: "database", Variable: "DB_URL",
				Executables: [][]string{{"db", "mkdb"}, {"otherdb"}},
				Places:      []string{filepath.Join(root, "lib/*/bin")},
			}
			got, err := p.Find()
			checkFound(t, got, err, root, test.want)
		})
	}
}

func checkFound(t *testing.T, got string, err error, root, want string) {
	t.Helper()
	if want != "" {
		if got != filepath.Join(root, want) || err != nil {
			t.Errorf("found %q, %v; want %q", got, err, want)
		}
		return
	}
	missing, ok := errors.AsType[*programs.MissingError](err)
	if !ok || missing.Program.Package != "database" {
		t.Fatalf("found %q, %v; want a MissingError", got, err)
	}
	for _, part := range []string{"db and mkdb", "apt-get install database", "DB_URL"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not name %q", err, part)
		}
	}
}

func TestEnsureReturnsWhatIsThere(t *testing.T) {
	root := machine(t, "path/redis-server")
	t.Setenv("PATH", filepath.Join(root, "path"))
	got, err := programs.Redis.Ensure(t.Context())
	checkFound(t, got, err, root, "path/redis-server")
}

func TestEnsureWithoutTheRightToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no apt-get
	_, err := programs.Program{Package: "database", Executables: [][]string{{"db"}}}.Ensure(t.Context())
	if _, ok := errors.AsType[*programs.MissingError](err); !ok {
		t.Errorf("error %v, want a MissingError", err)
	}
}

//go:build unix

// Package programs finds the server programs that the backend tests need, and
// on a Debian machine where the tests run as root it installs those that are
// missing, without leaving any of the distribution's services running.
package programs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Program is what tests start: a server, or a tool.
type Program struct {
	// Package is the Debian package that holds it, and the name of the
	// service which that package would start.
	Package string
	// Executables lists, best first, the sets of executables that make the
	// program. The files of a set must lie in one directory.
	Executables [][]string
	// Places are glob patterns of directories searched after PATH, the
	// highest version first.
	Places []string
	// Tool: its package starts no service.
	Tool bool
	// Variable is the environment variable that can name a running server in
	// place of the program. It is empty when none can stand in.
	Variable string
}

// The programs that tests start.
var (
	Redis = Program{
		Package:     "redis-server",
		Executables: [][]string{{"redis-server"}, {"valkey-server"}},
		Variable:    "HOLDFAST_TEST_REDIS_URL",
	}
	PostgreSQL = Program{
		Package:     "postgresql",
		Executables: [][]string{{"postgres", "initdb"}},
		Places: []string{
			"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin",
			"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin",
		},
		Variable: "HOLDFAST_TEST_POSTGRES_URL",
	}
	PgBouncer = Program{
		Package:     "pgbouncer",
		Executables: [][]string{{"pgbouncer"}},
		Places:      []string{"/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"},
	}
	// Python runs a client in another language.
	Python = Program{
		Package:     "python3",
		Executables: [][]string{{"python3"}},
		Places:      []string{"/usr/bin", "/usr/local/bin"},
		Tool:        true,
	}
	// Curl runs what documents tell to type.
	Curl = Program{
		Package:     "curl",
		Executables: [][]string{{"curl"}},
		Places:      []string{"/usr/bin", "/usr/local/bin"},
		Tool:        true,
	}
)

// All returns every program that the tests of this module can ask for.
func All() []Program { return []Program{Redis, PostgreSQL, PgBouncer, Python, Curl} }

// A MissingError says that a program is not on this machine and what to do.
type MissingError struct{ Program Program }

func (e *MissingError) Error() string {
	p := e.Program
	advice := "as root on Debian or Ubuntu: apt-get install " + p.Package
	if p.Variable != "" {
		advice += "; or set " + p.Variable + " to the URL of a running server"
	}
	searched := strings.Join(append([]string{"PATH"}, p.Places...), ", ")
	return fmt.Sprintf("find %s: not in %s; install it, %s", strings.Join(p.Executables[0], " and "), searched, advice)
}

// Find returns the path of the program's first executable. A program on PATH
// wins over the usual places, and one that is nowhere gives a *MissingError.
func (p Program) Find() (string, error) {
	dirs := append(filepath.SplitList(os.Getenv("PATH")), p.usualPlaces()...)
	for _, set := range p.Executables {
		for _, dir := range dirs {
			if holdsAll(dir, set) {
				return filepath.Join(dir, set[0]), nil
			}
		}
	}
	return "", &MissingError{p}
}

// Ensure finds the program, and installs it first when it is missing and this
// process may do so.
func (p Program) Ensure(ctx context.Context) (string, error) {
	path, err := p.Find()
	if err == nil || !CanInstall() {
		return path, err
	}
	if failed := Debian().Install(ctx, p); failed != nil {
		return "", errors.Join(err, failed)
	}
	return p.Find()
}

func (p Program) usualPlaces() []string {
	var dirs []string
	for _, pattern := range p.Places {
		found, _ := filepath.Glob(pattern)
		slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
		dirs = append(dirs, found...)
	}
	return dirs
}

// version is the first number in a path, so that 15 comes after 9.
func version(dir string) float64 {
	digits := strings.FieldsFunc(dir, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	for _, d := range digits {
		if v, err := strconv.ParseFloat(d, 64); err == nil {
			return v
		}
	}
	return 0
}

func holdsAll(dir string, names []string) bool {
	return filepath.IsAbs(dir) && !slices.ContainsFunc(names, func(name string) bool {
		_, err := exec.LookPath(filepath.Join(dir, name))
		return err != nil
	})
}

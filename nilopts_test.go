package holdfast_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
)

// nilOptions call every function of this package that takes options with a nil one
// between two others: it sets nothing, and the others do what they do.
var nilOptions = map[string]func(t *testing.T, s *holdfast.Space) error{
	"Open": func(t *testing.T, _ *holdfast.Space) error {
		_, err := holdfast.Open(t.Context(), "nosuch:", nil)
		if err != nil && strings.Contains(err.Error(), "nosuch") {
			return nil // its options are New's
		}
		return fmt.Errorf("want an unknown scheme: %w", err)
	},
	"New":        func(_ *testing.T, s *holdfast.Space) error { return s.Close() }, // opened with a nil option
	"Space.With": func(t *testing.T, s *holdfast.Space) error { return used(t, s.With(nil).Mutex("a")) },
	"Space.Mutex": func(t *testing.T, s *holdfast.Space) error {
		return used(t, s.Mutex("a", nil, holdfast.Owner("ann"), nil))
	},
	"Space.RWMutex": func(t *testing.T, s *holdfast.Space) error { return used(t, s.RWMutex("a", nil).Writer()) },
	"Space.Semaphore": func(t *testing.T, s *holdfast.Space) error {
		return second(s.Semaphore("a", 2, nil).TryAcquire(t.Context(), 1))
	},
	"Space.Election": func(t *testing.T, s *holdfast.Space) error {
		return second(s.Election("a", nil).Campaign(t.Context(), nil))
	},
	"Space.Sequence": func(t *testing.T, s *holdfast.Space) error {
		return second(s.Sequence("a", nil, holdfast.StartAt(5)).Next(t.Context()))
	},
	"Space.Session": func(t *testing.T, s *holdfast.Space) error {
		return second(s.Session(t.Context(), nil, holdfast.Owner("ann")))
	},
	"Space.Watch": func(t *testing.T, s *holdfast.Space) error { s.Watch(t.Context(), "a", 0, nil); return nil },
	"Space.ForceRelease": func(t *testing.T, s *holdfast.Space) error {
		h, err := s.Mutex("a").TryAcquire(t.Context())
		if err != nil {
			return err
		}
		return second(s.ForceRelease(t.Context(), "a", h.Token(), nil, holdfast.ForceNow()))
	},
	"KV.Put":    func(t *testing.T, s *holdfast.Space) error { return second(s.KV().Put(t.Context(), "k", nil, nil)) },
	"KV.Create": func(t *testing.T, s *holdfast.Space) error { return second(s.KV().Create(t.Context(), "k", nil, nil)) },
	"KV.CompareAndSwap": func(t *testing.T, s *holdfast.Space) error {
		return second(s.KV().CompareAndSwap(t.Context(), "k", 0, nil, nil))
	},
	"KV.Page": func(t *testing.T, s *holdfast.Space) error {
		return second(s.KV().Page(t.Context(), "k", nil, holdfast.MaxKeys(3)))
	},
	"KV.Range": func(t *testing.T, s *holdfast.Space) error {
		for _, err := range s.KV().Range(t.Context(), "k", nil, holdfast.KeysOnly()) {
			return err
		}
		return nil
	},
	"PutOp":   func(*testing.T, *holdfast.Space) error { holdfast.PutOp("k", nil, nil); return nil },
	"RangeOp": func(*testing.T, *holdfast.Space) error { holdfast.RangeOp("k", nil); return nil },
}

func second[T any](_ T, err error) error { return err }

func used(t *testing.T, m interface {
	TryAcquire(ctx context.Context) (*holdfast.Hold, error)
}) error {
	h, err := m.TryAcquire(t.Context())
	if err != nil {
		return err
	}
	return h.Release()
}

func TestNilOptions(t *testing.T) {
	var names []string
	for name, call := range nilOptions {
		names = append(names, name)
		t.Run(name, func(t *testing.T) {
			s, _ := open(t, nil, holdfast.Owner("bob"), nil)
			if err := call(t, s); err != nil {
				t.Error(err)
			}
		})
	}
	slices.Sort(names)
	if found := optionTakers(t, "."); !slices.Equal(found, names) {
		t.Errorf("functions that take options:\n%q, tested are:\n%q", found, names)
	}
}

// Functions of other packages that take options hand them to this package's: they have
// no loop of their own over them that a nil one could break.
func TestNilOptions_Elsewhere(t *testing.T) {
	var found []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir() || path == ".":
			return err
		case slices.Contains([]string{"internal", "proto", "bench", "testdata"}, path) || strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		}
		for _, name := range optionTakers(t, path) {
			found = append(found, path+"."+name)
		}
		return nil
	})
	want := []string{"drivertest.Env.Client", "drivertest.Env.Root", "filehold.Open", "holdtest.Space", "memhold.Open", "remote.Open", "server.Server.Space"}
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("functions that take options: %q %v, known are %q: a new one goes through holdfast.New, or gets a test with a nil option", found, err, want)
	}
}

// optionTakers are the exported functions of a directory's package with a last parameter
// of any number of options.
func optionTakers(t *testing.T, dir string) (names []string) {
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(gotoken.NewFileSet(), filepath.Join(dir, f.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.IsExported() && takesOptions(fn) {
				names = append(names, receiver(fn)+fn.Name.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names) // one for each platform
}

func takesOptions(fn *ast.FuncDecl) bool {
	params := fn.Type.Params.List
	if len(params) == 0 {
		return false
	}
	many, ok := params[len(params)-1].Type.(*ast.Ellipsis)
	if !ok {
		return false
	}
	elem := many.Elt
	if s, ok := elem.(*ast.SelectorExpr); ok {
		elem = s.Sel
	}
	id, ok := elem.(*ast.Ident)
	return ok && strings.HasSuffix(id.Name, "Option")
}

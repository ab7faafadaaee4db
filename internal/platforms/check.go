package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// listed is a package as go list tells it.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	ImportMap  map[string]string
	Standard   bool
	ForTest    string
	Module     *struct{ Main bool }
	Error      *struct{ Err string }
	DepsErrors []struct{ Err string }
}

func (p *listed) ours() bool { return p.Module != nil && p.Module.Main }

// sources are parsed files: most are the same for all platforms.
type sources struct {
	fset  *token.FileSet
	files map[string]*ast.File
}

func newSources() *sources {
	return &sources{fset: token.NewFileSet(), files: map[string]*ast.File{}}
}

func (s *sources) parse(path string) (*ast.File, error) {
	if f := s.files[path]; f != nil {
		return f, nil
	}
	f, err := parser.ParseFile(s.fset, path, nil, parser.SkipObjectResolution)
	if err == nil {
		s.files[path] = f
	}
	return f, err
}

// check type-checks the module in dir for a platform and returns what is wrong with
// its own packages.
func check(s *sources, dir, goos, arch string) ([]error, error) {
	list, err := packages(dir, goos, arch)
	if err != nil {
		return nil, err
	}
	c := &checker{sources: s, sizes: types.SizesFor("gc", arch), done: map[string]*types.Package{"unsafe": types.Unsafe}}
	for _, p := range list {
		c.check(p)
	}
	return c.errs, nil
}

// packages lists all packages with what they import, imported ones first.
func packages(dir, goos, arch string) ([]*listed, error) {
	cmd := exec.Command("go", "list", "-e", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,Standard,ForTest,Module,Error,DepsErrors", "./...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var list []*listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(listed)
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
}

type checker struct {
	*sources
	sizes types.Sizes
	done  map[string]*types.Package
	errs  []error
}

// check type-checks one package, if everything it imports is there. The bodies of
// others' functions are not looked at.
func (c *checker) check(p *listed) {
	if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") {
		return
	}
	if p.Error != nil || len(p.DepsErrors) > 0 {
		if p.ours() && p.ForTest == "" && !unneeded(p) {
			c.errs = append(c.errs, fmt.Errorf("%s: %v %v", p.ImportPath, p.Error, p.DepsErrors))
		}
		return
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := c.parse(filepath.Join(p.Dir, name))
		if err != nil {
			c.errs = append(c.errs, err)
			return
		}
		files = append(files, f)
	}
	cfg := &types.Config{
		Importer: importer{c, p}, Sizes: c.sizes, IgnoreFuncBodies: !p.ours(), FakeImportC: true,
		Error: func(err error) {
			if p.ours() {
				c.errs = append(c.errs, err)
			}
		},
	}
	pkg, _ := cfg.Check(p.ImportPath, c.fset, files, nil)
	c.done[p.ImportPath] = pkg
}

// unneeded reports a package that a platform does not have.
func unneeded(p *listed) bool {
	return p.Error != nil && strings.Contains(p.Error.Err, "build constraints exclude all Go files")
}

// importer finds what a package imports among those that were checked before.
type importer struct {
	c *checker
	p *listed
}

func (i importer) Import(path string) (*types.Package, error) {
	if to := i.p.ImportMap[path]; to != "" {
		path = to
	}
	if pkg := i.c.done[path]; pkg != nil {
		return pkg, nil
	}
	return nil, fmt.Errorf("%s was not checked", path)
}

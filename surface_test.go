package holdfast_test

import (
	"flag"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

var updateSurface = flag.Bool("surface.update", false, "write testdata/surface.txt anew")

// surfaceMax bounds the promise: exported names and methods of the packages that
// users import, without generated code and laterPackages. It only goes down.
const surfaceMax = 621

// laterPackages are the public packages beyond the first promise.
var laterPackages = set("limit crdt guard edge pipeline")

// The exported identifiers of the public packages are those of the golden file, so
// that a change of what users rely on is seen in review.
func TestSurface(t *testing.T) {
	got := surface(t)
	text := strings.Join(got, "\n") + "\n"
	if *updateSurface {
		if err := os.WriteFile("testdata/surface.txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile("testdata/surface.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(golden)), "\n")
	for _, line := range slices.Concat(missing(got, want, "is new"), missing(want, got, "is gone")) {
		t.Error(line)
	}
	if t.Failed() {
		t.Error("go test . -run TestSurface -surface.update writes testdata/surface.txt; CHANGELOG.md tells users")
	}
	counted := slices.DeleteFunc(slices.Clone(got), func(line string) bool {
		return laterPackages[strings.FieldsFunc(line, func(r rune) bool { return r == '/' || r == ' ' })[0]]
	})
	if len(counted) > surfaceMax {
		t.Errorf("%d exported names; at most %d are promised", len(counted), surfaceMax)
	}
}

// missing are the lines of a that b lacks.
func missing(a, b []string, what string) (lines []string) {
	for _, line := range a {
		if _, found := slices.BinarySearch(b, line); !found {
			lines = append(lines, line+" "+what)
		}
	}
	return lines
}

// surface lists "package Name" and "package Type.Method", sorted.
func surface(t *testing.T) []string {
	found := map[string]bool{}
	_, files := source(t)
	for _, f := range files {
		if f.test || f.ast.Name.Name == "main" || !public(f) {
			continue
		}
		for _, name := range exported(f.ast) {
			found[fmt.Sprintf("%s %s", f.dir, name)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func public(f file) bool {
	first, _, _ := strings.Cut(f.dir, "/")
	generated := strings.HasSuffix(f.path, ".pb.go") || strings.HasSuffix(f.path, ".connect.go")
	return !generated && first != "internal" && first != "examples" && first != "cmd" && path.Base(f.dir) != "internal"
}

func exported(f *ast.File) (names []string) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if name := d.Name.Name; ast.IsExported(name) {
				names = append(names, receiver(d)+name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				names = append(names, specNames(s)...)
			}
		}
	}
	return slices.DeleteFunc(names, func(n string) bool { return !ast.IsExported(n) })
}

// receiver is "Type." of a method.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	x := d.Recv.List[0].Type
	if star, ok := x.(*ast.StarExpr); ok {
		x = star.X
	}
	if generic, ok := x.(*ast.IndexExpr); ok {
		x = generic.X
	}
	return x.(*ast.Ident).Name + "."
}

func specNames(s ast.Spec) (names []string) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		names = append(names, s.Name.Name)
		if i, ok := s.Type.(*ast.InterfaceType); ok && s.Name.IsExported() {
			for _, m := range i.Methods.List {
				for _, n := range m.Names {
					if n.IsExported() {
						names = append(names, s.Name.Name+"."+n.Name)
					}
				}
			}
		}
	case *ast.ValueSpec:
		for _, n := range s.Names {
			names = append(names, n.Name)
		}
	}
	return names
}

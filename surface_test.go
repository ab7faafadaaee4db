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

// frontMax bounds the two packages that every program meets, the root and driver, as they were
// counted when the machinery lay open beside them (docs/design.md, "The API"): without the
// methods of interfaces, which users do not choose from but implement.
const frontMax = 450

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

// A newcomer reads two packages, and they stay readable.
func TestSurfaceOfTheFront(t *testing.T) {
	ofInterface := map[string]bool{}
	_, files := source(t)
	for _, f := range files {
		for _, name := range interfaceMethods(f.ast) {
			ofInterface[f.dir+" "+name] = true
		}
	}
	front := slices.DeleteFunc(surface(t), func(line string) bool {
		dir, _, _ := strings.Cut(line, " ")
		return dir != "." && dir != "driver" || ofInterface[line]
	})
	t.Logf("the root and driver export %d names without the methods of interfaces", len(front))
	if len(front) > frontMax {
		t.Errorf("the root and driver export %d names without the methods of interfaces; at most %d are promised", len(front), frontMax)
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
	switch generic := x.(type) {
	case *ast.IndexExpr:
		x = generic.X
	case *ast.IndexListExpr:
		x = generic.X
	}
	return x.(*ast.Ident).Name + "."
}

func specNames(s ast.Spec) (names []string) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		names = append(methodNames(s), s.Name.Name)
	case *ast.ValueSpec:
		for _, n := range s.Names {
			names = append(names, n.Name)
		}
	}
	return names
}

// interfaceMethods are "Type.Method" of the interfaces that a file declares.
func interfaceMethods(f *ast.File) (names []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.TypeSpec); ok {
			names = append(names, methodNames(s)...)
		}
		return true
	})
	return names
}

// methodNames are the exported methods of an exported interface.
func methodNames(s *ast.TypeSpec) (names []string) {
	i, ok := s.Type.(*ast.InterfaceType)
	if !ok || !s.Name.IsExported() {
		return nil
	}
	for _, m := range i.Methods.List {
		for _, n := range m.Names {
			if n.IsExported() {
				names = append(names, s.Name.Name+"."+n.Name)
			}
		}
	}
	return names
}

package holdfast_test

import (
	"go/ast"
	"os"
	"strconv"
	"strings"
	"testing"
)

// forModule are the methods of a node by which the packages of this module serve it to others, without a
// promise of compatibility; programs use its Space. It gets no longer.
var forModule = set(`Feed.Place Server.Events Server.Look Server.Members Server.Renew Server.Status Server.Submit Server.Watch
	Stream.Attach Stream.Detach Watch.Next Watch.Place`)

// A program outside of the module can name every type that a public package asks of it or gives
// to it, but for forModule: no exported signature, field or method has a type of internal/. A public name for such a
// type (type Config = …) is one that it can name.
func TestSurfaceHasNoInternalTypes(t *testing.T) {
	_, files := source(t)
	for _, f := range files {
		if f.test || f.ast.Name.Name == "main" || !public(f) {
			continue
		}
		inside := internals(f.ast)
		for _, d := range f.ast.Decls {
			for name, x := range promised(d) {
				ast.Inspect(x, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok {
						if p, ok := s.X.(*ast.Ident); ok && inside[p.Name] && !(f.dir == "server" && forModule[name]) {
							t.Errorf("%s: %s has the type %s.%s of a package that no program outside can import", f.path, name, p.Name, s.Sel.Name)
						}
					}
					return true
				})
			}
		}
	}
}

// The comment of package server names the methods that carry no promise.
func TestSurfaceForModuleIsTold(t *testing.T) {
	text, err := os.ReadFile("server/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for name := range forModule {
		if !strings.Contains(string(text), "["+name+"]") {
			t.Errorf("server/doc.go does not say that %s carries no promise of compatibility", name)
		}
	}
}

// internals are the names of a file for packages of internal/.
func internals(f *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, i := range f.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil || !strings.Contains(path+"/", "/internal/") {
			continue
		}
		name := path[strings.LastIndexByte(path, '/')+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = true
	}
	return names
}

// promised are the types that an exported declaration tells, by its name.
func promised(d ast.Decl) map[string]ast.Node {
	told := map[string]ast.Node{}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if name := receiver(d) + d.Name.Name; ast.IsExported(name) && d.Name.IsExported() {
			told[name] = d.Type
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && !s.Assign.IsValid() {
					promisedFields(told, s.Name.Name, s.Type)
				}
			case *ast.ValueSpec:
				if s.Type != nil && s.Names[0].IsExported() {
					told[s.Names[0].Name] = s.Type
				}
			}
		}
	}
	return told
}

// promisedFields adds the exported fields of a struct, those without a name among them, or any
// other type as a whole.
func promisedFields(told map[string]ast.Node, name string, x ast.Expr) {
	st, ok := x.(*ast.StructType)
	if !ok {
		told[name] = x
		return
	}
	for _, f := range st.Fields.List {
		if len(f.Names) == 0 {
			told[name+" (embedded)"] = f.Type
		}
		for _, n := range f.Names {
			if n.IsExported() {
				told[name+"."+n.Name] = f.Type
			}
		}
	}
}

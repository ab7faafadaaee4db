package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// span is the part of a file in which an edit looks for its old text.
type span struct {
	file       string // within the tree
	text       string // the whole file
	start, end int
}

// span finds where the edit belongs: in the file that it names, or in the
// function, in whichever file of the package that stands by now.
func (e edit) span(tree string) (span, error) {
	if e.fn != "" {
		return findFunc(tree, e.fn)
	}
	text, err := os.ReadFile(filepath.Join(tree, e.file))
	return span{e.file, string(text), 0, len(text)}, err
}

// findFunc finds "dir name" or "dir Type.name" among the package's files, tests
// left out. Functions that several platforms declare have to be named by file.
func findFunc(tree, fn string) (found span, err error) {
	dir, name, _ := strings.Cut(fn, " ")
	files, err := filepath.Glob(filepath.Join(tree, dir, "*.go"))
	if err != nil {
		return span{}, err
	}
	n := 0
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		s, ok, err := lookFor(path, name)
		if err != nil {
			return span{}, err
		}
		if ok {
			n++
			found = s
			found.file = filepath.Join(dir, filepath.Base(path))
		}
	}
	if n != 1 {
		return span{}, fmt.Errorf("the function %q stands %d times in %s", name, n, dir)
	}
	return found, nil
}

// lookFor finds a function in one file, with its comment.
func lookFor(path, name string) (span, bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return span{}, false, err
	}
	if !mayDeclare(text, name) {
		return span{}, false, nil
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return span{}, false, err
	}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || funcName(f) != name {
			continue
		}
		from := f.Pos()
		if f.Doc != nil {
			from = f.Doc.Pos()
		}
		return span{text: string(text), start: fset.Position(from).Offset, end: fset.Position(f.End()).Offset}, true, nil
	}
	return span{}, false, nil
}

// mayDeclare is false of a file that need not be parsed: a declaration says "func
// name", or ") name" after its receiver.
func mayDeclare(text []byte, name string) bool {
	bare := name[strings.LastIndexByte(name, '.')+1:]
	return bytes.Contains(text, []byte("func "+bare)) || bytes.Contains(text, []byte(") "+bare))
}

// funcName is name, or Type.name of a method.
func funcName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	return typeName(f.Recv.List[0].Type) + "." + f.Name.Name
}

// typeName is a receiver's type without pointer and type parameters.
func typeName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return typeName(t.X)
	case *ast.IndexExpr:
		return typeName(t.X)
	case *ast.IndexListExpr:
		return typeName(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// planted is the file with the edit made.
func (s span) planted(e edit) (string, error) {
	within := s.text[s.start:s.end]
	if n := strings.Count(within, e.old); n != 1 {
		return "", fmt.Errorf("the old text stands %d times in %s", n, e.place())
	}
	return s.text[:s.start] + strings.Replace(within, e.old, e.new, 1) + s.text[s.end:], nil
}

// place names where the edit belongs, for messages.
func (e edit) place() string {
	if e.fn != "" {
		return e.fn
	}
	return e.file
}

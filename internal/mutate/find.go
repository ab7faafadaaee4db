package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one small change of one file.
type mutant struct {
	pkg, file  string // from the root of the module
	clause     string // the package's name in its files
	name       string // the same as long as the lines around it are
	what       string // the change, in one line
	line       int    // where it is now
	start, end int    // the part of the file to replace
	text       string // what to put there; sign stands for "this mutant is on"
}

// sign stands in a mutant's text for the condition that switches it on.
const sign = "\x00"

// overlaps reports whether two mutants cannot be in the same program.
func (m mutant) overlaps(o mutant) bool {
	return m.file == o.file && m.start < o.end && o.start < m.end
}

// apply is the file's text with its mutants in it, each with its place in all,
// from 1 on, as its number.
func apply(src []byte, file string, all []mutant) []byte {
	type numbered struct {
		mutant
		n int
	}
	var here []numbered
	for i, m := range all {
		if m.file == file {
			here = append(here, numbered{m, i + 1})
		}
	}
	slices.SortFunc(here, func(a, b numbered) int { return b.start - a.start })
	for _, m := range here {
		code := strings.ReplaceAll(m.text, sign, fmt.Sprintf("(%s == %d)", switchName, m.n))
		src = slices.Concat(src[:m.start], []byte(code), src[m.end:])
	}
	return src
}

// draw puts the mutants in the order of the seed, without those that need no
// verdict now. The order depends on nothing but seed and names.
func draw(all []mutant, o options, rec record) []mutant {
	rank := func(m mutant) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", o.seed, m.name))
		return string(sum[:])
	}
	drawn := slices.DeleteFunc(slices.Clone(all), func(m mutant) bool { return !o.wants(m, rec) })
	slices.SortFunc(drawn, func(a, b mutant) int { return strings.Compare(rank(a), rank(b)) })
	return drawn
}

func (o options) wants(m mutant, rec record) bool {
	line, judged := rec[m.name]
	switch {
	case o.only != "":
		return strings.Contains(m.name, o.only)
	case o.again:
		return line.open()
	}
	return !judged
}

// findAll finds the mutants of packages, given by directory.
func findAll(packages []string) ([]mutant, error) {
	var all []mutant
	for _, pkg := range packages {
		found, err := findPackage(".", pkg)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// findPackage finds the mutants in the files that this platform compiles, tests
// left out.
func findPackage(root, pkg string) ([]mutant, error) {
	p, err := build.ImportDir(filepath.Join(root, pkg), 0)
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, name := range p.GoFiles {
		src, err := os.ReadFile(filepath.Join(root, pkg, name))
		if err != nil {
			return nil, err
		}
		found, err := findFile(pkg, path.Join(pkg, name), src)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	number(all)
	return all, nil
}

// number tells mutants of the same name apart: the second becomes name.2.
func number(all []mutant) {
	seen := map[string]int{}
	for i := range all {
		name := all[i].name
		seen[name]++
		if n := seen[name]; n > 1 {
			all[i].name = fmt.Sprintf("%s.%d", name, n)
		}
	}
}

// findFile finds the mutants of one file; generated ones have none.
func findFile(pkg, file string, src []byte) ([]mutant, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(f) {
		return nil, err
	}
	var all []mutant
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || forPeople[fn.Name.Name] {
			continue
		}
		s := finder{src: src, base: fset.File(f.FileStart).Base(), pkg: pkg, file: file, clause: f.Name.Name, fn: funcName(fn)}
		s.body(fn.Type, fn.Body)
		all = append(all, s.found...)
	}
	return all, nil
}

// forPeople are methods that only make text.
var forPeople = map[string]bool{"String": true, "GoString": true, "Format": true, "LogValue": true, "Error": true}

// funcName is name, or Type.name of a method.
func funcName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	for {
		switch at := t.(type) {
		case *ast.StarExpr:
			t = at.X
		case *ast.IndexExpr:
			t = at.X
		case *ast.IndexListExpr:
			t = at.X
		case *ast.Ident:
			return at.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

// finder collects the mutants of one function.
type finder struct {
	src               []byte
	base              int // of the file's positions
	pkg, file, clause string
	fn                string
	found             []mutant
}

// add notes the change of the node from into text: in the program it stands at
// the place of the node at, as code.
func (s *finder) add(kind string, from span, text string, at ast.Node, code string) {
	old := s.src[from.start:from.end]
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", s.around(from.start, from.end), old, text))
	place := s.span(at)
	s.found = append(s.found, mutant{
		pkg: s.pkg, file: s.file, clause: s.clause, line: 1 + bytes.Count(s.src[:from.start], []byte("\n")), start: place.start, end: place.end, text: code,
		name: strings.Join([]string{s.pkg, s.fn, kind, hex.EncodeToString(sum[:4])}, " "),
		what: oneLine(string(old)) + " => " + oneLine(text),
	})
}

// span is a part of the file.
type span struct{ start, end int }

func (s *finder) span(n ast.Node) span { return span{int(n.Pos()) - s.base, int(n.End()) - s.base} }

// code is the text of a node.
func (s *finder) code(n ast.Node) string { return string(s.src[s.span(n).start:s.span(n).end]) }

// around is the change's own lines with one before and one after.
func (s *finder) around(start, end int) string {
	for range 2 {
		start = max(0, strings.LastIndexByte(string(s.src[:start]), '\n'))
		if i := strings.IndexByte(string(s.src[end:]), '\n'); i >= 0 {
			end += i + 1
		}
	}
	return strings.Join(strings.Fields(string(s.src[start:end])), " ")
}

// oneLine is code on one line of the record, cut when long.
func oneLine(code string) string {
	code = strings.Join(strings.Fields(code), " ")
	if code == "" {
		return "nothing"
	}
	if r := []rune(code); len(r) > 70 {
		return string(r[:70]) + "…"
	}
	return code
}

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// fun is the text of a function, with its parts.
type fun struct {
	text string
	decl *ast.FuncDecl
}

const clause = "package p\n"

func parseFunc(text string) (fun, error) {
	f, err := parser.ParseFile(token.NewFileSet(), "", clause+text, parser.SkipObjectResolution)
	if err != nil {
		return fun{}, err
	}
	if len(f.Decls) != 1 {
		return fun{}, errApart
	}
	d, ok := f.Decls[0].(*ast.FuncDecl)
	if !ok || d.Body == nil {
		return fun{}, errApart
	}
	return fun{text, d}, nil
}

// at is where a place stands in the text.
func (f fun) at(p token.Pos) int { return int(p) - 1 - len(clause) }

func (f fun) part(n ast.Node) string { return f.text[f.at(n.Pos()):f.at(n.End())] }

// head is all of it but its comment and its body.
func (f fun) head() string { return f.text[f.at(f.decl.Pos()):f.at(f.decl.Body.Pos())] }

// alike reports whether a function can stand beside another form of it: with the same head, and with nothing
// that is another thing when a function in between makes the call.
func alike(old, new string) bool {
	a, errOld := parseFunc(old)
	b, errNew := parseFunc(new)
	if errOld != nil || errNew != nil || a.head() != b.head() || a.decl.Recv == nil && (a.decl.Name.Name == "init" || a.decl.Name.Name == "main") {
		return false
	}
	for _, text := range []string{"recover(", "runtime.Caller", "//go:"} {
		if strings.Contains(old+new, text) {
			return false
		}
	}
	return true
}

// named is the function under another name, without its comment.
func (f fun) named(name string) string {
	from, to := f.at(f.decl.Name.Pos()), f.at(f.decl.Name.End())
	return f.text[f.at(f.decl.Pos()):from] + name + f.text[to:]
}

// dispatched is a function that calls one of its forms, and these forms.
func dispatched(old string, forms []variant) string {
	f, err := parseFunc(old)
	if err != nil {
		return old // alike has refused it
	}
	name := func(number int) string { return fmt.Sprintf("planted%d%s", number, f.decl.Name.Name) }
	var b strings.Builder
	fmt.Fprintf(&b, "func %s {\n\tswitch plantedBug {\n", f.canonical())
	for _, v := range forms {
		fmt.Fprintf(&b, "\tcase %d:\n\t\t%s\n", v.number, f.call(name(v.number)))
	}
	fmt.Fprintf(&b, "\tdefault:\n\t\t%s\n\t}\n}\n\n%s\n", f.call(name(0)), f.named(name(0)))
	for _, v := range forms {
		if g, err := parseFunc(v.text); err == nil {
			fmt.Fprintf(&b, "\n%s\n", g.named(name(v.number)))
		}
	}
	return b.String()
}

// canonical is the head with names of its own for the receiver and the parameters, and none for results.
func (f fun) canonical() string {
	var b strings.Builder
	if f.decl.Recv != nil {
		fmt.Fprintf(&b, "(r0 %s) ", f.part(f.decl.Recv.List[0].Type))
	}
	b.WriteString(f.decl.Name.Name)
	if tp := f.decl.Type.TypeParams; tp != nil {
		b.WriteString(f.part(tp))
	}
	params := f.types(f.decl.Type.Params)
	for i := range params {
		params[i] = fmt.Sprintf("p%d %s", i, params[i])
	}
	fmt.Fprintf(&b, "(%s) (%s)", strings.Join(params, ", "), strings.Join(f.types(f.decl.Type.Results), ", "))
	return b.String()
}

// types are those of parameters or results, one for each.
func (f fun) types(list *ast.FieldList) (types []string) {
	if list == nil {
		return nil
	}
	for _, field := range list.List {
		for range max(1, len(field.Names)) {
			types = append(types, f.part(field.Type))
		}
	}
	return types
}

// call is the statement by which the canonical function calls a form.
func (f fun) call(name string) string {
	var b strings.Builder
	if f.decl.Type.Results != nil && len(f.decl.Type.Results.List) > 0 {
		b.WriteString("return ")
	}
	if f.decl.Recv != nil {
		b.WriteString("r0.")
	}
	b.WriteString(name)
	if tp := f.decl.Type.TypeParams; tp != nil {
		var names []string
		for _, field := range tp.List {
			for _, n := range field.Names {
				names = append(names, n.Name)
			}
		}
		fmt.Fprintf(&b, "[%s]", strings.Join(names, ", "))
	}
	var args []string
	for i, t := range f.types(f.decl.Type.Params) {
		arg := fmt.Sprintf("p%d", i)
		if strings.HasPrefix(t, "...") {
			arg += "..."
		}
		args = append(args, arg)
	}
	fmt.Fprintf(&b, "(%s)", strings.Join(args, ", "))
	return b.String()
}

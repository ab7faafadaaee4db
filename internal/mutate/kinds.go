package main

import (
	"go/ast"
	"go/token"
	"strconv"
)

// body finds the mutants in a function's body; results are of the function that
// a return statement leaves, so function literals are bodies of their own.
func (s *finder) body(typ *ast.FuncType, body *ast.BlockStmt) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			s.body(n.Type, n.Body)
			return false
		case *ast.CallExpr:
			return !onlyText(n)
		case *ast.GenDecl:
			return n.Tok != token.CONST
		case *ast.ReturnStmt:
			s.results(typ, n)
		}
		s.node(n)
		return true
	})
}

// node finds the mutants that begin at this node.
func (s *finder) node(n ast.Node) {
	switch n := n.(type) {
	case *ast.IfStmt:
		s.negate(n.Cond)
	case *ast.ForStmt:
		s.negate(n.Cond)
	case *ast.BinaryExpr:
		s.operator(n)
	case *ast.Ident:
		s.truth(n)
	case *ast.BlockStmt:
		s.statements(n.List)
	case *ast.CaseClause:
		s.statements(n.Body)
	case *ast.CommClause:
		s.statements(n.Body)
	}
}

// negate turns a condition round, unless operator does the same to it.
func (s *finder) negate(cond ast.Expr) {
	if e, ok := cond.(*ast.BinaryExpr); cond == nil || ok && (e.Op == token.EQL || e.Op == token.NEQ) {
		return
	}
	s.add("negate", s.span(cond), "!("+s.code(cond)+")", cond, "("+sign+" != ("+s.code(cond)+"))")
}

// swaps are the operators that one change turns into another.
var swaps = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
}

// operator swaps a comparison or a logical operator, and moves an integer that
// something is compared with by one.
func (s *finder) operator(e *ast.BinaryExpr) {
	other, ok := swaps[e.Op]
	if !ok {
		return
	}
	kind := "compare"
	if e.Op == token.LAND || e.Op == token.LOR {
		kind = "logic"
	}
	at := int(e.OpPos) - s.base
	s.either(kind, e, span{at, at + len(e.Op.String())}, other.String())
	for _, side := range []ast.Expr{e.X, e.Y} {
		if lit, ok := side.(*ast.BasicLit); ok && lit.Kind == token.INT {
			s.byOne(e, lit)
		}
	}
}

// either is the expression with a part of it changed, or as it is.
func (s *finder) either(kind string, e *ast.BinaryExpr, part span, text string) {
	whole := s.span(e)
	changed := string(s.src[whole.start:part.start]) + text + string(s.src[part.end:whole.end])
	s.add(kind, part, text, e, "("+sign+" && ("+changed+") || !"+sign+" && ("+s.code(e)+"))")
}

// byOne moves an integer by one. Below zero it would not compile for unsigned
// types.
func (s *finder) byOne(e *ast.BinaryExpr, lit *ast.BasicLit) {
	n, err := strconv.ParseInt(lit.Value, 0, 64)
	if err != nil {
		return
	}
	for _, moved := range []int64{n - 1, n + 1} {
		if moved >= 0 {
			s.either("by-one", e, s.span(lit), strconv.FormatInt(moved, 10))
		}
	}
}

// truth swaps true and false.
func (s *finder) truth(id *ast.Ident) {
	switch id.Name {
	case "true":
		s.add("truth", s.span(id), "false", id, "(!"+sign+")")
	case "false":
		s.add("truth", s.span(id), "true", id, sign)
	}
}

// results returns nil in place of an error, pointer, slice, map or function.
func (s *finder) results(typ *ast.FuncType, ret *ast.ReturnStmt) {
	types := flat(typ.Results)
	if len(types) != len(ret.Results) {
		return // none, named, or one call for them all
	}
	for i, r := range ret.Results {
		if id, ok := r.(*ast.Ident); ok && id.Name == "nil" || !nillable(types[i]) {
			continue
		}
		whole, part := s.span(ret), s.span(r)
		changed := string(s.src[whole.start:part.start]) + "nil" + string(s.src[part.end:whole.end])
		s.add("nil", part, "nil", ret, "if "+sign+" { "+changed+" }; "+s.code(ret))
	}
}

// flat is the type of each result.
func flat(fields *ast.FieldList) (types []ast.Expr) {
	if fields == nil {
		return nil
	}
	for _, f := range fields.List {
		for range max(1, len(f.Names)) {
			types = append(types, f.Type)
		}
	}
	return types
}

func nillable(t ast.Expr) bool {
	switch t := t.(type) {
	case *ast.StarExpr, *ast.MapType, *ast.FuncType, *ast.ChanType:
		return true
	case *ast.ArrayType:
		return t.Len == nil
	case *ast.Ident:
		return t.Name == "error"
	}
	return false
}

// statements drops calls, assignments and deferred calls.
func (s *finder) statements(list []ast.Stmt) {
	for _, st := range list {
		switch st := st.(type) {
		case *ast.ExprStmt:
			if call, ok := st.X.(*ast.CallExpr); ok && !onlyText(call) && !locks(call) {
				s.drop("drop", st)
			}
		case *ast.AssignStmt:
			if st.Tok != token.DEFINE {
				s.drop("drop", st)
			}
		case *ast.IncDecStmt:
			s.drop("drop", st)
		case *ast.DeferStmt:
			if !locks(st.Call) {
				s.drop("undefer", st)
			}
		}
	}
}

func (s *finder) drop(kind string, st ast.Stmt) {
	s.add(kind, s.span(st), "", st, "if !"+sign+" { "+s.code(st)+" }")
}

// called is the name of what a call calls, and the package or variable before it.
func called(call *ast.CallExpr) (of, name string) {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return "", f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			of = x.Name
		}
		return of, f.Sel.Name
	}
	return "", ""
}

// onlyText reports calls that make texts for people: logs, errors, panics.
func onlyText(call *ast.CallExpr) bool {
	switch of, name := called(call); {
	case of == "log" || of == "slog" || of == "fmt" && name == "Errorf" || of == "errors" && name == "New":
		return true
	case of == "" && name == "panic":
		return true
	default:
		return logs[name]
	}
}

// logs are the methods of a logger.
var logs = map[string]bool{"Debug": true, "Info": true, "Warn": true, "DebugContext": true, "InfoContext": true, "WarnContext": true, "ErrorContext": true, "LogAttrs": true, "Logf": true}

// locks reports calls that take or give back a mutex: without one the program
// hangs or races, which the race detector is for.
func locks(call *ast.CallExpr) bool {
	switch _, name := called(call); name {
	case "Lock", "Unlock", "RLock", "RUnlock":
		return true
	}
	return false
}

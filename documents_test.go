package holdfast_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast"
)

// Every document is listed in the README, and every link of it leads somewhere.
func TestReadmeListsDocuments(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Glob("docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatal(docs, err)
	}
	for _, doc := range docs {
		if !strings.Contains(string(readme), "("+doc+")") {
			t.Errorf("the README does not list %s", doc)
		}
	}
	for _, m := range regexp.MustCompile(`\]\(([\w./-]+)\)`).FindAllStringSubmatch(string(readme), -1) {
		if _, err := os.Stat(m[1]); err != nil {
			t.Error(err)
		}
	}
}

// A word names one thing: a type of one of these names is declared at most twice,
// and a second time only for its mirror in tests of the first.
func TestTypeNames(t *testing.T) {
	declared := map[string][]string{}
	_, files := source(t)
	for _, f := range files {
		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			for _, s := range specs(g, ok && !f.test) {
				declared[s] = append(declared[s], f.path)
			}
		}
	}
	for _, word := range []string{"claim", "watcher", "link", "line", "place", "turn", "wish", "lease", "grip", "rider", "convoy"} {
		if in := declared[word]; len(in) > 2 {
			t.Errorf("type %s is declared %d times, in %q; docs/glossary.md has other words", word, len(in), in)
		}
	}
}

// specs are the names of types that g declares.
func specs(g *ast.GenDecl, wanted bool) (names []string) {
	if !wanted {
		return nil
	}
	for _, s := range g.Specs {
		if ts, ok := s.(*ast.TypeSpec); ok {
			names = append(names, ts.Name.Name)
		}
	}
	return names
}

// Godoc shows no fields of an alias: its comment names them all.
func TestAliasesListTheirFields(t *testing.T) {
	_, files := source(t)
	i := slices.IndexFunc(files, func(f file) bool { return f.path == "types.go" })
	comments := map[string]string{}
	ast.Inspect(files[i].ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.TypeSpec); ok {
			comments[s.Name.Name] = s.Doc.Text()
		}
		return true
	})
	for _, of := range []reflect.Type{
		reflect.TypeFor[holdfast.Info](), reflect.TypeFor[holdfast.Claim](), reflect.TypeFor[holdfast.Resource](),
		reflect.TypeFor[holdfast.Event](), reflect.TypeFor[holdfast.SessionInfo](),
	} {
		for j := range of.NumField() {
			f := of.Field(j)
			if f.IsExported() && !regexp.MustCompile(`\b`+f.Name+`\b`).MatchString(comments[of.Name()]) {
				t.Errorf("the comment of holdfast.%s does not name the field %s", of.Name(), f.Name)
			}
		}
	}
}

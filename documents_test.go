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

// Every package has its line on the map, once, and the map has no others.
func TestMapListsPackages(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	tables, _, _ := strings.Cut(string(text), "\n## ")
	listed := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(tables, -1) {
		for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			for _, dir := range braces(quoted[1]) {
				listed[dir]++
			}
		}
	}
	_, files := source(t)
	for _, f := range files {
		dir := filepath.ToSlash(filepath.Dir(f.path))
		if _, known := rooms[dir]; known && !f.test && listed[dir] != 1 {
			t.Errorf("docs/architecture.md lists %s %d times", dir, listed[dir])
			listed[dir] = 1
		}
	}
	for dir := range listed {
		if _, known := rooms[dir]; !known {
			t.Errorf("docs/architecture.md lists %s, which is no package", dir)
		}
	}
}

// braces expands a/{b,c} to a/b and a/c.
func braces(s string) (all []string) {
	before, rest, found := strings.Cut(s, "{")
	if !found {
		return []string{s}
	}
	list, after, _ := strings.Cut(rest, "}")
	for item := range strings.SplitSeq(list, ",") {
		all = append(all, before+item+after)
	}
	return all
}

// A word names one thing: a type of one of these names is declared at most twice, tests
// included, and a second time only for its mirror in tests of the first.
func TestTypeNames(t *testing.T) {
	declared := map[string][]string{}
	_, files := source(t)
	for _, f := range files {
		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			for _, s := range specs(g, ok) {
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

// words has those that no identifier is made of, with the word of docs/glossary.md
// and the rooms that may use the word all the same.
var words = map[string]struct{ better, rooms string }{
	"lease":    {better: "session", rooms: "internal/cli internal/node/dialect/rest internal/node/dialect/rpc internal/node/gateway internal/wire internal/world"},
	"leases":   {better: "session", rooms: "internal/node/gateway"},
	"wish":     {better: "request"},
	"convoy":   {better: "batch"},
	"rider":    {better: "batch"},
	"grip":     {better: "hold"},
	"heir":     {better: "successor"},
	"inherit":  {better: "successor", rooms: "examples/tour"}, // its standard streams
	"mourning": {better: "grace"},
	"knock":    {better: "queue"},
	"bury":     {better: "end"},
	"buried":   {better: "end"},
	"die":      {better: "end"},
	"death":    {better: "end"},
}

// TestWords: an identifier is made of the glossary's words; the exceptions are known.
func TestWords(t *testing.T) {
	inGlossary(t)
	_, files := source(t)
	used, seen := map[string]bool{}, map[string]bool{}
	for _, f := range files {
		room := filepath.ToSlash(filepath.Dir(f.path))
		ast.Inspect(f.ast, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok || f.test || strings.HasPrefix(room, "proto/") {
				return true
			}
			if seen[room+" "+id.Name] {
				return true
			}
			seen[room+" "+id.Name] = true
			for _, w := range camel.FindAllString(id.Name, -1) {
				w = strings.ToLower(w)
				rule, known := words[w]
				used[w+" "+room] = true
				if known && !slices.Contains(strings.Fields(rule.rooms), room) {
					t.Errorf("%s: %s; the word is %q, see docs/glossary.md", f.path, id.Name, rule.better)
				}
			}
			return true
		})
	}
	for w, rule := range words {
		for _, room := range strings.Fields(rule.rooms) {
			if !used[w+" "+room] {
				t.Errorf("%s does not use %q any more: take it off the list", room, w)
			}
		}
	}
}

// inGlossary: a word that is recommended for another has its meaning in the glossary.
func inGlossary(t *testing.T) {
	text, err := os.ReadFile("docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	for w, rule := range words {
		if !regexp.MustCompile(`(?m)^\| ([^|]*, )?` + rule.better + `(, [^|]*)? \|`).Match(text) {
			t.Errorf("docs/glossary.md has no row for %q, which is to be written for %q", rule.better, w)
		}
	}
}

// camel matches the words of an identifier.
var camel = regexp.MustCompile(`[A-Z]+[a-z0-9]*|^[a-z0-9]+`)

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

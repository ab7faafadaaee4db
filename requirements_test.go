package holdfast_test

import (
	"go/ast"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/drivertest"
)

// What docs/requirements.md names as proof exists, and what it quotes is quoted by a test that it names.
func TestRequirements(t *testing.T) {
	doc, err := os.ReadFile("docs/requirements.md")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]bool{}
	for _, c := range drivertest.Cases() {
		cases[c.Name] = true
	}
	tests := testNames(t)
	section, seen := "", map[string]bool{}
	for line := range strings.Lines(string(doc)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section, _, _ = strings.Cut(title, ":")
		}
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.Contains(cells[3], "shown by") || strings.HasPrefix(cells[3], "---") {
			continue
		}
		if promise := section + cells[1]; seen[promise] {
			t.Errorf("told twice: %s", line)
		} else {
			seen[promise], seen[section] = true, true
		}
		proofs := regexp.MustCompile("`[^`]+`").FindAllString(cells[3], -1)
		if len(proofs) == 0 && !strings.Contains(cells[3], "*open*") {
			t.Errorf("neither a proof nor open: %s", line)
		}
		quote, quoted := strings.Trim(cells[1], " "), false
		for _, p := range proofs {
			quoted = quoted || strings.Contains(tests[strings.Trim(p, "`")], quote)
			if !exists(strings.Trim(p, "`"), cases, tests) {
				t.Errorf("%s does not exist: %s", p, line)
			}
		}
		if strings.HasPrefix(quote, `"`) && !quoted {
			t.Errorf("no test of it quotes %s", quote)
		}
	}
	for _, name := range sources {
		if !seen[name] {
			t.Errorf("nothing is told of %s", name)
		}
	}
}

// sources are the source documents.
var sources = []string{"000", "001", "002", "003", "004"}

// What the other documents have row by row has rows for every source document.
func TestRequirements_Tables(t *testing.T) {
	for file, title := range map[string]string{"docs/errors.md": "## The errors of the source documents", "docs/design.md": "## What differs from the source documents"} {
		doc, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, table, ok := strings.Cut(string(doc), title)
		table, _, _ = strings.Cut(table, "\n## ")
		for _, name := range sources {
			if !ok || !strings.Contains(table, "\n| "+name+" | ") {
				t.Errorf("%s: %s has no row of %s", file, title, name)
			}
		}
	}
}

func exists(proof string, cases map[string]bool, tests map[string]string) bool {
	if strings.HasSuffix(proof, ".txt") {
		_, err := os.Stat(proof)
		return err == nil
	}
	_, known := tests[proof]
	return cases[proof] || known
}

// testNames are all tests of the module as package.TestName, with what is written above each.
func testNames(t *testing.T) map[string]string {
	_, files := source(t)
	names := map[string]string{}
	for _, f := range files {
		if !f.test {
			continue
		}
		pkg := strings.TrimSuffix(f.ast.Name.Name, "_test")
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				names[pkg+"."+fn.Name.Name] = strings.Join(strings.Fields(fn.Doc.Text()), " ")
			}
		}
	}
	return names
}

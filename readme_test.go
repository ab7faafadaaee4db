package holdfast_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/pasted"
)

// readmeNode is where the README's node serves: a program that needs it is run
// beside one in internal/cli.
const readmeNode = "127.0.0.1:7420"

// Every complete program of the documents runs as pasted, in a module of its own
// outside the repository, and prints what the document shows.
func TestProgramsOfDocuments(t *testing.T) {
	documents, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	run := 0
	for _, document := range append(documents, "README.md") {
		for _, p := range pasted.Programs(t, document) {
			if strings.Contains(p.Code, readmeNode) {
				continue
			}
			run++
			if got := pasted.Go(t, ".", p.Code, "run", "."); got != p.Output {
				t.Errorf("a program of %s prints\n%swant:\n%s%s", document, got, p.Output, p.Code)
			}
		}
	}
	if run < 3 {
		t.Errorf("only %d programs are found", run)
	}
}

// What is behind internal is not for others: a program that imports it does not
// build.
func TestInternalIsInternal(t *testing.T) {
	got := pasted.Go(t, ".", "package main\n\nimport _ \"github.com/holdfast-io/holdfast/internal/core\"\n\nfunc main() {}\n", "build", ".")
	if !strings.Contains(got, "use of internal package") {
		t.Errorf("a program outside can use the core: %q", got)
	}
}

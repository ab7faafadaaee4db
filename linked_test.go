package holdfast_test

import (
	"strconv"
	"strings"
	"testing"
)

// TestProgramLinksNoServer: the program is a client of NATS; the server, which tests and
// examples embed, would double its size.
func TestProgramLinksNoServer(t *testing.T) {
	_, files := source(t)
	imports := map[string][]string{}
	for _, f := range files {
		for _, spec := range f.ast.Imports {
			if path, err := strconv.Unquote(spec.Path.Value); err == nil && !f.test {
				imports[f.dir] = append(imports[f.dir], path)
			}
		}
	}
	seen, client := map[string]bool{}, false
	for todo := []string{"cmd/holdfast"}; len(todo) > 0; todo = todo[1:] {
		for _, path := range imports[todo[0]] {
			client = client || path == "github.com/nats-io/nats.go"
			if strings.HasPrefix(path, "github.com/nats-io/nats-server") {
				t.Errorf("%s, which cmd/holdfast links, imports %s", todo[0], path)
			}
			dir, own := strings.CutPrefix(path, module)
			dir = strings.TrimPrefix(dir, "/")
			if dir == "" {
				dir = "."
			}
			if own && !seen[dir] {
				seen[dir] = true
				todo = append(todo, dir)
			}
		}
	}
	if !client {
		t.Error("the client of NATS was not found either: the test looks at nothing")
	}
}

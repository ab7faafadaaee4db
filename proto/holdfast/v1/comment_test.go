package holdfastv1_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// declared matches what needs a comment of its own: messages, enums, services,
// calls, fields and enum values.
var declared = regexp.MustCompile(`^(message|enum|service|rpc|oneof) |^(repeated |optional )?[\w.]+ \w+ = \d+;|^[A-Z_0-9]+ = \d+;`)

func TestEverythingHasAComment(t *testing.T) {
	files, err := filepath.Glob("*.proto")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d files, %v", len(files), err)
	}
	seen := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		before := ""
		for i, line := range strings.Split(string(b), "\n") {
			line = strings.TrimSpace(line)
			if declared.MatchString(line) {
				seen++
				if !strings.HasPrefix(before, "// ") {
					t.Errorf("%s:%d: %s: say above it what it is, with unit and default", f, i+1, line)
				}
			}
			before = line
		}
	}
	if seen < 300 {
		t.Errorf("only %d declarations were looked at: the test does not read the files rightly", seen)
	}
}

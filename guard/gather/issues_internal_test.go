package gather

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A wait looks at its file of issues every second: a text that is the same is parsed once, and another of the same length
// and time is not taken for it.
func TestIssueFile_Unchanged(t *testing.T) {
	s, at := &IssueFile{Path: filepath.Join(t.TempDir(), "issues.json")}, time.Unix(1_000_000_000, 0)
	read := func(text string) (*Issue, error) {
		if err := os.WriteFile(s.Path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(s.Path, at, at); err != nil {
			t.Fatal(err)
		}
		list, err := s.read()
		if err != nil {
			return nil, err
		}
		return &list[0], nil
	}
	const one, other, bad = `[{"id":"1","status":"open"}]`, `[{"id":"2","status":"open"}]`, `[{"id":"2","status":"open"},1]`
	first, err1 := read(one)
	same, err2 := read(one)
	next, err3 := read(other)
	if err1 != nil || err2 != nil || err3 != nil || first != same || first == next || next.ID != "2" {
		t.Errorf("%+v, %+v, %+v: %v, %v, %v", first, same, next, err1, err2, err3)
	}
	for range 2 {
		if _, err := read(bad); err == nil || !strings.Contains(err.Error(), "issue 2: it is no JSON object") {
			t.Errorf("of a bad text: %v", err)
		}
	}
}

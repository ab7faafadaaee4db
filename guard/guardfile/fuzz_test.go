package guardfile_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/guard/guardfile"
)

// Whatever a file says, it is read or refused: never a panic, and what was read passes
// the checks of package guard. Errors stand within the file.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", wrap("{lock_free: a}"), wrap("&a {not: *a}"), wrap("{time_window: {from: 08:00, to: 09:00, days: [mon]}}"),
		wrap("{counter: {name: a, at_least: 3}}"), wrap("{lock_free: {<<: {name: a}}}"), "guards: {}\n---\n", "# a\n", "%YAML 1.2\n---\nguards: {}\n",
		`{"guards": {"g": {"description": "é", "when": {"key": {"key": "a", "exists": false}}}}}`, "guards:\n  ? a\n  : {when: {all: [!!str a]}}\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, file := range []string{"f.yaml", "f.json"} {
			guards, err := guardfile.Parse(file, []byte(text))
			if err != nil {
				placed(t, text, err)
			}
			for _, g := range guards {
				if err := g.When.Check(); err != nil || g.Line < 1 || g.Column < 1 {
					t.Fatalf("%q was read with line %d, column %d, but: %v", text, g.Line, g.Column, err)
				}
			}
		}
	})
}

func placed(t *testing.T, text string, err error) {
	var e *guardfile.Error
	if !errors.As(err, &e) {
		t.Fatalf("%q: %v is no *Error", text, err)
	}
	most := 2 + strings.Count(text, "\n") + strings.Count(text, "\r") + strings.Count(text, "\u0085") + strings.Count(text, "\u2028") + strings.Count(text, "\u2029")
	if e.Line < 1 || e.Column < 1 || e.Line > most || e.Column > utf8.RuneCountInString(text)+1 || !utf8.ValidString(e.Error()) {
		t.Fatalf("%q: %v stands outside", text, err)
	}
}

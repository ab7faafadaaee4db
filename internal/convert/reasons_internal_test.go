package convert

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The reasons that docs/events.md names are the words that a watcher gets.
func TestReasonsAreAsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	words := slices.Collect(maps.Values(reasons))
	seen := 0
	for _, line := range strings.Split(string(text), "\n") {
		for _, word := range documented(line) {
			if seen++; !slices.Contains(words, word) {
				t.Errorf("no event has the reason %q: %s", word, line)
			}
		}
	}
	if seen == 0 {
		t.Error("docs/events.md names no reason")
	}
}

var aside = regexp.MustCompile(`\([^)]*\)`)

// documented are the reasons in the last of the five columns of a table.
func documented(line string) []string {
	columns := strings.Split(line, "|")
	if len(columns) != 7 {
		return nil
	}
	last := aside.ReplaceAllString(columns[5], "")
	return slices.DeleteFunc(strings.FieldsFunc(last, func(r rune) bool { return r == ' ' || r == ',' }), func(word string) bool {
		return slices.Contains([]string{"Reason", "---", "–", "or", "none"}, word)
	})
}

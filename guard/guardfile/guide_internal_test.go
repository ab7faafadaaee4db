package guardfile

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The guide tells the fields of every leaf, with a ? at those that may be left out, and no others.
func TestGuide_Fields(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guards.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(guide), "| leaf | fields |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	told := map[string][]string{}
	word := regexp.MustCompile("`[a-z_]+`[?]?")
	for line := range strings.Lines(table) {
		leaves, fields, _ := strings.Cut(line[1:], "|")
		for _, leaf := range word.FindAllString(leaves, -1) {
			told[leaf] = word.FindAllString(fields, -1)
		}
	}
	for _, k := range kinds {
		var want []string
		for _, f := range k.fields {
			mark := "?"
			if f.need || f.choice {
				mark = ""
			}
			want = append(want, "`"+f.name+"`"+mark)
		}
		leaf := "`" + string(k.kind) + "`"
		got := told[leaf]
		if slices.Sort(got); !slices.Equal(slices.Compact(got), slices.Sorted(slices.Values(want))) {
			t.Errorf("of %s the guide tells %s; it has %s", leaf, got, want)
		}
		delete(told, leaf)
	}
	for leaf := range told {
		t.Errorf("there is no leaf %s", leaf)
	}
}

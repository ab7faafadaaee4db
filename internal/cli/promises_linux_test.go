package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestOperate_Promises: every sentence of docs/operate.md stands in testdata/promises/operate.txt, word by word, with the tests that show it
// below, or with a word of advice that no test can show and why ("warning: …"). A sentence that
// is new or changed fails, as does a test that is gone.
func TestOperate_Promises(t *testing.T) {
	said, shown, known := sentences(t, "../../docs/operate.md"), promisesIn(t, "testdata/promises/operate.txt"), testNames(t)
	for _, s := range said {
		if shown[s] == "" {
			t.Errorf("testdata/promises/operate.txt does not say what shows: %s", s)
		}
	}
	for s, by := range shown {
		if !slices.Contains(said, s) {
			t.Errorf("docs/operate.md does not say any more: %s", s)
		}
		for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz)\w+`).FindAllString(by, -1) {
			if !known[name] {
				t.Errorf("there is no %s, which is to show: %s", name, s)
			}
		}
		if !regexp.MustCompile(`^(warning: .|Test|Fuzz)`).MatchString(by) {
			t.Errorf("%q is neither tests nor a warning: %s", by, s)
		}
	}
}

// sentences are those of a document, without its headings and scripts.
func sentences(t *testing.T, file string) (all []string) {
	text := regexp.MustCompile("(?s)```sh\n.*?```").ReplaceAllString(read(t, file), "")
	text = strings.ReplaceAll(text, "\n- ", "\n\n- ")
	for _, p := range regexp.MustCompile(`\n\s*\n`).Split(text, -1) {
		p = strings.Join(strings.Fields(p), " ")
		for p != "" && !strings.HasPrefix(p, "#") {
			end := regexp.MustCompile("[.] [A-Z`(*]").FindStringIndex(p)
			if end == nil {
				end = []int{len(p) - 1}
			}
			all = append(all, p[:end[0]+1])
			p = strings.TrimSpace(p[end[0]+1:])
		}
	}
	return all
}

// promisesIn are the sentences of a table, each with the line below it, which begins with a tab.
func promisesIn(t *testing.T, file string) map[string]string {
	shown, last := map[string]string{}, ""
	for line := range strings.Lines(read(t, file)) {
		line, by := strings.CutPrefix(strings.TrimRight(line, "\n"), "\t")
		switch {
		case by:
			shown[last] = line
		case line != "" && !strings.HasPrefix(line, "#"):
			if _, twice := shown[line]; twice {
				t.Errorf("twice in %s: %s", file, line)
			}
			last, shown[line] = line, "nothing"
		}
	}
	return shown
}

// testNames are the names of all tests of the module.
func testNames(t *testing.T) map[string]bool {
	names := map[string]bool{}
	for _, dir := range []string{"../../server", "../../internal", "../../remote"} {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(read(t, path), -1) {
				names[m[1]] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

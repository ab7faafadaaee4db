package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestProofsAreThere: every proof names a package of ours that has its tests and flags.
func TestProofsAreThere(t *testing.T) {
	suite, err := os.ReadFile("../../drivertest/leased.go") // has a flag of every backend's tests
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range proofs {
		args := strings.Fields(p.args)
		source := testsOf(t, args[0]) + string(suite)
		for _, word := range regexp.MustCompile(`Test\w+|Fuzz\w+\b|Sizes|Kth\w+|[a-z]+\.[a-z]+`).FindAllString(strings.Join(args[1:], " "), -1) {
			if strings.HasPrefix(word, "Fuzz") {
				word = "func " + word + "("
			}
			if !strings.Contains(source, word) {
				t.Errorf("%s: %s has no %s", p.title, args[0], word)
			}
		}
	}
}

// TestSuitesAreThere: every suite names a package of ours that has its benchmarks and
// reports its figures.
func TestSuitesAreThere(t *testing.T) {
	benchmark := regexp.MustCompile(`(?m)^func Benchmark(\w+)`)
	for _, s := range slices.Concat(suites, sizes) {
		source := testsOf(t, s.pkg)
		top, _, _ := strings.Cut(s.bench, "/")
		match, found := regexp.MustCompile(top), false
		for _, name := range benchmark.FindAllStringSubmatch(source, -1) {
			found = found || match.MatchString("Benchmark"+name[1])
		}
		if !found {
			t.Errorf("%s has no benchmark %s", s.pkg, s.bench)
		}
		for _, b := range s.bounds {
			_, last, _ := strings.Cut(b.metric, "-") // what varies is put before "-" or after "/"
			first, _, _ := strings.Cut(b.metric, "/")
			if !strings.HasSuffix(b.metric, "/op") && !strings.Contains(source, "-"+last+`"`) && !strings.Contains(source, `"`+first+"/") && !strings.Contains(source, `"`+b.metric+`"`) {
				t.Errorf("%s %s reports no %s", s.pkg, s.bench, b.metric)
			}
		}
	}
}

// testsOf is the text of a package's tests.
func testsOf(t *testing.T, pkg string) string {
	t.Helper()
	dir := "../../" + pkg
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	source := ""
	for _, f := range files {
		if strings.HasSuffix(f.Name(), "_test.go") {
			text, err := os.ReadFile(dir + "/" + f.Name())
			if err != nil {
				t.Fatal(err)
			}
			source += string(text)
		}
	}
	return source
}

// TestWithSection: a proof that is run again takes the place of its last record, and
// leaves the others alone.
func TestWithSection(t *testing.T) {
	doc := "# Proofs\n\nHead.\n\n## A\n\nold a\n\n## A longer title\n\nold b\n"
	for _, c := range []struct{ title, want string }{
		{"A", "# Proofs\n\nHead.\n\n## A\n\nnew\n\n## A longer title\n\nold b\n"},
		{"A longer title", "# Proofs\n\nHead.\n\n## A\n\nold a\n\n## A longer title\n\nnew\n"},
		{"C", doc + "\n## C\n\nnew\n"},
	} {
		if got := withSection(doc, c.title, "new\n\n"); got != c.want {
			t.Errorf("%s: %q", c.title, got)
		}
	}
}

// TestFigures: what a section tells are the lines for it, and the last of a fuzzer.
func TestFigures(t *testing.T) {
	out := "=== RUN   TestA\n    a_test.go:1: proof: 3 trees\nfuzz: elapsed: 3s, execs: 10 (3/sec)\nfuzz: elapsed: 6s, execs: 25 (4/sec), new interesting: 1 (total: 9)\nPASS\n"
	if got, want := figures(out), "- 3 trees\n- fuzzed for 6s, execs: 25, new interesting: 1 (total: 9)\n"; got != want {
		t.Errorf("%q instead of %q", got, want)
	}
}

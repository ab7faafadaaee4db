package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
)

// The verdicts on a mutant.
const (
	killed   = "killed"
	timeout  = "timeout"
	survived = "survived"
	invalid  = "invalid"
)

// line is what the record says of one mutant.
type line struct {
	verdict string
	what    string // the change
	note    string // the test that failed, or the reason why none does
}

// unseen reports a survivor that nobody has looked at.
func (l line) unseen() bool { return l.verdict == survived && l.note == "?" }

// open reports a survivor that is to be judged again: unseen, or a test is missing.
func (l line) open() bool {
	return l.unseen() || l.verdict == survived && strings.HasPrefix(l.note, "open: ")
}

// record is all verdicts, by the mutants' names.
type record map[string]line

func readRecord(path string) (record, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return nil, err
	}
	return parseRecord(string(text))
}

// parseRecord reads lines of name, verdict, change and note, with tabs between.
func parseRecord(text string) (record, error) {
	rec := record{}
	for l := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(l, "\n"), "\t")
		if len(f) != 4 || len(strings.Split(f[0], " ")) != 4 {
			return nil, fmt.Errorf("record: not name, verdict, change, note: %q", l)
		}
		if !slices.Contains([]string{killed, timeout, survived, invalid}, f[1]) {
			return nil, fmt.Errorf("record: unknown verdict %q of %s", f[1], f[0])
		}
		rec[f[0]] = line{f[1], f[2], f[3]}
	}
	return rec, nil
}

func (r record) text() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r)) {
		l := r[name]
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", name, l.verdict, l.what, l.note)
	}
	return b.String()
}

// write replaces the file as a whole.
func (r record) write(path string) error {
	if err := os.WriteFile(path+".new", []byte(r.text()), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// forget drops what is said of code that the packages no longer have.
func (r record) forget(packages []string, all []mutant) {
	there := map[string]bool{}
	for _, m := range all {
		there[m.name] = true
	}
	maps.DeleteFunc(r, func(name string, _ line) bool {
		return slices.Contains(packages, packageOf(name)) && !there[name]
	})
}

func packageOf(name string) string {
	pkg, _, _ := strings.Cut(name, " ")
	return pkg
}

// counts are the verdicts of one package.
type counts struct{ killed, survived, open, invalid int }

func (c *counts) add(l line) {
	switch {
	case l.verdict == invalid:
		c.invalid++
	case l.verdict != survived:
		c.killed++
	default:
		c.survived++
		if l.open() {
			c.open++
		}
	}
}

func (c counts) String() string {
	return fmt.Sprintf("%4d mutants, %4d killed (%3d %%), %3d survived (%d open), %3d did not compile",
		c.killed+c.survived, c.killed, 100*c.killed/max(1, c.killed+c.survived), c.survived, c.open, c.invalid)
}

// summary is the counts by package and in all.
func (r record) summary() string {
	by, all := map[string]*counts{}, counts{}
	for name, l := range r {
		pkg := packageOf(name)
		if by[pkg] == nil {
			by[pkg] = &counts{}
		}
		by[pkg].add(l)
		all.add(l)
	}
	var b strings.Builder
	for _, pkg := range slices.Sorted(maps.Keys(by)) {
		fmt.Fprintf(&b, "%-24s %s\n", pkg, by[pkg])
	}
	fmt.Fprintf(&b, "%-24s %s\n", "all", all)
	return b.String()
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// bug is one entry of a list.
type bug struct {
	source string // the list's file name
	name   string
	test   string // arguments of go test
	says   string // what the failing test has to print; "": anything
	edits  []edit
}

// edit is one change of a function, or of a file that is not Go; a bug may need
// several.
type edit struct{ file, fn, old, new string }

// load reads all lists in dir.
func load(dir string) ([]bug, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []bug
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		bugs, err := parse(filepath.Base(path), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, bugs...)
	}
	return all, nil
}

func parse(source, text string) ([]bug, error) {
	var bugs []bug
	_, rest, _ := strings.Cut("\n"+text, "\n=== ")
	for _, entry := range strings.Split(rest, "\n=== ") {
		b, err := parseOne(source, entry)
		if err != nil {
			return nil, err
		}
		bugs = append(bugs, b)
	}
	return bugs, nil
}

// parseOne reads one bug: fields and edits in any order, where an edit counts
// for the function or file named last.
func parseOne(source, entry string) (bug, error) {
	name, rest, _ := strings.Cut(entry, "\n")
	b := bug{source: source, name: name}
	var at edit
	for rest = strings.TrimRight(rest, "\n") + "\n"; rest != ""; {
		if body, ok := strings.CutPrefix(rest, "--- old\n"); ok {
			old, after, ok := strings.Cut(body, "\n--- new\n")
			if !ok {
				return bug{}, fmt.Errorf("%q lacks --- new", name)
			}
			new, more := cutField(after)
			b.edits, rest = append(b.edits, edit{at.file, at.fn, old, new}), more
			continue
		}
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		switch key, value, _ := strings.Cut(line, ": "); key {
		case "file":
			at = edit{file: value}
		case "func":
			at = edit{fn: value}
		case "test":
			b.test = value
		case "says":
			b.says = value
		default:
			return bug{}, fmt.Errorf("%q: unknown field %q", name, key)
		}
	}
	return b, b.check()
}

// cutField ends an edit at the next one, or at the next function or file.
func cutField(s string) (text, rest string) {
	s = "\n" + s
	end := len(s)
	for _, mark := range []string{"\n--- old\n", "\nfile: ", "\nfunc: "} {
		if i := strings.Index(s, mark); i >= 0 {
			end = min(end, i)
		}
	}
	return strings.TrimSuffix(strings.TrimPrefix(s[:end], "\n"), "\n"), strings.TrimPrefix(s[end:], "\n")
}

func (b *bug) check() error {
	if b.test == "" || len(b.edits) == 0 {
		return fmt.Errorf("%q lacks a test or an edit", b.name)
	}
	for _, e := range b.edits {
		if e.place() == "" || e.old == e.new {
			return fmt.Errorf("%q has an edit without function, file or change", b.name)
		}
	}
	return nil
}

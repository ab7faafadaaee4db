package main

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// errApart is said of a bug that cannot stand beside others in one program.
var errApart = errors.New("has to be planted alone")

// weaving is a tree into which several bugs are planted at once, each behind its number: a function that a bug
// changes is there once as it was and once for each bug, and calls the one with the number that the switch file holds.
type weaving struct {
	tree   string
	active string // the switch file
	funcs  map[string][]variant
	spans  map[string]span // by "dir function"
}

// variant is a function as one bug has it.
type variant struct {
	number int
	text   string
}

// addAll has bugs planted under the numbers of their places in those that are in, from 1 on.
func (w *weaving) addAll(bugs []bug) (in, apart []bug) {
	for _, b := range bugs {
		if w.add(len(in)+1, b) != nil {
			apart = append(apart, b)
			continue
		}
		in = append(in, b)
	}
	return in, apart
}

// add has a bug planted under a number from 1 on, or says that it has to be alone.
func (w *weaving) add(number int, b bug) error {
	changed := map[string]string{}
	for _, e := range b.edits {
		if e.fn == "" {
			return errApart
		}
		s, err := e.span(w.tree)
		if err != nil {
			return err
		}
		w.spans[e.fn] = s
		text, ok := changed[e.fn]
		if !ok {
			text = s.text[s.start:s.end]
		}
		if strings.Count(text, e.old) != 1 {
			return errApart
		}
		changed[e.fn] = strings.Replace(text, e.old, e.new, 1)
	}
	for fn, text := range changed {
		if !alike(w.spans[fn].within(), text) {
			return errApart
		}
	}
	for fn, text := range changed {
		w.funcs[fn] = append(w.funcs[fn], variant{number, text})
	}
	return nil
}

// write changes the tree, and returns how to take that back.
func (w *weaving) write() (undo func(), err error) {
	var undone []func()
	undo = func() {
		for _, u := range slices.Backward(undone) {
			u()
		}
	}
	put := func(path, text string) {
		before, missing := os.ReadFile(path)
		undone = append(undone, func() {
			if missing != nil {
				os.Remove(path)
				return
			}
			os.WriteFile(path, before, 0o644)
		})
		err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644))
	}
	for file, fns := range w.byFile() {
		text := w.spans[fns[0]].text
		for _, fn := range fns {
			s := w.spans[fn]
			text = text[:s.start] + dispatched(s.within(), w.funcs[fn]) + text[s.end:]
		}
		put(filepath.Join(w.tree, file), text)
		put(filepath.Join(w.tree, filepath.Dir(file), "planted_switch.go"), w.switched(text))
	}
	return undo, err
}

// byFile are the functions of each file, the last one of it first.
func (w *weaving) byFile() map[string][]string {
	files := map[string][]string{}
	for fn := range w.funcs {
		files[w.spans[fn].file] = append(files[w.spans[fn].file], fn)
	}
	for _, fns := range files {
		slices.SortFunc(fns, func(a, b string) int { return w.spans[b].start - w.spans[a].start })
	}
	return files
}

// switched is the file that reads the number, for the package of another. Programs that a test starts read it, too,
// whatever their environment is.
func (w *weaving) switched(text string) string {
	f, err := parser.ParseFile(token.NewFileSet(), "", text, parser.PackageClauseOnly)
	if err != nil {
		return text // does not compile either
	}
	return fmt.Sprintf(`package %s

import (
	"os"
	"strconv"
)

var plantedBug = func() int {
	text, _ := os.ReadFile(%q)
	n, _ := strconv.Atoi(string(text))
	return n
}()
`, f.Name.Name, w.active)
}

// activate says which bug is there, 0 none, for programs that begin from now on.
func (w *weaving) activate(number int) error {
	return os.WriteFile(w.active, []byte(strconv.Itoa(number)), 0o644)
}

func (s span) within() string { return s.text[s.start:s.end] }

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// most is how many bugs one program has at most. A program takes as long to compile as one bug did.
const most = 40

// group is bugs whose tests are of one program.
type group struct {
	pkg  string
	race bool
	bugs []bug
}

// grouped deals bugs out by the program that runs their tests; those without one are alone.
func grouped(bugs []bug) (groups []group) {
	last := map[[2]string]int{}
	for _, b := range bugs {
		c, err := parseTest(b.test)
		if err != nil {
			groups = append(groups, group{bugs: []bug{b}})
			continue
		}
		key := [2]string{c.pkg}
		if c.race {
			key[1] = "race"
		}
		i, ok := last[key]
		if !ok || len(groups[i].bugs) == most {
			i = len(groups)
			last[key] = i
			groups = append(groups, group{pkg: c.pkg, race: c.race})
		}
		groups[i].bugs = append(groups[i].bugs, b)
	}
	return groups
}

// command is the test of a bug as a program takes it.
type command struct {
	pkg  string
	race bool
	args []string
}

// ofGo are the flags of "go test" that a test program knows by another name.
var ofGo = []string{"-run", "-timeout", "-count", "-v", "-skip", "-short"}

// parseTest reads arguments of "go test".
func parseTest(test string) (c command, err error) {
	for _, word := range strings.Fields(test) {
		flag, _, _ := strings.Cut(word, "=")
		switch {
		case word == "-race":
			c.race = true
		case c.pkg == "" && (word == "." || strings.HasPrefix(word, "./")):
			c.pkg = word
		case word == "-args", strings.HasPrefix(word, "./"):
			return c, errApart
		case slices.Contains(ofGo, flag):
			c.args = append(c.args, "-test."+word[1:])
		default:
			c.args = append(c.args, word)
		}
	}
	if c.pkg == "" {
		return c, errApart
	}
	return c, nil
}

// worker plants bugs in a tree of its own.
type worker struct {
	tree string
	told func(b bug, err error, took time.Duration)
}

// judge tells of each bug of a group whether it is caught: of all that can be in one program by that, of the others, and of those
// that it does not catch, each by itself.
func (w *worker) judge(g group) {
	if len(g.bugs) > 1 {
		g.bugs = w.together(g)
	}
	for _, b := range g.bugs {
		began := time.Now()
		err := b.catch(w.tree)
		w.told(b, err, time.Since(began))
	}
}

// together judges the bugs of a group in one program, and returns those that it cannot judge.
func (w *worker) together(g group) (rest []bug) {
	dir, err := os.MkdirTemp(w.tree, "program")
	if err != nil {
		return g.bugs
	}
	defer os.RemoveAll(dir)
	v := weaving{tree: w.tree, active: filepath.Join(dir, "active"), funcs: map[string][]variant{}, spans: map[string]span{}}
	in, rest := v.addAll(g.bugs)
	undo, err := v.write()
	p := program{dir: filepath.Join(w.tree, g.pkg), path: filepath.Join(dir, "program.test"), weaving: &v, sound: map[string]bool{}}
	if err == nil {
		err = p.build(w.tree, g)
	}
	if err != nil {
		undo()
		return append(rest, w.halves(g, in)...)
	}
	defer undo()
	for i, b := range in {
		began := time.Now()
		if p.catches(i+1, b) {
			w.told(b, nil, time.Since(began))
			continue
		}
		rest = append(rest, b)
	}
	return rest
}

// halves judges bugs of which one does not compile in two programs.
func (w *worker) halves(g group, bugs []bug) (rest []bug) {
	if len(bugs) < 4 {
		return bugs
	}
	for _, half := range [][]bug{bugs[:len(bugs)/2], bugs[len(bugs)/2:]} {
		rest = append(rest, w.together(group{g.pkg, g.race, half})...)
	}
	return rest
}

// program is a compiled test with several bugs in it.
type program struct {
	dir, path string
	weaving   *weaving
	sound     map[string]bool // tests that pass while no bug is active, by their arguments
}

func (p *program) build(tree string, g group) error {
	args := []string{"test", "-c", "-vet=off", "-ldflags=-w", "-o", p.path}
	if g.race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, g.pkg)...)
	cmd.Dir = tree
	if err := cmd.Run(); err != nil {
		return err
	}
	_, err := os.Stat(p.path)
	return err
}

// catches reports whether the test of a bug fails while the bug is active, and passes while none is.
func (p *program) catches(number int, b bug) bool {
	if err := p.run(number, b); err != nil {
		return false
	}
	sound, known := p.sound[b.test]
	if !known {
		sound = errors.Is(p.run(0, b), errPassed)
		p.sound[b.test] = sound
	}
	return sound
}

// run returns nil if the test fails as it must.
func (p *program) run(number int, b bug) error {
	if err := p.weaving.activate(number); err != nil {
		return err
	}
	c, err := parseTest(b.test)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := append([]string{"-test.paniconexit0", "-test.failfast", "-test.timeout=" + (2 * limit).String()}, c.args...)
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Dir = p.dir
	out, err := cmd.CombinedOutput()
	return b.verdict(ctx, out, err)
}

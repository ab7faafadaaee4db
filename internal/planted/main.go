// Command planted proves that the tests still catch the bugs they were written
// for: it plants each bug of planted/*.txt in a copy of the tree, runs the test
// that is to catch it, and fails if that test passes.
//
//	go run ./internal/planted [file or name…]
//
// A file has any number of bugs:
//
//	=== the deadline is counted from the receipt of the answer
//	func: internal/session Session.anchor
//	test: ./internal/session -run TestRandomSchedules
//	--- old
//	d := deadline.Map(sent, n, x, s.cfg.TTL)
//	--- new
//	d := deadline.Map(s.now, n, x, s.cfg.TTL)
//
// The function is found in whichever file of the package has it, so that only a
// change of the function itself touches the list; a method is written
// Type.method. What is no Go function is named by "file: path" instead. The old
// text must stand exactly once in it. Everything between two markers counts,
// without the last line break. More edits may follow, each with its own function
// if it is another. A line "says: …" asks for a text that the
// failing test has to print, so that it does not fail for another reason.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// limit is how long one test may run: a planted bug that makes it hang counts
// as caught by nothing.
const limit = 15 * time.Minute

// workers is how many bugs are planted at the same time: while one test waits,
// another is compiled.
const workers = 2

func main() {
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "go run ./internal/planted [file or part of a name…] plants these bugs, or all, and runs their tests")
	}
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(1)
	}
}

func run(only []string) error {
	bugs, err := load("planted")
	if err != nil {
		return err
	}
	bugs = pick(bugs, only)
	if len(bugs) == 0 {
		return errors.New("no bug of that name or file")
	}
	dir, err := os.MkdirTemp("", "planted")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	missed, err := catchAll(dir, bugs)
	if err != nil {
		return err
	}
	fmt.Printf("%d planted, %d caught\n", len(bugs), len(bugs)-missed)
	if missed > 0 {
		return fmt.Errorf("%d bugs were not caught", missed)
	}
	return nil
}

// catchAll deals the bugs out to workers, each with a copy of the tree in dir,
// and says how many were not caught.
func catchAll(dir string, bugs []bug) (missed int, err error) {
	groups := grouped(bugs)
	todo, verdicts := make(chan group, len(groups)), make(chan bool)
	for _, g := range groups {
		todo <- g
	}
	close(todo)
	for i := range workers {
		w := worker{tree: filepath.Join(dir, strconv.Itoa(i)), told: func(b bug, err error, took time.Duration) {
			tell(b, err, took)
			verdicts <- err == nil
		}}
		if err := copyTree(".", w.tree); err != nil {
			return 0, err
		}
		go func() {
			for g := range todo {
				w.judge(g)
			}
		}()
	}
	for range bugs {
		if caught := <-verdicts; !caught {
			missed++
		}
	}
	return missed, nil
}

// tell prints whether the bug is caught.
func tell(b bug, err error, took time.Duration) {
	verdict := "caught"
	if err != nil {
		verdict = err.Error()
	}
	fmt.Printf("%-20s %s: %s (%.1fs)\n", b.source, b.name, verdict, took.Seconds())
}

func pick(bugs []bug, only []string) []bug {
	if len(only) == 0 {
		return bugs
	}
	var picked []bug
	for _, b := range bugs {
		for _, want := range only {
			if b.source == want || strings.Contains(b.name, want) {
				picked = append(picked, b)
				break
			}
		}
	}
	return picked
}

// catch plants the bug, runs its test, and takes the bug out again. It returns
// nil if the test failed, as it must.
func (b bug) catch(dir string) error {
	for _, e := range b.edits {
		undo, err := e.apply(dir)
		if err != nil {
			return fmt.Errorf("%w: bring planted/%s up to date", err, b.source)
		}
		defer undo()
	}
	return b.runTest(dir)
}

// apply makes one edit and returns how to take it back.
func (e edit) apply(dir string) (undo func(), err error) {
	s, err := e.span(dir)
	if err != nil {
		return nil, err
	}
	bad, err := s.planted(e)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, s.file)
	return func() { os.WriteFile(path, []byte(s.text), 0o644) }, os.WriteFile(path, []byte(bad), 0o644)
}

func (b bug) runTest(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := append([]string{"test", "-vet=off", "-ldflags=-w", "-count=1", "-failfast", "-timeout=" + (2 * limit).String()}, strings.Fields(b.test)...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return b.verdict(ctx, out, err)
}

var errPassed = errors.New("NOT CAUGHT: the test passed")

// verdict is nil if a test that ran with the bug failed as it must.
func (b bug) verdict(ctx context.Context, out []byte, err error) error {
	switch {
	case ctx.Err() != nil, bytes.Contains(out, []byte("panic: test timed out after")):
		return errors.New("NOT CAUGHT: the test did not end")
	case err == nil:
		return errPassed
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return fmt.Errorf("does not build:\n%s", out)
	case !bytes.Contains(out, []byte("FAIL")):
		return fmt.Errorf("the test could not run:\n%s", out)
	case !bytes.Contains(out, []byte(b.says)):
		return fmt.Errorf("NOT CAUGHT: the test fails without saying %q:\n%s", b.says, out)
	}
	return nil
}

// copyTree copies what the tests need: everything but the version control.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		target := filepath.Join(to, path)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, b, 0o644)
	})
}

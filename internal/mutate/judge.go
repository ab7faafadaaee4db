package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"
)

// A run with a mutant may take slack times as long as one without, and spare on
// top: other programs use the machine too.
const (
	slack = 4
	spare = 10 * time.Second
)

// judge runs tests on mutants of the tree at root.
type judge struct {
	root, tmp string
	tests     map[string][]string      // by the mutant's package
	plain     map[string]time.Duration // how long a package's tests take without a mutant
}

func newJudge(root string, tests map[string][]string) (*judge, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "mutate")
	return &judge{root, tmp, tests, map[string]time.Duration{}}, err
}

func (j *judge) close() { os.RemoveAll(j.tmp) }

// judge runs the tests that are to notice the mutant, until one does.
func (j *judge) judge(ctx context.Context, m mutant) (line, error) {
	overlay, err := j.overlay(m)
	if err != nil {
		return line{}, err
	}
	for _, pkg := range j.tests[m.pkg] {
		if err := j.measure(ctx, pkg); err != nil {
			return line{}, err
		}
		l, err := j.try(ctx, pkg, overlay)
		if err != nil || l.verdict != survived {
			l.what = m.what
			return l, err
		}
	}
	return line{survived, m.what, "?"}, nil
}

// overlay writes the changed file and what tells the go command to use it.
func (j *judge) overlay(m mutant) (string, error) {
	orig := filepath.Join(j.root, filepath.FromSlash(m.file))
	src, err := os.ReadFile(orig)
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(j.tmp, "changed.go"), filepath.Join(j.tmp, "overlay.json")
	spec, err := json.Marshal(map[string]map[string]string{"Replace": {orig: changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(changed, m.apply(src), 0o644); err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, spec, 0o644)
}

// measure runs a package's tests once without a mutant: they have to pass, and
// their time bounds the time with one.
func (j *judge) measure(ctx context.Context, pkg string) error {
	if j.plain[pkg] != 0 {
		return nil
	}
	if out, err := j.compile(ctx, pkg); err != nil {
		return fmt.Errorf("%s does not compile without a mutant: %w\n%s", pkg, err, out)
	}
	began := time.Now()
	out, err := j.run(ctx, pkg, 10*time.Minute)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("the tests of %s fail without a mutant: %w\n%s", pkg, err, out)
	}
	j.plain[pkg] = time.Since(began)
	return nil
}

// try compiles and runs one package's tests with the mutant.
func (j *judge) try(ctx context.Context, pkg, overlay string) (line, error) {
	if _, err := j.compile(ctx, pkg, "-overlay="+overlay); err != nil {
		return line{verdict: invalid}, ctx.Err()
	}
	out, err := j.run(ctx, pkg, slack*j.plain[pkg]+spare)
	switch {
	case ctx.Err() != nil:
		return line{}, ctx.Err()
	case err == nil:
		return line{verdict: survived}, nil
	case errors.Is(err, errHangs), bytes.Contains(out, []byte("panic: test timed out after")):
		return line{verdict: timeout, note: "by " + pkg}, nil
	}
	return line{verdict: killed, note: "by " + pkg + " " + failure(out)}, nil
}

// compile builds the package's test program.
func (j *judge) compile(ctx context.Context, pkg string, flags ...string) ([]byte, error) {
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", j.program()}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = j.root
	return cmd.CombinedOutput()
}

func (j *judge) program() string { return filepath.Join(j.tmp, "tests") }

// run runs the test program where go test would. The program ends itself when
// the time is over; it is stopped from outside only when it no longer can.
func (j *judge) run(ctx context.Context, pkg string, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit+spare, errHangs)
	defer cancel()
	cmd := exec.CommandContext(ctx, j.program(), "-test.failfast", "-test.timeout="+limit.String())
	cmd.Dir = filepath.Join(j.root, pkg)
	cmd.WaitDelay = spare
	out, err := cmd.CombinedOutput()
	if cause := context.Cause(ctx); cause != nil {
		return out, cause
	}
	return out, err
}

// errHangs: the test program did not even end itself.
var errHangs = errors.New("the tests hang")

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// failure names the test that failed first.
func failure(out []byte) string {
	if m := failed.FindSubmatch(out); m != nil {
		return string(m[1])
	}
	return "panic"
}

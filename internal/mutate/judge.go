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
	"strings"
	"time"
)

// slack is how many times as long as without it a run with a mutant may take;
// the judge's spare comes on top: other programs use the machine too.
const slack = 4

// most is how many mutants one program has.
const most = 100

// switchName is the variable with the number of the mutant that is on, and
// switchEnv the environment variable that it comes from.
const (
	switchName = "mutantThatIsOn"
	switchEnv  = "HOLDFAST_MUTANT"
)

// judge runs tests on mutants of the tree at root.
type judge struct {
	root, tmp string
	tests     map[string][]string      // by the mutant's package
	plain     map[string]time.Duration // how long a package's tests take without a mutant
	spare     time.Duration
}

func newJudge(root string, tests map[string][]string) (*judge, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "mutate")
	return &judge{root, tmp, tests, map[string]time.Duration{}, 10 * time.Second}, err
}

func (j *judge) close() { os.RemoveAll(j.tmp) }

// cut takes mutants that can be in one program off the list: those of the first
// one's package that do not overlap.
func cut(list []mutant) (batch, rest []mutant) {
	for _, m := range list {
		fits := len(batch) < most && (len(batch) == 0 || m.pkg == batch[0].pkg)
		for _, o := range batch {
			fits = fits && !m.overlaps(o)
		}
		if fits {
			batch = append(batch, m)
		} else {
			rest = append(rest, m)
		}
	}
	return batch, rest
}

// judge compiles a batch into one program and tells the verdict on each mutant.
// A batch that does not compile is halved until the mutant that is to blame is
// alone.
func (j *judge) judge(ctx context.Context, batch []mutant, tell func(mutant, line) error) error {
	if err := j.overlay(batch); err != nil {
		return err
	}
	compiled := map[string]bool{}
	own := j.tests[batch[0].pkg][0]
	if _, err := j.compile(ctx, own); err != nil {
		return j.halve(ctx, batch, tell)
	}
	compiled[own] = true
	for i, m := range batch {
		l, err := j.verdict(ctx, m, i+1, compiled)
		if err != nil {
			return err
		}
		if err := tell(m, l); err != nil {
			return err
		}
	}
	return nil
}

func (j *judge) halve(ctx context.Context, batch []mutant, tell func(mutant, line) error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(batch) == 1 {
		return tell(batch[0], line{invalid, batch[0].what, ""})
	}
	half := len(batch) / 2
	if err := j.judge(ctx, batch[:half], tell); err != nil {
		return err
	}
	return j.judge(ctx, batch[half:], tell)
}

// verdict runs the tests that are to notice the mutant, until one does.
func (j *judge) verdict(ctx context.Context, m mutant, n int, compiled map[string]bool) (line, error) {
	for _, pkg := range j.tests[m.pkg] {
		if err := j.ready(ctx, pkg, compiled); err != nil {
			return line{}, err
		}
		l, err := j.try(ctx, pkg, n)
		if err != nil || l.verdict != survived {
			l.what = m.what
			return l, err
		}
	}
	return line{survived, m.what, "?"}, nil
}

// ready compiles a package's tests, once for each batch, and measures them, once.
func (j *judge) ready(ctx context.Context, pkg string, compiled map[string]bool) error {
	if !compiled[pkg] {
		if out, err := j.compile(ctx, pkg); err != nil {
			return fmt.Errorf("the tests of %s do not compile: %w\n%s", pkg, err, out)
		}
		compiled[pkg] = true
	}
	if j.plain[pkg] != 0 {
		return nil
	}
	return j.measure(ctx, pkg)
}

// overlay writes the changed files and what tells the go command to use them.
func (j *judge) overlay(batch []mutant) error {
	replace := map[string]string{}
	add := func(file string, text []byte) error {
		changed := filepath.Join(j.tmp, strings.ReplaceAll(file, "/", "_"))
		replace[filepath.Join(j.root, filepath.FromSlash(file))] = changed
		return os.WriteFile(changed, text, 0o644)
	}
	for _, m := range batch {
		src, err := os.ReadFile(filepath.Join(j.root, filepath.FromSlash(m.file)))
		if err != nil {
			return err
		}
		if err := add(m.file, apply(src, m.file, batch)); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar %s, _ = strconv.Atoi(os.Getenv(%q))\n", batch[0].clause, switchName, switchEnv)
	if err := add(batch[0].pkg+"/mutant_that_is_on.go", []byte(text)); err != nil {
		return err
	}
	spec, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(j.overlayPath(), spec, 0o644)
}

func (j *judge) overlayPath() string { return filepath.Join(j.tmp, "overlay.json") }

// measure runs a package's tests with every mutant off: they have to pass, and
// their time bounds the time with one on.
func (j *judge) measure(ctx context.Context, pkg string) error {
	began := time.Now()
	out, err := j.run(ctx, pkg, 0, 10*time.Minute)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("the tests of %s fail without a mutant: %w\n%s", pkg, err, out)
	}
	j.plain[pkg] = time.Since(began)
	return nil
}

// try runs one package's tests with mutant n on. When they take too long, the
// machine may have become slow since the tests were measured: then they are
// measured and run again.
func (j *judge) try(ctx context.Context, pkg string, n int) (line, error) {
	before := j.plain[pkg]
	l, err := j.tryOnce(ctx, pkg, n)
	if err != nil || l.verdict != timeout {
		return l, err
	}
	if err := j.measure(ctx, pkg); err != nil {
		return line{}, err
	}
	if j.plain[pkg] > 2*before {
		return j.tryOnce(ctx, pkg, n)
	}
	return l, nil
}

func (j *judge) tryOnce(ctx context.Context, pkg string, n int) (line, error) {
	out, err := j.run(ctx, pkg, n, slack*j.plain[pkg]+j.spare)
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

// compile builds the package's test program with the batch in it.
func (j *judge) compile(ctx context.Context, pkg string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay="+j.overlayPath(), "-o", j.program(pkg), "./"+pkg)
	cmd.Dir = j.root
	return cmd.CombinedOutput()
}

func (j *judge) program(pkg string) string {
	return filepath.Join(j.tmp, strings.ReplaceAll(pkg, "/", "_")+".test")
}

// run runs the test program where go test would. The program ends itself when
// the time is over; it is stopped from outside only when it no longer can.
func (j *judge) run(ctx context.Context, pkg string, n int, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit+j.spare, errHangs)
	defer cancel()
	cmd := exec.CommandContext(ctx, j.program(pkg), "-test.failfast", "-test.timeout="+limit.String())
	cmd.Dir = filepath.Join(j.root, pkg)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", switchEnv, n))
	cmd.WaitDelay = j.spare
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

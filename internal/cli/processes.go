package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/child"
	"github.com/holdfast-io/holdfast/pipeline"
	"github.com/holdfast-io/holdfast/pipeline/run"
)

// processes runs the commands of pipelines as children that do not outlive what they hold.
type processes struct {
	a    *app
	g    *piping
	tree *liveTree
}

// Run runs a command with its output on a pipe: its end is kept, and all of it goes on to
// standard output.
func (p *processes) Run(c *run.Command) (run.Exit, error) {
	path, err := lookIn(p.g.dir, c.Args[0])
	if err != nil {
		return run.Exit{}, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return run.Exit{}, err
	}
	defer null.Close()
	from, to, err := os.Pipe()
	if err != nil {
		return run.Exit{}, err
	}
	defer from.Close()
	ended := make(chan struct{})
	out := &lastOutput{pass: func(b []byte) { p.tree.output(b, ended) }}
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(out, from) })
	cmd := &child.Command{
		Path: path, Args: c.Args, Dir: p.g.dir, Env: append(inherited(os.Environ()), append(c.Env, "HOLDFAST_URL="+p.a.url)...),
		Stdin: null, Stdout: to, Stderr: to, Notes: p.a.errOut, Grace: p.g.grace, Stop: c.Stop, Note: p.tree.note,
	}
	status, err := cmd.Run(c.Hold)
	close(ended)
	_ = to.Close()
	_ = from.SetReadDeadline(time.Now().Add(lateOutput)) // what left its group may keep the pipe for ever
	reading.Wait()
	return exitOf(status, err, out.String()), err
}

// inherited is an environment without what tells the command of an outer holdfast what that one holds, and its parameters: a
// phase that holds nothing, or has no such parameter, would take them for its own.
func inherited(env []string) []string {
	return slices.DeleteFunc(env, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains([]string{"HOLDFAST_LOCK", "HOLDFAST_TOKEN", "HOLDFAST_TOKENS"}, name) || strings.HasPrefix(name, "HOLDFAST_PARAM_")
	})
}

// exitOf is how a command ended, for the run.
func exitOf(s child.Status, err error, tail string) run.Exit {
	return run.Exit{Code: s.Code, Lost: s.Lost != nil, NotStarted: s.NotStarted, Itself: err == nil && !s.Stopped, Tail: tail}
}

// lateOutput is how long output is read once the command has ended.
const lateOutput = 200 * time.Millisecond

// lookIn finds a program; a path with a slash begins in dir.
func lookIn(dir, program string) (string, error) {
	if strings.ContainsRune(program, '/') && !filepath.IsAbs(program) {
		whole, err := filepath.Abs(filepath.Join(dir, program))
		if err != nil {
			return "", err
		}
		program = whole
	}
	path, err := exec.LookPath(program)
	switch {
	case err == nil || errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("%w: %w", err, fs.ErrNotExist)
	}
	return "", err
}

// lastOutput passes on what is written, and keeps the end of it.
type lastOutput struct {
	pass func([]byte)
	b    []byte
}

func (l *lastOutput) Write(b []byte) (int, error) {
	l.pass(b)
	if l.b = append(l.b, b...); len(l.b) > 4*pipeline.MaxTail {
		l.b = bytes.Clone(l.b[len(l.b)-pipeline.MaxTail:])
	}
	return len(b), nil
}

func (l *lastOutput) String() string { return string(l.b) }

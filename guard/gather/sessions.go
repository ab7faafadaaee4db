package gather

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/guard"
)

// Sessions tell whether a tmux session or a process is there. The name says which:
//
//	build, tmux:build    the tmux session with exactly that name
//	pid:1234@567890      the process that has the pid and started at that tick, the 22nd
//	                     field of /proc/1234/stat; without @ any process that has the pid
//	pidfile:run/web.pid  the process with the pid in the file. One that began after the
//	                     file was written has got the pid of another and does not count.
//	                     That is by the clock of the machine: once it was set forward by
//	                     more than 2 s, one from before may count as another's, too, for
//	                     which pid:1234@567890 is never taken
//
// Processes need Linux. One that has ended and was not waited for yet is not there.
type Sessions struct {
	// Dir is where relative paths of pid files begin.
	Dir string
	// Tmux is the program; default tmux. Socket is its -S; empty: its default.
	Tmux, Socket string
	// Every is how often sessions are looked at while somebody waits; default 1 s.
	Every time.Duration

	facts shared[guard.Input, guard.Fact]
}

// Find looks for the sessions.
func (s *Sessions) Find(ctx context.Context, inputs []guard.Input) guard.Inputs {
	return each(ctx, inputs, func(ctx context.Context, in guard.Input) (guard.Fact, error) {
		return s.facts.ask(ctx, in, func() (guard.Fact, error) { return s.fact(ctx, in.Name) })
	})
}

func (s *Sessions) fact(ctx context.Context, session string) (guard.Fact, error) {
	kind, name, ok := strings.Cut(session, ":")
	switch {
	case ok && kind == "pid":
		return s.process(name)
	case ok && kind == "pidfile":
		return s.pidFile(ctx, name)
	case ok && kind == "tmux":
		return s.tmux(ctx, name)
	}
	return s.tmux(ctx, session)
}

// Follow looks every so often.
func (s *Sessions) Follow(ctx context.Context, wanted func() []guard.Input, changed func(...guard.Input)) {
	poll(ctx, orElse(s.Every, time.Second), wanted, changed)
}

func (s *Sessions) tmux(ctx context.Context, name string) (guard.Fact, error) {
	f := guard.Fact{From: "tmux"}
	if err := possibleTmux(name); err != nil {
		return f, err
	}
	argv := []string{orText(s.Tmux, "tmux")}
	if s.Socket != "" {
		argv = append(argv, "-S", s.Socket)
	}
	env := append(plainEnv(), "LC_ALL=C.UTF-8")
	if v, ok := os.LookupEnv("TMUX_TMPDIR"); ok {
		env = append(env, "TMUX_TMPDIR="+v)
	}
	p := process{of: strings.Join(argv, " "), argv: append(argv, "has-session", "-t", "="+name), env: env, most: 4096}
	a, err := p.run(ctx)
	if err == nil && a.code != 0 && !noSession(a.errOut) {
		err = fmt.Errorf("tmux: exit code %d: %s", a.code, lastLine(a.errOut))
	}
	f.Is = err == nil && a.code == 0
	return f, err
}

// noSession tells "there is none", in the words of tmux, from a server that does not
// answer: both have the exit code 1.
func noSession(text string) bool {
	line := strings.TrimSpace(text)
	return strings.HasPrefix(line, "can't find session") || strings.HasPrefix(line, "no server running") ||
		strings.HasPrefix(line, "error connecting to") && strings.HasSuffix(line, "(No such file or directory)")
}

func (s *Sessions) process(name string) (guard.Fact, error) {
	pid, start, dated, err := parseProcess(name)
	if err != nil {
		return guard.Fact{}, err
	}
	p, err := processOf(pid)
	return guard.Fact{Is: p.alive && (!dated || p.start == start), From: fmt.Sprintf("process %d", pid)}, err
}

func (s *Sessions) pidFile(ctx context.Context, name string) (guard.Fact, error) {
	path := under(s.Dir, name)
	f := guard.Fact{From: path}
	file, err := within(ctx, path, func() (pidFile, error) { return readPidFile(path) })
	if missing(err) {
		return f, based(ctx, s.Dir, name)
	}
	if err != nil {
		return f, err
	}
	p, err := processOf(file.pid)
	const tick = 2 * time.Second // clocks of files and of processes are coarse
	f.Is = p.alive && !p.began.After(file.written.Add(tick))
	f.Since = p.began
	return f, err
}

// pidFile is what one says.
type pidFile struct {
	pid     int
	written time.Time
}

func readPidFile(path string) (f pidFile, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return f, err
	}
	if !info.Mode().IsRegular() || info.Size() > 4096 {
		return f, fmt.Errorf("%s is no pid file", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	number, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	pid, err := strconv.ParseUint(strings.TrimSpace(number), 10, 31)
	if err != nil || pid == 0 {
		return f, fmt.Errorf("%s has no pid in its first line", path)
	}
	return pidFile{int(pid), info.ModTime()}, nil
}

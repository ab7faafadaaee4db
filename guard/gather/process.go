package gather

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is a program that is run for an answer.
type process struct {
	// of are those of which none is started beside one that cannot be ended: what they ask for.
	of   string
	argv []string
	dir  string
	env  []string // the whole environment
	in   string   // its standard input
	// most bounds what is kept of its output; the rest of a longer one is dropped at
	// the front.
	most int
}

// answer is how it ended.
type answer struct {
	code   int
	out    string // standard output, its end if there was more
	errOut string
}

// run runs it until ctx ends, and ends its whole process group then. Neither what it left behind
// in the background keeps the answer waiting, nor a process that the kernel cannot end, since a
// file system does not answer it: as long as that one is there, no other of those is started.
func (p *process) run(ctx context.Context) (a answer, err error) {
	return stuck.run(ctx, p.of, p.toItsEnd)
}

// unended are the processes that were killed and have not ended, by what they ask for.
type unended struct {
	mu  sync.Mutex
	are map[string]int
}

var stuck = unended{are: map[string]int{}}

// run calls f, which returns when ctx ends unless its process does not.
func (u *unended) run(ctx context.Context, of string, f func(context.Context) (answer, error)) (a answer, err error) {
	if u.count(of, 0) > 0 {
		return a, fmt.Errorf("%s: one before it was killed, and has not ended", of)
	}
	done := make(chan struct{})
	var got answer
	var failed error
	go func() {
		defer close(done)
		got, failed = f(ctx)
	}()
	select {
	case <-done:
		return got, failed
	case <-ctx.Done():
	}
	select {
	case <-done:
		return got, failed
	case <-time.After(2 * time.Second): // more than it has for its last output
		u.count(of, 1)
		go func() { <-done; u.count(of, -1) }()
		return a, fmt.Errorf("%s did not end in time, nor when it was killed", of)
	}
}

// count adds to how many there are, and says how many that are.
func (u *unended) count(of string, more int) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.are[of] += more; u.are[of] == 0 {
		delete(u.are, of)
	}
	return u.are[of]
}

func (p *process) toItsEnd(ctx context.Context) (a answer, err error) {
	cmd := exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Env = p.dir, p.env
	if p.in != "" {
		cmd.Stdin = strings.NewReader(p.in)
	}
	out, errOut := &tail{most: p.most}, &tail{most: p.most}
	cmd.Stdout, cmd.Stderr = out, errOut
	group(cmd)
	cmd.WaitDelay = 500 * time.Millisecond
	err = cmd.Run()
	endGroup(cmd)
	a = answer{out: out.String(), errOut: errOut.String()}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return a, fmt.Errorf("%s did not end in time and was ended", p.argv[0])
	case errors.As(err, &exit):
		if a.code = exit.ExitCode(); a.code < 0 {
			return a, fmt.Errorf("%s: %s", p.argv[0], exit)
		}
		return a, nil
	case errors.Is(err, exec.ErrWaitDelay): // it ended well, and left something in the background
		return a, nil
	}
	return a, err
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	most int
	b    []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b = append(t.b, b...); len(t.b) > 2*t.most {
		t.b = append([]byte(nil), t.b[len(t.b)-t.most:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b[max(0, len(t.b)-t.most):]) // to the byte: what two of them say is compared
}

// lastLine is the last line that says something, as text, for reasons.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	line := strings.ToValidUTF8(strings.TrimSpace(lines[len(lines)-1]), "�")
	const most = 200
	if len(line) > most {
		line = "…" + strings.ToValidUTF8(line[len(line)-most:], "")
	}
	return line
}

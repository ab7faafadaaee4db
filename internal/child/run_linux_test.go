package child_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/holdtest"
	"github.com/holdfast-io/holdfast/internal/child"
)

// TestMain plays the warden, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == child.WardenArg {
		os.Exit(child.Warden(os.Stdin, os.Stderr))
	}
	if len(os.Args) == 2 && os.Args[1] == mainlessArg {
		mainless()
	}
	// Else wardens with the race detector sleep for a second when they end.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

// run is a command on its way.
type run struct {
	lines   *bufio.Reader // its output
	signals chan os.Signal
	stop    chan struct{}
	result  chan result
}

type result struct {
	child.Status
	err   error
	over  error // what the hold said when Run returned
	notes string
}

// under runs a shell script while h lasts.
func under(t *testing.T, h child.Hold, grace time.Duration, script string) *run {
	t.Helper()
	return noting(t, h, grace, nil, script)
}

// noting is under with another reader of the notes.
func noting(t *testing.T, h child.Hold, grace time.Duration, note func(string), script string) *run {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	r := &run{lines: bufio.NewReader(out), signals: make(chan os.Signal), stop: make(chan struct{}), result: make(chan result, 1)}
	var notes bytes.Buffer
	if note == nil {
		note = func(s string) { notes.WriteString(s + "\n") }
	}
	c := &child.Command{
		Path: sh, Args: []string{"sh", "-c", script}, Env: os.Environ(), Stdin: null, Stdout: in, Stderr: os.Stderr, Notes: os.Stderr,
		Grace: grace, Signals: r.signals, Stop: r.stop, Note: note,
	}
	go func() {
		status, err := c.Run(h)
		over := h.Err()
		in.Close()
		null.Close()
		r.result <- result{status, err, over, notes.String()}
	}()
	t.Cleanup(func() { out.Close() })
	return r
}

// ask signals the program, unless the command is over: its grace may end between two signals.
func (r *run) ask(s os.Signal) {
	select {
	case r.signals <- s:
	case end := <-r.result:
		r.result <- end
	}
}

// line is the command's next line; "" if it has ended.
func (r *run) line(t *testing.T) string {
	t.Helper()
	text, err := r.lines.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return strings.TrimSpace(text)
}

func hold(t *testing.T, s *holdfast.Space) *holdfast.Hold {
	t.Helper()
	h, err := s.Mutex("x").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A command that has to end is told once, and killed after the grace.
func TestRun_Stop(t *testing.T) {
	h := hold(t, holdtest.Space(t))
	polite := under(t, h, time.Minute, `n=0; trap 'n=$((n+1))' TERM; echo begins; until [ $n -gt 0 ]; do sleep 0.01; done; sleep 0.3; echo told $n; exit 3`)
	if polite.line(t) != "begins" {
		t.Fatal("it does not begin")
	}
	close(polite.stop)
	if told := polite.line(t); told != "told 1" {
		t.Errorf("it says %q", told)
	}
	if r := <-polite.result; r.err != nil || r.Code != 3 || r.Lost != nil || !r.Stopped {
		t.Errorf("%+v", r)
	}
	deaf := under(t, h, 100*time.Millisecond, `trap '' TERM; echo begins; while true; do sleep 1; done`)
	if deaf.line(t) != "begins" {
		t.Fatal("it does not begin")
	}
	close(deaf.stop)
	if r := <-deaf.result; r.err != nil || r.Code != 137 || !r.Stopped {
		t.Errorf("%+v", r)
	}
}

func TestRun_PassesTheCodeBack(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "kill -TERM $$": 143} {
		h := hold(t, holdtest.Space(t))
		r := <-under(t, h, time.Second, script).result
		if r.err != nil || r.Code != want || r.Lost != nil || r.Stopped {
			t.Errorf("%s: %+v, want the code %d", script, r, want)
		}
		if err := h.Release(); err != nil {
			t.Errorf("%s: %v", script, err)
		}
	}
}

// lease is a hold whose deadline the test moves.
type lease struct {
	over chan struct{}
	left atomic.Int64 // nanoseconds from now on
}

func (l *lease) Done() <-chan struct{} { return l.over }
func (l *lease) Err() error            { return nil }
func (l *lease) Deadline() (time.Time, bool) {
	return driver.Now().Add(time.Duration(l.left.Load())), true
}

// A command is told to end while its hold still lasts: with a quarter of its
// time left.
func TestRun_ToldBeforeTheDeadline(t *testing.T) {
	l := &lease{over: make(chan struct{})}
	l.left.Store(int64(time.Hour))
	r := under(t, l, time.Hour, `trap 'echo told; exit 3' TERM; echo up; while :; do sleep 0.01; done`)
	if got := r.line(t); got != "up" {
		t.Fatalf("the command says %q", got)
	}
	l.left.Store(int64(14 * time.Minute))
	close(l.over) // a reason to look: by itself it would only when a quarter of the hour is left
	if got := r.line(t); got != "told" {
		t.Errorf("the command says %q; it was not told to end", got)
	}
	end := <-r.result
	if end.err != nil || end.Lost == nil || end.Code != 3 {
		t.Errorf("%+v; want the hold given up, the command ended by itself with 3", end)
	}
}

// A command that does not hear is killed, with all that it started. The time of the hold runs out once the command
// runs: a real one of a second could be lost before that, on a busy machine.
func TestRun_KillsWhatDoesNotHear(t *testing.T) {
	l := &lease{over: make(chan struct{})}
	l.left.Store(int64(time.Hour))
	r := under(t, l, 50*time.Millisecond, `trap '' TERM; (while :; do sleep 0.01; done) & echo up; wait; while :; do sleep 0.01; done`)
	if got := r.line(t); got != "up" {
		t.Fatalf("the command says %q", got)
	}
	l.left.Store(int64(300 * time.Millisecond)) // when it is told to end
	end := <-r.result
	if end.err != nil || end.Lost == nil || end.Code != 128+int(syscall.SIGKILL) {
		t.Errorf("%+v; want it killed and the hold given up", end)
	}
	if got := r.line(t); got != "" { // its output ends when the last process has ended
		t.Errorf("something still writes: %q", got)
	}
}

// A loss that is told ends the command, within the grace.
func TestRun_Lost(t *testing.T) {
	s := holdtest.Space(t, holdfast.TTL(time.Hour))
	h := hold(t, s)
	r := under(t, h, time.Minute, `trap 'echo told; exit 3' TERM; echo up; while :; do sleep 0.01; done`)
	r.line(t)
	holdtest.Lose(h, errors.New("an operator decided so"))
	if got := r.line(t); got != "told" {
		t.Errorf("the command says %q; it was not told to end", got)
	}
	if end := <-r.result; !errors.Is(end.Lost, holdfast.ErrLost) || !strings.Contains(end.Lost.Error(), "an operator decided so") {
		t.Errorf("%+v; want ErrLost with its cause", end)
	}
}

// What a command leaves in its group ends before the hold is given back.
func TestRun_EndsTheRest(t *testing.T) {
	s := holdtest.Space(t)
	h := hold(t, s)
	r := under(t, h, 50*time.Millisecond, `(trap '' TERM; sleep 300; sleep 300) & exit 4`)
	end := <-r.result
	if end.Code != 4 || end.Lost != nil || !strings.Contains(end.notes, "left processes behind") {
		t.Fatalf("%+v; want 4 and a note about the rest", end)
	}
	if end.over != nil {
		t.Errorf("the hold was over before the rest was: %v", end.over)
	}
	if got := r.line(t); got != "" {
		t.Errorf("something still writes: %q", got)
	}
}

// Signals are passed on; the third that asks for an end kills.
func TestRun_Signals(t *testing.T) {
	h := hold(t, holdtest.Space(t))
	r := under(t, h, time.Hour, `trap 'echo heard' INT; trap 'echo usr' USR1; echo up; while :; do sleep 0.01; done`)
	r.line(t)
	r.ask(syscall.SIGUSR1)
	if got := r.line(t); got != "usr" {
		t.Errorf("after USR1: %q", got)
	}
	for range 2 {
		r.ask(syscall.SIGINT)
		if got := r.line(t); got != "heard" {
			t.Errorf("after an INT: %q", got)
		}
	}
	r.ask(syscall.SIGINT)
	if end := <-r.result; end.Code != 137 || end.Lost != nil {
		t.Errorf("%+v; want it killed and nothing lost", end)
	}
}

// After the second signal that asks for an end the grace runs.
func TestRun_SecondSignal(t *testing.T) {
	h := hold(t, holdtest.Space(t))
	r := under(t, h, 50*time.Millisecond, `trap '' INT; echo up; while :; do sleep 0.01; done`)
	r.line(t)
	r.ask(syscall.SIGINT)
	r.ask(syscall.SIGINT)
	if end := <-r.result; end.Code != 137 || end.Lost != nil {
		t.Errorf("%+v; want it killed and nothing lost", end)
	}
}

// A command does not outlive the hold either if holdfast was stopped after it had
// started the command and before it could tell so.
func TestWarden_FindsWhatItWasNotTold(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := exec.CommandContext(ctx, "/proc/self/exe", child.WardenArg)
	in, err := w.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sleep", "1000")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(in, "holder %d\nuntil 1\n", os.Getpid())
	_ = w.Wait()
	in.Close()
	_ = c.Process.Kill() // in case it was not
	_ = c.Wait()
	if code := w.ProcessState.ExitCode(); code != 3 {
		t.Errorf("the warden ended with %d; it has killed nothing", code)
	}
}

func TestRun_CannotStart(t *testing.T) {
	h := hold(t, holdtest.Space(t))
	c := &child.Command{Path: "/dev/null", Args: []string{"x"}, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Notes: os.Stderr}
	if _, err := c.Run(h); !errors.Is(err, os.ErrPermission) {
		t.Errorf("running /dev/null: %v", err)
	}
}

// A command that was stopped hears that it is to end.
func TestRun_EndsWhatIsStopped(t *testing.T) {
	h := hold(t, holdtest.Space(t))
	r := under(t, h, time.Minute, "trap 'exit 9' TERM; echo $$; while :; do sleep 0.1; done")
	pid, err := strconv.Atoi(r.line(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.ask(syscall.SIGTERM)
	select {
	case got := <-r.result:
		if got.Code != 9 {
			t.Errorf("it ended with %d", got.Code)
		}
	case <-time.After(20 * time.Second):
		t.Error("it does not hear that it is to end")
		r.ask(syscall.SIGTERM)
		r.ask(syscall.SIGTERM)
		<-r.result
	}
	_ = h.Release()
}

// Signals are heard while what the command left behind is ended: the third one kills.
func TestRun_SignalsAfterTheCommand(t *testing.T) {
	h := hold(t, holdtest.Space(t))
	r := under(t, h, time.Hour, "trap '' INT TERM; (while kill -0 $$ 2>/dev/null; do sleep 0.01; done; echo up; while :; do sleep 0.1; done) & exit 3")
	if line := r.line(t); line != "up" {
		t.Fatal(line)
	}
	for range 3 {
		select {
		case r.signals <- syscall.SIGINT:
		case <-time.After(20 * time.Second):
			t.Fatal("a signal is not heard")
		}
	}
	if got := <-r.result; got.Code != 3 {
		t.Errorf("it ended with %d", got.Code)
	}
	_ = h.Release()
}

// A hold that is over before its command could begin starts nothing: a short command would be done
// before it could be ended, while another holds the name.
func TestRun_LostBefore(t *testing.T) {
	h := hold(t, holdtest.Space(t, holdfast.TTL(time.Hour)))
	holdtest.Lose(h, errors.New("an operator decided so"))
	past := &lease{over: make(chan struct{})}
	past.left.Store(-1)
	for _, over := range []child.Hold{h, past} {
		r := under(t, over, time.Second, "echo ran")
		end := <-r.result
		if end.err != nil || end.Lost == nil || !end.NotStarted {
			t.Errorf("%+v; want the hold lost before the start", end)
		}
		if got := r.line(t); got != "" {
			t.Errorf("the command says %q", got)
		}
	}
}

// turning is a hold that is lost when it is looked at for the second time.
type turning struct {
	lease
	looks atomic.Int64
}

func (l *turning) Deadline() (time.Time, bool) {
	if l.looks.Add(1) > 1 {
		l.left.Store(-1)
	}
	return l.lease.Deadline()
}

// A command that is to end by the time that it would begin is not started: one that was stopped, or of which the hold was
// lost while the warden was started.
func TestRun_OverBeforeTheStart(t *testing.T) {
	late := &turning{}
	late.left.Store(int64(time.Hour))
	h := hold(t, holdtest.Space(t))
	for name, c := range map[string]struct {
		h    child.Hold
		stop bool
	}{"lost": {late, false}, "stopped": {h, true}} {
		stop, out := make(chan struct{}), t.TempDir()+"/ran"
		if c.stop {
			close(stop)
		}
		cmd := &child.Command{Path: "/bin/sh", Args: []string{"sh", "-c", "touch " + out}, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Notes: os.Stderr, Stop: stop, Note: func(string) {}}
		end, err := cmd.Run(c.h)
		if _, ran := os.Stat(out); err != nil || !end.NotStarted || end.Stopped != c.stop || (end.Lost == nil) != c.stop || ran == nil {
			t.Errorf("%s: %+v, %v, and the command has begun: %t", name, end, err, ran == nil)
		}
	}
}

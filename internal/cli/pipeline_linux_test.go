package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/fence"
	"github.com/holdfast-io/holdfast/internal/backends"
)

func init() { played["phase-log"] = logged }

// logged is a command of a phase, as a program: phase-log DIR MILLISECONDS. It writes that
// it starts, and that it has ended, to a log that a fence guards, and that another command of the
// run lives if one does. If its runner is struck while it works (the file cut says so), it goes on for a minute, or until
// that runner goes on (awake): it is gone before the next starts only if it is ended. Once a runner was struck, commands
// work for a moment only.
func logged() {
	token, err := strconv.ParseUint(os.Getenv("HOLDFAST_RUNNER_TOKEN"), 10, 64)
	if err != nil {
		panic(err)
	}
	dir, phase := &fence.Dir{Path: filepath.Join(os.Args[1], "fence")}, os.Getenv("HOLDFAST_PHASE")
	write := func(text string) {
		err := dir.Do(context.Background(), os.Getenv("HOLDFAST_RUN"), fence.Token(token), fence.Exclusive, func(context.Context) error {
			f, err := os.OpenFile(filepath.Join(os.Args[1], "log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = fmt.Fprintln(f, text)
			return err
		})
		if err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
	}
	alone, err := os.OpenFile(filepath.Join(os.Args[1], "alone"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		panic(err)
	}
	if err := syscall.Flock(int(alone.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil { // the kernel frees it with the process
		write(fmt.Sprintf("%s starts while another command lives", phase))
	}
	before := there("cut")
	write(fmt.Sprintf("start %s %d", phase, os.Getpid()))
	ms, _ := strconv.Atoi(os.Args[2])
	if before {
		ms = min(ms, 60)
	}
	<-time.After(time.Duration(ms) * time.Millisecond) // its work
	for n := 0; !before && there("cut") && !there("awake") && n < 6000; n++ {
		<-time.After(10 * time.Millisecond)
	}
	write("end " + phase)
}

// there reports that the directory of a command has a file.
func there(name string) bool {
	_, err := os.Stat(filepath.Join(os.Args[1], name))
	return err == nil
}

// lives reports that a process is there, and has not ended.
func lives(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(b), ") ")
	return err == nil && ok && rest[0] != 'Z' && rest[0] != 'X'
}

func readLog(dir string) []string {
	b, _ := os.ReadFile(filepath.Join(dir, "log"))
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// logging writes the file of a pipeline with two commands, of which one works until it is ended: build, which may be
// started again, or deploy, which may not and holds a lock.
func logging(t *testing.T, dir, lasts string) string {
	t.Helper()
	file := filepath.Join(dir, "release.yaml")
	ms := map[string]int{"build": 1, "deploy": 1}
	ms[lasts] = 100_000
	text := fmt.Sprintf(`pipeline: release
phases:
  - {name: build, run: [phase-log, %[1]q, "%[2]d"], retries: 3}
  - {name: deploy, run: [phase-log, %[1]q, "%[3]d"], holds: [lock: prod]}
`, dir, ms["build"], ms["deploy"])
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// statusOf is where a run stands; empty: there is none.
func statusOf(t *testing.T, dir, url, ref string) string {
	t.Helper()
	out, _ := program(t, dir, "--url", url, "--json", "pipeline", "status", ref).Output() // 1 is an answer, too
	var s struct{ Status string }
	_ = json.Unmarshal(out, &s)
	return s.Status
}

// awaitStatus returns when the run has one of the statuses.
func awaitStatus(t *testing.T, dir, url string, is ...string) string {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for ; ; <-look.C {
		s := statusOf(t, dir, url, "release/1")
		for _, want := range is {
			if s == want {
				return s
			}
		}
	}
}

// judge looks at the log of a run that has ended: nothing that may not was started twice, and
// nothing beside another.
func judge(t *testing.T, dir, url, what string) {
	t.Helper()
	starts := map[string]int{}
	for _, line := range readLog(dir) {
		var phase string
		var pid int
		if _, err := fmt.Sscanf(line, "start %s %d", &phase, &pid); err == nil {
			starts[phase]++
		} else if !strings.HasPrefix(line, "end ") {
			t.Errorf("%s: %s", what, line)
		}
	}
	if starts["deploy"] > 1 {
		t.Errorf("%s: started %v", what, starts)
	}
	if code := exitCode(t, program(t, dir, "--url", url, "lock", "--wait", "20s", "prod", "--", "true")); code != 0 {
		t.Errorf("%s: prod is still held (exit code %d)", what, code)
	}
}

// resumed runs a run to its end by another program, and answers what it asks.
func resumed(t *testing.T, dir, url string) (asked bool) {
	t.Helper()
	second := program(t, dir, "--url", url, "pipeline", "run", "--resume", "release/1")
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	if awaitStatus(t, dir, url, "unknown", "done", "failed") == "unknown" {
		asked = true
		if code := exitCode(t, program(t, dir, "--url", url, "pipeline", "why", "release/1")); code != 1 {
			t.Errorf("why exits with %d for a run that asks", code)
		}
		does(t, url, "pipeline", "approve", "release/1")
	}
	if err := second.Wait(); err != nil {
		t.Errorf("the second runner: %v", err)
	}
	if s := statusOf(t, dir, url, "release/1"); s != "done" {
		t.Errorf("in the end it is %s", s)
	}
	return asked
}

// A runner is stopped while its command runs, and goes on later: its command is gone before
// the next runner starts one, and what it would write is refused.
func TestPipeline_Stopped(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{"build", "deploy"} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel() // it waits for the TTL
			dir := t.TempDir()
			url := "holdfast://" + backends.Node(t)
			first := program(t, dir, "--url", url, "pipeline", "run", "--ttl", "8s", logging(t, dir, phase)) // no pause of a busy machine ends it before
			var out, notes bytes.Buffer
			first.Stdout, first.Stderr = &out, &notes
			if err := first.Start(); err != nil {
				t.Fatal(err)
			}
			awaitLog(t, dir, "start "+phase)
			signal(t, first.Process.Pid, syscall.SIGSTOP)
			if err := os.WriteFile(filepath.Join(dir, "cut"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			asked := resumed(t, dir, url)
			signal(t, first.Process.Pid, syscall.SIGCONT)
			if err := first.Wait(); err != nil {
				t.Errorf("the first runner: %v", err) // it finds the run done
			}
			if killed := "its command is killed"; strings.Contains(out.String(), killed) || !strings.Contains(notes.String(), killed) {
				t.Errorf("that its command was killed is no part of its output:\n%s\n%s", &out, &notes)
			}
			if asked != (phase == "deploy") {
				t.Errorf("asked: %t", asked)
			}
			judge(t, dir, url, "stopped in "+phase)
		})
	}
}

// awaitLog returns when a line of the log begins so.
func awaitLog(t *testing.T, dir, begin string) {
	t.Helper()
	look, over := time.NewTicker(5*time.Millisecond), time.After(2*time.Minute)
	defer look.Stop()
	for {
		log := readLog(dir)
		if slices.ContainsFunc(log, func(line string) bool { return strings.HasPrefix(line, begin) }) {
			return
		}
		select {
		case <-look.C:
		case <-over:
			t.Fatalf("no line begins with %q: %q", begin, log)
		}
	}
}

// Commands that do not end, that ignore signals and that leave processes behind: a cancelled
// run ends all the same, and so does one with a command that has become a daemon.
func TestPipeline_StubbornCommands(t *testing.T) {
	dir := t.TempDir()
	url := "file://" + filepath.Join(dir, "space")
	write := func(command string) {
		t.Helper()
		text, _ := json.Marshal(map[string]any{"pipeline": "release", "phases": []any{map[string]any{"name": "work", "run": []string{"sh", "-c", command}}}})
		if err := os.WriteFile(filepath.Join(dir, "p.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("trap '' TERM INT; echo up >up; while :; do sleep 1; done")
	first := program(t, dir, "pipeline", "run", "--grace", "100ms", "p.json")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	awaitStatus(t, dir, url, "running")
	does(t, url, "pipeline", "cancel", "release/1")
	if code := codeOf(t, first.Wait()); code != 1 {
		t.Errorf("a cancelled run exits with %d", code)
	}
	if s := statusOf(t, dir, url, "release/1"); s != "cancelled" {
		t.Errorf("it is %s", s)
	}
	write("setsid sleep 1000 & echo $! >pid; echo started")
	if out, err := program(t, dir, "pipeline", "run", "p.json").Output(); err != nil || string(out) != "started\nrelease/2: done\n" {
		t.Errorf("a daemon: %q, %v", out, err)
	}
	pid, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(pid)))
	_ = syscall.Kill(n, syscall.SIGKILL)
}

// A reader of its output that stalls does not hold up a run that is cancelled.
func TestPipeline_StalledReader(t *testing.T) {
	dir := t.TempDir()
	url := "file://" + filepath.Join(dir, "space")
	text := "pipeline: release\nphases:\n  - {name: work, run: [sh, -c, 'yes | head -c 200000; echo start >log; yes']}\n"
	if err := os.WriteFile(filepath.Join(dir, "p.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	first := program(t, dir, "pipeline", "run", "--grace", "100ms", "p.yaml")
	out, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLog(t, dir, "start")
	does(t, url, "pipeline", "cancel", "release/1")
	cancelled := make(chan struct{})
	go func() {
		defer close(cancelled)
		awaitStatus(t, dir, url, "cancelled")
	}()
	select {
	case <-cancelled:
	case <-time.After(30 * time.Second):
		t.Error("it is not cancelled as long as nobody reads")
	}
	said, err := io.ReadAll(out)
	if err != nil || !strings.HasSuffix(string(said), "release/1: cancelled\n") || len(said) < 200_000 {
		t.Errorf("%d bytes come in the end, %v", len(said), err)
	}
	<-cancelled
	if code := codeOf(t, first.Wait()); code != 1 {
		t.Errorf("it exits with %d", code)
	}
}

// A reader of its output that leaves, as head does, does not end a run, and its commands are
// ended by the signal as in any shell.
func TestPipeline_ReaderLeaves(t *testing.T) {
	dir := t.TempDir()
	url := "file://" + filepath.Join(dir, "space")
	text := `pipeline: release
phases:
  - {name: first, run: [sh, -c, 'echo hello; echo start >log; while [ ! -e gone ]; do sleep 0.01; done; echo again']}
  - {name: second, run: [sh, -c, 'echo later; yes 2>complaint | head -1 >last']}
`
	if err := os.WriteFile(filepath.Join(dir, "p.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := program(t, dir, "--url", url, "pipeline", "run", "p.yaml")
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	run.Stderr = run.Stdout // both are read by one that leaves
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLog(t, dir, "start")
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "gone"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := codeOf(t, run.Wait()); code != 0 {
		t.Errorf("it exits with %d", code)
	}
	if s := statusOf(t, dir, url, "release/1"); s != "done" {
		t.Errorf("the run is %q", s)
	}
	for file, want := range map[string]string{"last": "y\n", "complaint": ""} { // yes was ended by the signal
		if b, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(b) != want {
			t.Errorf("%s has %q, %v; want %q", file, b, err, want)
		}
	}
}

// A release waits until the milestone is closed at a server that speaks like GitHub.
func TestPipeline_Milestone(t *testing.T) {
	var closed atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state := "open"
		if closed.Load() {
			state = "closed"
		}
		fmt.Fprintf(w, `[{"number":1,"state":%q,"milestone":{"title":"v2"}}]`, state)
	}))
	defer server.Close()
	dir := t.TempDir()
	url := "file://" + filepath.Join(dir, "space")
	text := "pipeline: release\nphases:\n  - {name: tag, when: {issues_complete: \"milestone:v2\"}, run: [echo, tagging v2]}\n"
	if err := os.WriteFile(filepath.Join(dir, "milestone.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	first := program(t, dir, "pipeline", "run", "--github", server.URL, "--repo", "acme/app", "--recheck", "50ms", "milestone.yaml")
	first.Stdout = &out
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	awaitStatus(t, dir, url, "blocked")
	why, _ := program(t, dir, "pipeline", "why", "--github", server.URL, "--repo", "acme/app", "release/1").Output() // it exits with 1
	if !strings.Contains(string(why), `✗ the issues "milestone:v2" are complete (1 of 1 open)`) {
		t.Errorf("why: %s", why)
	}
	closed.Store(true)
	if err := first.Wait(); err != nil || out.String() != "tagging v2\nrelease/1: done\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func codeOf(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	e, ok := err.(*exec.ExitError)
	if !ok {
		t.Fatal(err)
	}
	return e.ExitCode()
}

// ^C cancels a run, and its command ends.
func TestPipeline_Signal(t *testing.T) {
	dir := t.TempDir()
	url := "file://" + filepath.Join(dir, "space")
	first := program(t, dir, "pipeline", "run", logging(t, dir, "build"))
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	cancels(t, first, dir, url)
}

// cancels expects ^C to cancel the run of a program once that builds.
func cancels(t *testing.T, program *exec.Cmd, dir, url string) {
	t.Helper()
	awaitLog(t, dir, "start build")
	signal(t, program.Process.Pid, syscall.SIGINT)
	if code := codeOf(t, program.Wait()); code != 130 {
		t.Errorf("it exits with %d", code)
	}
	if s := statusOf(t, dir, url, "release/1"); s != "cancelled" {
		t.Errorf("it is %s", s)
	}
}

// SIGTERM and SIGHUP end the command and leave the run, and ^C of a program that only stands by
// leaves it too: another goes on with it.
func TestPipeline_Left(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := t.TempDir()
			url := "file://" + filepath.Join(dir, "space")
			first := program(t, dir, "pipeline", "run", logging(t, dir, "build"))
			if err := first.Start(); err != nil {
				t.Fatal(err)
			}
			awaitLog(t, dir, "start build")
			left := first
			if sig == syscall.SIGINT {
				left = program(t, dir, "pipeline", "run", "--resume", "release/1")
				said, err := left.StderrPipe()
				if err == nil {
					err = left.Start()
				}
				if err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewScanner(said)
				for lines.Scan() && !strings.Contains(lines.Text(), "another program runs release/1") {
				}
			}
			signal(t, left.Process.Pid, sig)
			if code := codeOf(t, left.Wait()); code != 128+int(sig) {
				t.Errorf("it exits with %d", code)
			}
			if sig == syscall.SIGINT {
				if s := statusOf(t, dir, url, "release/1"); s != "running" {
					t.Errorf("it is %s", s)
				}
				signal(t, first.Process.Pid, syscall.SIGTERM)
				_ = first.Wait()
			}
			for _, line := range readLog(dir) {
				var pid int
				if _, err := fmt.Sscanf(line, "start build %d", &pid); err == nil && lives(pid) {
					t.Errorf("%d lives", pid)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "log"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			second := program(t, dir, "pipeline", "run", "--resume", "release/1")
			if err := second.Start(); err != nil {
				t.Fatal(err)
			}
			cancels(t, second, dir, url)
		})
	}
}

// A run in a queue says where it stands, and output without an end of its line is apart from
// what follows.
func TestPipeline_Says(t *testing.T) {
	t.Parallel() // it waits for what comes to nothing
	dir := t.TempDir()
	url := "file://" + filepath.Join(dir, "space")
	file := filepath.Join(dir, "one.yaml")
	text := "pipeline: release\nqueue: {places: 1}\nphases:\n  - {name: build, run: [phase-log, " + dir + ", \"100000\"]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	first := program(t, dir, "pipeline", "run", file)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLog(t, dir, "start build")
	out, err := program(t, dir, "pipeline", "run", "--wait", "10s", file).CombinedOutput()
	if code := codeOf(t, err); code != 124 || strings.Count(string(out), "it has place 1 in the queue; the places are taken by 1\n") != 2 {
		t.Errorf("exit code %d: %s", code, out)
	}
	out, err = program(t, dir, "pipeline", "run", "--wait", "1ns", file).CombinedOutput()
	if code := codeOf(t, err); code != 124 || strings.Contains(string(out), "still :") || !strings.Contains(string(out), "still queued: it has place") {
		t.Errorf("exit code %d: %s", code, out)
	}
	out, err = program(t, dir, "pipeline", "run", "--resume", "--wait", "1s", "release/1").CombinedOutput()
	if code := codeOf(t, err); code != 124 || !strings.Contains(string(out), "release/1 is still running: another program runs it") {
		t.Errorf("exit code %d: %s", code, out)
	}
	signal(t, first.Process.Pid, syscall.SIGKILL)
	_ = first.Wait()
	again, over := time.NewTicker(50*time.Millisecond), time.After(time.Minute)
	defer again.Stop()
	for { // the warden of the first has its run until it has seen the command end
		out, err = program(t, dir, "--url", url, "pipeline", "why", "release/2").CombinedOutput()
		if code := codeOf(t, err); code == 1 && strings.Count(string(out), "the places are taken by 1 (which no program runs)\n") == 1 {
			break
		}
		select {
		case <-again.C:
		case <-over:
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.WriteFile(file, []byte("pipeline: cut\nphases:\n  - {name: a, run: [printf, abc]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := program(t, dir, "--json", "pipeline", "run", file).Output(); err != nil || !strings.HasPrefix(string(out), "abc\n{\"run\":\"cut/1\"") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := program(t, dir, "--json", "pipeline", "schema").Output(); err != nil || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v: %s", err, out)
	}
}

// What cannot be run says why, in all that tells of the run; what makes no sense is refused before
// anything is asked.
func TestPipeline_CannotRun(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "one.yaml")
	if err := os.WriteFile(file, []byte("pipeline: none\nphases: [{name: one, run: [no-such-program]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	why := `one: its command cannot be run: exec: "no-such-program": executable file not found in $PATH`
	for _, step := range []struct {
		args string
		code int
		says string
	}{
		{"run --id x one.yaml", 1, "none/x is failed: " + why},
		{"status none/x", 1, why},
		{"why none/x", 0, why},
		{"run --id x one.yaml", 1, "or go on with it: holdfast pipeline run --resume none/x"},
		{"run --resume --id 3 none/x", 64, "--id means nothing to --resume"},
		{"run --dir gone one.yaml", 64, "/gone is no directory"},
		{"status none", 64, `"none" names no run: a run is named pipeline/id, such as none/1`},
	} {
		cmd := program(t, dir, append([]string{"pipeline"}, strings.Fields(step.args)...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if code := codeOf(t, err); code != step.code || !strings.Contains(string(out), step.says) {
			t.Errorf("pipeline %s: exit code %d: %s", step.args, code, out)
		}
	}
	out, _ := program(t, dir, "--json", "pipeline", "status", "none/x").Output()
	if !strings.Contains(string(out), `"exit_code":127`) {
		t.Errorf("the status is %s", out)
	}
}

// A command that is told to be run next can be pasted into a shell, whatever the pipeline is called.
func TestPipeline_HintsQuoted(t *testing.T) {
	dir := t.TempDir()
	text := "pipeline: a; exit\nphases: [{name: one, when: {file_exists: gone}}]\n"
	if err := os.WriteFile(filepath.Join(dir, "odd.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const odd = "a; exit/1"
	for _, step := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"run", "--wait", "50ms", "odd.yaml"}, 124, "holdfast pipeline run --resume -- 'a; exit/1'"},
		{[]string{"why", odd}, 1, "holdfast pipeline run --resume -- 'a; exit/1'"},
		{[]string{"cancel", odd}, 0, "cancelled"},
		{[]string{"cancel", odd}, 1, "holdfast pipeline status -- 'a; exit/1' tells"},
	} {
		out, err := program(t, dir, append([]string{"pipeline"}, step.args...)...).CombinedOutput()
		if code := codeOf(t, err); code != step.code || !strings.Contains(string(out), step.says) {
			t.Errorf("pipeline %q: exit code %d: %s", step.args, code, out)
		}
	}
}

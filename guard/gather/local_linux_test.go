package gather_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/guard"
	"github.com/holdfast-io/holdfast/guard/gather"
)

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "here"), nil, 0o644))
	ok(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	ok(t, os.MkdirAll(filepath.Join(dir, "far/away"), 0o700))
	ok(t, os.Symlink("far/away", filepath.Join(dir, "link")))
	g := gather.New(gather.Config{Dir: dir})
	outcomes(t, g, map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.FileExists("here"), guard.FileExists(filepath.Join(dir, "here")), guard.FileExists("."), guard.FileNotExists("gone"), guard.FileNotExists("dangling"), guard.FileExists("link/"), guard.FileExists("link/../away")},
		guard.Failed: {guard.FileExists("gone"), guard.FileNotExists("here"), guard.FileExists("--help"), guard.FileExists("$(here)"), guard.FileExists("here/"), guard.FileExists(dir + "/here/"), guard.FileExists("here/."), guard.FileExists("link/../here")},
		guard.Error:  {guard.FileExists(strings.Repeat("long", 100))},
	})
	below := gather.New(gather.Config{Dir: dir})
	outcomes(t, below, map[guard.Outcome][]guard.Condition{ // as .git/x where .git is a file
		guard.Passed: {guard.FileNotExists("here/below"), guard.FileNotExists("here/below/more")},
		guard.Failed: {guard.FileExists("here/below"), guard.SessionAlive("pidfile:here/web.pid")},
	})
	file := filepath.Join(dir, "here")
	outcomes(t, gather.New(gather.Config{Dir: file}), map[guard.Outcome][]guard.Condition{
		guard.Error: {guard.FileExists("x"), guard.FileNotExists("x"), guard.SessionAlive("pidfile:web.pid"), guard.BranchExists("main")},
	})
	gone := filepath.Join(dir, "unmounted")
	outcomes(t, gather.New(gather.Config{Dir: gone}), map[guard.Outcome][]guard.Condition{
		guard.Error:  {guard.FileExists("here"), guard.FileNotExists("here")}, // nobody has looked
		guard.Passed: {guard.FileNotExists(filepath.Join(gone, "here"))},
	})
	c := guard.FileNotExists("here")
	_, err := g.Wait(t.Context(), &c, gather.WaitOptions{Recheck: time.Hour, Told: func(guard.Result) { os.Remove(filepath.Join(dir, "here")) }})
	ok(t, err)
}

// sleeper is a process that sleeps until the end of the test.
func sleeper(t *testing.T) *exec.Cmd {
	cmd := exec.Command("sleep", "600")
	ok(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func startOf(t *testing.T, pid int) string {
	b := must[[]byte](t)(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))
	return strings.Fields(string(b[strings.LastIndex(string(b), ")")+1:]))[19]
}

func TestSessions_Processes(t *testing.T) {
	cmd, dir := sleeper(t), t.TempDir()
	pid := strconv.Itoa(cmd.Process.Pid)
	write := func(name, text string, at time.Time) {
		path := filepath.Join(dir, name)
		ok(t, os.WriteFile(path, []byte(text), 0o644))
		ok(t, os.Chtimes(path, at, at))
	}
	write("good.pid", pid+"\n", time.Now())
	write("reused.pid", pid, time.Now().Add(-time.Hour)) // the process began after the file
	write("garbage.pid", "web", time.Now())
	write("negative.pid", "-1", time.Now())
	write("zero.pid", "0", time.Now())
	g := gather.New(gather.Config{Sessions: &gather.Sessions{Dir: dir}})
	start := startOf(t, cmd.Process.Pid)
	outcomes(t, g, map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.SessionAlive("pid:" + pid), guard.SessionAlive("pid:" + pid + "@" + start), guard.SessionAlive("pidfile:good.pid")},
		guard.Failed: {guard.SessionAlive("pid:" + pid + "@" + start + "1"), guard.SessionAlive("pid:2147483647"), guard.SessionAlive("pidfile:reused.pid"), guard.SessionAlive("pidfile:gone.pid")},
		guard.Error: {guard.SessionAlive("pid:-1"), guard.SessionAlive("pid:0"), guard.SessionAlive("pid:x"), guard.SessionAlive("pid:1@"), guard.SessionAlive("pidfile:garbage.pid"),
			guard.SessionAlive("pidfile:negative.pid"), guard.SessionAlive("pidfile:zero.pid"), guard.SessionAlive("pidfile:.")},
	})
	ok(t, cmd.Process.Kill())
	zombie := guard.Not(guard.SessionAlive("pid:" + pid)) // nobody has waited for it
	g = gather.New(gather.Config{Sessions: &gather.Sessions{Every: 10 * time.Millisecond}})
	_, err := g.Wait(t.Context(), &zombie, gather.WaitOptions{Recheck: time.Hour})
	ok(t, err)
}

// mainlessArg has this program end its main thread, say so, and go on.
const mainlessArg = "_mainless"

func init() {
	if len(os.Args) == 2 && os.Args[1] == mainlessArg {
		runtime.LockOSThread() // this is the main thread
		go func() {
			for stat := ""; !strings.Contains(stat, ") Z "); runtime.Gosched() {
				b, _ := os.ReadFile("/proc/self/stat")
				stat = string(b)
			}
			fmt.Println("it has ended")
			<-time.After(time.Minute)
			os.Exit(1)
		}()
		_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
	}
}

// A process goes on after its main thread has ended, although the system then calls it a zombie.
func TestSessions_Headless(t *testing.T) {
	cmd := exec.Command(must[string](t)(os.Executable()), mainlessArg)
	out := must[io.ReadCloser](t)(cmd.StdoutPipe())
	ok(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	must[string](t)(bufio.NewReader(out).ReadString('\n'))
	alive := guard.SessionAlive(fmt.Sprint("pid:", cmd.Process.Pid))
	g := gather.New(gather.Config{Sessions: &gather.Sessions{Every: 10 * time.Millisecond}})
	outcomes(t, g, map[guard.Outcome][]guard.Condition{guard.Passed: {alive}})
	ok(t, cmd.Process.Kill())
	ended := guard.Not(alive)
	_, err := g.Wait(t.Context(), &ended, gather.WaitOptions{Recheck: time.Hour})
	ok(t, err)
}

// thread is the number of one that is not the first of this program, and lasts until the end of the test.
func thread(t *testing.T) int {
	ids, end := make(chan int), make(chan struct{})
	t.Cleanup(func() { close(end) })
	for {
		go func() {
			runtime.LockOSThread() // the next gets another
			defer runtime.UnlockOSThread()
			ids <- syscall.Gettid()
			<-end
		}()
		if id := <-ids; id != os.Getpid() {
			return id
		}
	}
}

// The number of a thread is none of a process, though the system tells of both in the same way.
func TestSessions_Thread(t *testing.T) {
	id, dir := thread(t), t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "web.pid"), []byte(strconv.Itoa(id)), 0o644))
	outcomes(t, gather.New(gather.Config{Sessions: &gather.Sessions{Dir: dir}}), map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.SessionAlive(fmt.Sprint("pid:", os.Getpid()))},
		guard.Failed: {guard.SessionAlive(fmt.Sprint("pid:", id)), guard.SessionAlive("pidfile:web.pid")},
	})
}

func TestSessions_Tmux(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	tmux := func(args ...string) error {
		return exec.Command("tmux", append([]string{"-S", socket}, args...)...).Run()
	}
	g := gather.New(gather.Config{Sessions: &gather.Sessions{Socket: socket}})
	none := map[guard.Outcome][]guard.Condition{guard.Failed: {guard.SessionAlive("build")}}
	outcomes(t, g, none) // no tmux at all
	ok(t, tmux("new-session", "-d", "-s", "build", "sleep 600"))
	t.Cleanup(func() { _ = tmux("kill-server") })
	outcomes(t, g, map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.SessionAlive("build"), guard.SessionAlive("tmux:build")},
		guard.Failed: {guard.SessionAlive("buil"), guard.SessionAlive("tmux:bui"), guard.SessionAlive("-V")},
		guard.Error:  {guard.SessionAlive("build:0"), guard.SessionAlive("b*"), guard.SessionAlive("tmux:build.0")},
	})
	// A server that does not answer is not a session that is not there.
	broken := gather.New(gather.Config{Sessions: &gather.Sessions{Socket: filepath.Join(socket, "below")}})
	outcomes(t, broken, map[guard.Outcome][]guard.Condition{guard.Error: {guard.SessionAlive("build")}})
	missing := gather.New(gather.Config{Sessions: &gather.Sessions{Tmux: "no-such-tmux"}})
	outcomes(t, missing, map[guard.Outcome][]guard.Condition{guard.Error: {guard.SessionAlive("build")}})
}

func TestCommands(t *testing.T) {
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "talks"), []byte("#!/bin/sh\necho first\necho the end >&2\nexit $1\n"), 0o755))
	talks := filepath.Join(dir, "talks")
	g := gather.New(gather.Config{Commands: &gather.Commands{Named: map[string][]string{"named one": {"sh", "-c", "exit 0"}}}})
	outcomes(t, g, map[guard.Outcome][]guard.Condition{
		guard.Passed: {guard.CustomCheck("true", ""), guard.CustomCheck("named one", ""), guard.CustomCheck("test -d "+dir, ""), guard.CustomCheck(talks+" 0", "")},
		guard.Failed: {guard.CustomCheck("false", ""), guard.CustomCheck(talks+" 1", "")},
		guard.Error:  {guard.CustomCheck(talks+" 2", ""), guard.CustomCheck("no-such-program", ""), guard.CustomCheck("-x", ""), guard.CustomCheck(dir, "")},
	})
	c := guard.CustomCheck(talks+" 2", "")
	if r := g.Evaluate(t.Context(), &c); !strings.Contains(r.Reasons[0].Got, "exit code 2: the end") {
		t.Errorf("the reason is %q", r.Reasons[0].Got)
	}
	c = guard.CustomCheck(talks+" 1", "")
	if r := g.Evaluate(t.Context(), &c); !strings.Contains(r.Reasons[0].Got, "the end") {
		t.Errorf("the reason is %q", r.Reasons[0].Got)
	}
	only := gather.New(gather.Config{Commands: &gather.Commands{OnlyNamed: true}})
	outcomes(t, only, map[guard.Outcome][]guard.Condition{guard.Error: {guard.CustomCheck("true", "")}})
}

// Text never becomes shell, unless a shell was asked for.
func TestCommands_NoShell(t *testing.T) {
	dir := t.TempDir()
	evil := filepath.Join(dir, "evil")
	g := gather.New(gather.Config{Commands: &gather.Commands{}})
	for _, text := range []string{"true; touch " + evil, "true && touch " + evil, "touch `echo " + evil + "`", "true $(touch " + evil + ")", "echo x > " + evil, "true | tee " + evil, "true & touch " + evil, "touch " + dir + "/evi?"} {
		c := guard.CustomCheck(text, "")
		if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Error {
			t.Errorf("%s: %s", text, r)
		}
	}
	if list := must[[]os.DirEntry](t)(os.ReadDir(dir)); len(list) > 0 {
		t.Errorf("the shell made %v", list)
	}
	shell := gather.New(gather.Config{Commands: &gather.Commands{Shell: true}})
	c := guard.CustomCheck("true && touch "+evil, "")
	if r := shell.Evaluate(t.Context(), &c); r.Outcome != guard.Passed {
		t.Error(r)
	}
}

// A command that never ends is ended with its whole group; one that leaves something in
// the background, or says too much, does not keep the answer waiting.
func TestCommands_NeverEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	never := func(text string, timeout time.Duration) {
		t.Helper()
		g := gather.New(gather.Config{Commands: &gather.Commands{Shell: true, Timeout: timeout}})
		c, began := guard.CustomCheck(text, ""), time.Now()
		r := g.Evaluate(t.Context(), &c)
		if r.Outcome != guard.Error || !strings.Contains(r.Reasons[0].Got, "did not end in time") || time.Since(began) > timeout+8*time.Second {
			t.Errorf("%s: %s after %s", text, r, time.Since(began))
		}
	}
	never("while :; do echo loud; done", 300*time.Millisecond)
	never("trap '' TERM; sleep 600", 300*time.Millisecond)
	for timeout, begun := 300*time.Millisecond, false; !begun && !t.Failed(); timeout *= 2 { // a busy machine may not have begun it by then
		never("echo working; sleep 600 & echo $! > "+file+"; wait", timeout)
		text, _ := os.ReadFile(file)
		begun = strings.HasSuffix(string(text), "\n")
	}
	pid := strings.TrimSpace(string(must[[]byte](t)(os.ReadFile(file))))
	gone := guard.Not(guard.SessionAlive("pid:" + pid))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := gather.New(gather.Config{Sessions: &gather.Sessions{Every: 10 * time.Millisecond}}).Wait(ctx, &gone, gather.WaitOptions{})
	ok(t, err) // its child went with it
	g := gather.New(gather.Config{Commands: &gather.Commands{Shell: true}})
	daemon := guard.CustomCheck("setsid sleep 5 & exit 0", "")
	if r := g.Evaluate(t.Context(), &daemon); r.Outcome != guard.Passed {
		t.Errorf("a command that leaves a daemon: %s", r)
	}
}

// What a command left in its group when it had ended goes with it.
func TestCommands_Leaves(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	g := gather.New(gather.Config{Commands: &gather.Commands{Shell: true}})
	c := guard.CustomCheck("sleep 60 >/dev/null 2>&1 & echo $! > "+file, "")
	if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Passed {
		t.Fatal(r)
	}
	pid := strings.TrimSpace(string(must[[]byte](t)(os.ReadFile(file))))
	gone := guard.Not(guard.SessionAlive("pid:" + pid))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := gather.New(gather.Config{Sessions: &gather.Sessions{Every: 10 * time.Millisecond}}).Wait(ctx, &gone, gather.WaitOptions{})
	ok(t, err)
}

// A command does not see what is secret in the environment.
func TestCommands_Environment(t *testing.T) {
	t.Setenv("HOLDFAST_SECRET", "1")
	g := gather.New(gather.Config{Commands: &gather.Commands{Shell: true}})
	c := guard.CustomCheck("test -z \"$HOLDFAST_SECRET\"", "")
	if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Passed {
		t.Error(r)
	}
}

// Commands that hang keep no other from being run. These hang until it was, so that the test need not wait for their end.
func TestCommands_ManyHang(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	commands := &gather.Commands{Shell: true, Timeout: time.Minute}
	g := gather.New(gather.Config{Sources: map[guard.Source]gather.Source{guard.SourceCommand: commands}, Timeout: time.Minute})
	var all []guard.Condition
	for i := range 20 {
		all = append(all, guard.CustomCheck(fmt.Sprintf("until test -e %s; do sleep 0.2; done; test %d = -1", ran, i), ""))
	}
	c := guard.Any(append(all, guard.CustomCheck("touch "+ran, ""))...)
	if r := g.Evaluate(t.Context(), &c); r.Outcome != guard.Passed {
		t.Error(r)
	}
}

// Files, pid files and repositories that vanish while somebody waits are told, and waited for until they are back.
func TestWait_FilesVanish(t *testing.T) {
	r := newRepo(t)
	moved := r.dir + ".moved"
	t.Cleanup(func() { os.RemoveAll(moved) })
	g := gather.New(gather.Config{Dir: r.dir, Git: &gather.Git{Dir: r.dir, Every: 20 * time.Millisecond}})
	c := guard.All(guard.BranchExists("done"), guard.FileExists("done"))
	seen := map[guard.Outcome]bool{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	last, err := g.Wait(ctx, &c, gather.WaitOptions{Recheck: time.Hour, Told: func(res guard.Result) {
		switch first := !seen[res.Outcome]; {
		case res.Outcome == guard.Failed && first && !seen[guard.Error]:
			ok(t, os.Rename(r.dir, moved))
		case res.Outcome == guard.Error && first && strings.Contains(res.String(), "the directory that relative paths begin in"):
			ok(t, os.Rename(moved, r.dir))
			r.commit("done", "it is")
			r.git("branch", "done")
		default:
			return
		}
		seen[res.Outcome] = true
	}})
	if err != nil || last.Outcome != guard.Passed || !seen[guard.Failed] || !seen[guard.Error] {
		t.Errorf("%s, %v; seen %v", last, err, seen)
	}
}

package cli_test

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/services"
)

// node is a serve process.
type node struct {
	t     *testing.T
	args  []string
	cmd   *exec.Cmd
	says  io.Writer // beside the test's own output
	plays string    // the program; "": holdfast
}

// start runs the node, waits until it serves, and returns how it greets.
func (n *node) start() (greeting string) {
	n.t.Helper()
	n.cmd = exec.Command(cmp.Or(n.plays, "holdfast"), n.args...)
	n.cmd.Env = append(n.cmd.Environ(), "XDG_CONFIG_HOME="+n.t.TempDir())
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	n.cmd.Stderr = n.t.Output()
	if n.says != nil {
		n.cmd.Stderr = io.MultiWriter(n.t.Output(), n.says)
	}
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	for lines := bufio.NewReader(out); !strings.Contains(greeting, "Stop it with"); {
		line, err := lines.ReadString('\n')
		if greeting += line; err != nil || !strings.Contains(greeting, "serves on") {
			n.t.Fatalf("the node says %q, %v", greeting, err)
		}
	}
	return greeting
}

func (n *node) signal(s syscall.Signal) error {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
	return n.cmd.Wait()
}

// does runs a command that has to succeed and returns what it says.
func does(t *testing.T, url string, args ...string) string {
	t.Helper()
	cmd := program(t, t.TempDir(), append([]string{"--url", url}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("holdfast %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// A node without flags but its places serves all commands, stops cleanly, and
// goes on where it was.
func TestServe(t *testing.T) {
	addr := services.Addr(t)
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(t.TempDir(), "d"), "--listen", addr}}
	n.start()
	url := "holdfast://" + addr
	does(t, url, "counter", "add", "orders", "41")
	if out := does(t, url, "lock", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN"); out == "" || out == "0" {
		t.Errorf("the token is %q", out)
	}
	if out := does(t, url, "status"); !strings.Contains(out, "leads") {
		t.Errorf("status says %s", out)
	}
	if err := n.signal(syscall.SIGTERM); err != nil {
		t.Errorf("a node that was asked to stop ends with %v", err)
	}
	n.start()
	if out := does(t, url, "counter", "add", "orders", "1"); out != "42" {
		t.Errorf("counted %s after a restart, want 42", out)
	}
	if err := n.signal(syscall.SIGINT); err != nil {
		t.Errorf("a node that was interrupted ends with %v", err)
	}
}

// A limiter of a server counts for all programs, and outlives a restart.
func TestServe_Limit(t *testing.T) {
	addr := services.Addr(t)
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(t.TempDir(), "d"), "--listen", addr}}
	n.start()
	url := "holdfast://" + addr
	refused := func(when string) {
		t.Helper()
		cmd := program(t, t.TempDir(), "--url", url, "limit", "ask", "mails", "alice")
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "refused by the rate") {
			t.Errorf("%s: %v: %s", when, cmd.ProcessState, out)
		}
	}
	does(t, url, "limit", "ask", "mails", "alice", "--rate", "2/1h")
	does(t, url, "limit", "ask", "mails", "alice")
	refused("the third of 2")
	if err := n.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	n.start()
	refused("after a restart")
	if out := does(t, url, "limit", "peek", "mails", "bob"); out != "2 of 2 left" {
		t.Errorf("another key has %s", out)
	}
	does(t, url, "limit", "reset", "mails", "alice")
	if out := does(t, url, "limit", "ask", "mails", "alice"); out != "1 of 2 left" {
		t.Errorf("after a reset there are %s", out)
	}
	does(t, url, "limit", "set", "mails", "--rate", "5/1h")
	if out := does(t, url, "limit", "ask", "mails", "alice"); out != "4 of 5 left" {
		t.Errorf("at the new rate there are %s", out)
	}
	does(t, url, "limit", "delete", "mails")
	if err := n.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// Refusals say where to look: a change of the members that does not fit points at the group, and a
// backup that cannot be written has not been answered by "no".
func TestOperatorHints(t *testing.T) {
	addr, dir := services.Addr(t), t.TempDir()
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, "d"), "--listen", addr}}
	n.start()
	defer n.signal(syscall.SIGTERM)
	for _, c := range []struct {
		command string
		code    int
		hint    string
	}{
		{"member unfreeze", 1, "hint: holdfast status and holdfast member ls"},
		{"snapshot save " + filepath.Join(dir, "none", "b"), 125, "hint: name a file in a directory that is there"},
	} {
		cmd := program(t, dir, append([]string{"--url", "holdfast://" + addr}, strings.Fields(c.command)...)...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.hint) {
			t.Errorf("%s: exit code %d, %s", c.command, code, out)
		}
	}
}

// A backup of a running node is checked and restored offline.
func TestSnapshot(t *testing.T) {
	addr, dir := services.Addr(t), t.TempDir()
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, "d"), "--listen", addr}}
	n.start()
	url, backup, anew := "holdfast://"+addr, filepath.Join(dir, "b"), filepath.Join(dir, "new")
	does(t, url, "kv", "put", "k", "v")
	does(t, url, "snapshot", "save", backup)
	does(t, url, "snapshot", "verify", backup)
	elsewhere, err := os.MkdirTemp("/dev/shm", "holdfast-test-*") // another file system than that of the working directory
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(elsewhere)
	does(t, url, "snapshot", "save", filepath.Join(elsewhere, "b"))
	if files, err := os.ReadDir(elsewhere); err != nil || len(files) != 1 {
		t.Errorf("beside the backup are %v, %v", files, err)
	}
	for _, args := range [][]string{{"save", backup}, {"restore", backup, "--data", elsewhere}} {
		cmd := program(t, dir, append([]string{"--url", url, "snapshot"}, args...)...)
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 64 {
			t.Errorf("%s, where something is already: exit code %d, %s", args[0], cmd.ProcessState.ExitCode(), out)
		}
	}
	if err := n.signal(syscall.SIGKILL); err == nil {
		t.Error("a killed node ended well")
	}
	does(t, url, "snapshot", "verify", filepath.Join(dir, "d"))
	does(t, url, "snapshot", "restore", backup, "--data", anew)
	n.args[2] = anew
	n.start()
	if out := does(t, url, "kv", "get", "k"); out != "v" {
		t.Errorf("the restored key is %q", out)
	}
	_ = n.signal(syscall.SIGTERM)
}

// After a restore with --wait locks wait, and tries fail and are told for how long; so do
// restore and status. When the wait is over, the lock is granted.
func TestRestore_Wait(t *testing.T) {
	addr, dir := services.Addr(t), t.TempDir()
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, "d"), "--listen", addr}}
	n.start()
	url, backup := "holdfast://"+addr, filepath.Join(dir, "b")
	does(t, url, "snapshot", "save", backup)
	_ = n.signal(syscall.SIGTERM)
	restored := func(name, wait, says string) {
		t.Helper()
		if out := does(t, url, "snapshot", "restore", backup, "--data", filepath.Join(dir, name), "--wait", wait); !strings.Contains(out, says) {
			t.Errorf("restore says %s", out)
		}
		n.args[2] = filepath.Join(dir, name)
		n.start()
		versions(t, url, 1, newest)
	}
	restored("waits", "1h", "for 1h0m0s from its first start")
	if out := does(t, url, "status"); !strings.Contains(out, "grants nothing for another ") {
		t.Errorf("status says\n%s", out)
	}
	if out, err := program(t, dir, "--url", url, "lock", "--try", "m", "--", "true").CombinedOutput(); err == nil || !strings.Contains(string(out), "grants nothing for another ") {
		t.Errorf("a try says %v, %s", err, out)
	}
	if out, err := program(t, dir, "--url", url, "lock", "--wait", "10ms", "m", "--", "true").CombinedOutput(); err == nil {
		t.Errorf("a wait that is too short says %s", out)
	}
	_ = n.signal(syscall.SIGTERM)
	restored("waited", "5s", "for 5s from its first start")
	defer n.signal(syscall.SIGTERM)
	does(t, url, "lock", "m", "--", "true")
	does(t, url, "lock", "--try", "m", "--", "true")
	if out := does(t, url, "status"); strings.Contains(out, "grants nothing") {
		t.Errorf("after the wait status says\n%s", out)
	}
}

// What was done after a time is left out by a restore until then.
func TestRestoreUntilTime(t *testing.T) {
	addr, dir := services.Addr(t), t.TempDir()
	old, anew := filepath.Join(dir, "d"), filepath.Join(dir, "new")
	n := &node{t: t, args: []string{"serve", "--data", old, "--listen", addr}}
	n.start()
	url := "holdfast://" + addr
	does(t, url, "kv", "put", "k", "right")
	good := time.Now()
	for time.Since(good) < 4*time.Second { // a later second, also by the date of the last tick of a node that a busy machine held up
		does(t, url, "kv", "put", "other", "v")
	}
	does(t, url, "kv", "put", "k", "mistake")
	_ = n.signal(syscall.SIGTERM)
	for _, until := range []string{"yesterday", "0", "-1", "2026-11-16 21:30:00", "1960-01-01T00:00:00Z"} {
		out, err := program(t, dir, "snapshot", "restore", old, "--until", until, "--data", anew).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "neither a revision") {
			t.Errorf("--until %s: %v: %s", until, err, out)
		}
	}
	for until, want := range map[string]string{"2020-01-01T00:00:00Z": "restore a backup from before", "1": "restore a backup from before"} {
		out, err := program(t, dir, "snapshot", "restore", old, "--until", until, "--data", anew).CombinedOutput()
		if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 64 || !strings.Contains(string(out), want) {
			t.Errorf("--until %s is before all: %v: %s", until, err, out)
		}
	}
	told := does(t, url, "--json", "snapshot", "restore", old, "--until", good.Format(time.RFC3339), "--data", anew)
	if !strings.Contains(told, `"from_time"`) {
		t.Errorf("it tells %s", told)
	}
	n.args[2] = anew
	n.start()
	if out := does(t, url, "kv", "get", "k"); out != "right" {
		t.Errorf("the restored key is %q", out)
	}
	_ = n.signal(syscall.SIGTERM)
}

// Three processes are a group: it goes on when the leader is killed, takes it
// back, and takes a fourth.
func TestGroup(t *testing.T) {
	dir := t.TempDir()
	nodes, members, hosts := group(t, dir, 3)
	for _, n := range nodes {
		n.start()
		t.Cleanup(func() { _ = n.cmd.Process.Kill(); _ = n.cmd.Wait() })
	}
	url := "holdfast://" + strings.Join(hosts, ",")
	does(t, url, "counter", "add", "n", "1")
	leader := leaderOf(t, url, hosts)
	if err := nodes[leader].signal(syscall.SIGKILL); err == nil {
		t.Error("a killed node ended well")
	}
	if out := does(t, url, "counter", "add", "n", "1"); out != "2" {
		t.Errorf("counted %s after the leader was killed, want 2", out)
	}
	nodes[leader].start()
	peer, client := services.Addr(t), services.Addr(t)
	fourth := &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, "4"), "--id", "4", "--peer", peer, "--listen", client, "--join", "--members", members}}
	fourth.start()
	t.Cleanup(func() { _ = fourth.cmd.Process.Kill(); _ = fourth.cmd.Wait() })
	does(t, url, "member", "add", "4", peer, client)
	if out := does(t, url, "member", "ls"); !strings.Contains(out, client) {
		t.Errorf("the members are %s", out)
	}
	if out := does(t, url, "__complete", "member", "promote", ""); !strings.Contains(out, "4\t"+client) || !strings.Contains(out, "1\t"+hosts[0]) {
		t.Errorf("the numbers are completed as %s", out)
	}
}

// group says how to start n nodes.
func group(t *testing.T, dir string, n int) (nodes []*node, members string, hosts []string) {
	var peers, list []string
	for i := range n {
		peers, hosts = append(peers, services.Addr(t)), append(hosts, services.Addr(t))
		list = append(list, fmt.Sprintf("%d=%s/%s", i+1, peers[i], hosts[i]))
	}
	members = strings.Join(list, ",")
	for i := range n {
		nodes = append(nodes, &node{t: t, args: []string{
			"serve", "--data", filepath.Join(dir, fmt.Sprint(i+1)), "--id", fmt.Sprint(i + 1), "--peer", peers[i], "--listen", hosts[i], "--members", members,
		}})
	}
	return nodes, members, hosts
}

// leaderOf is the place of the leader's address, waited for.
func leaderOf(t *testing.T, url string, hosts []string) int {
	for t.Context().Err() == nil {
		for line := range strings.Lines(does(t, url, "status")) {
			for i, host := range hosts {
				if strings.HasPrefix(line, host+" ") && strings.Contains(line, " leads ") {
					return i
				}
			}
		}
	}
	t.Fatal("no leader")
	return 0
}

// Limits come from flags, from the environment and from the file, and a client
// that meets one is told which.
func TestServeWithLimits(t *testing.T) {
	addr := services.Addr(t)
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("max-keys: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOLDFAST_MAX_NAMES", "1")
	n := &node{t: t, args: []string{"serve", "--data", filepath.Join(t.TempDir(), "d"), "--listen", addr, "--max-waiters", "1", "--config", config}}
	n.start()
	url := "holdfast://" + addr
	does(t, url, "kv", "put", "k", "v")
	does(t, url, "counter", "add", "n", "1")
	for _, c := range []struct{ args, want string }{{"kv put l v", "--max-keys"}, {"counter add m 1", "--max-names"}, {"lock x -- true", "--max-names"}} {
		out, err := program(t, t.TempDir(), append([]string{"--url", url}, strings.Fields(c.args)...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("holdfast %s: %v: %s, want a word of %s", c.args, err, out, c.want)
		}
	}
	if err := n.signal(syscall.SIGTERM); err != nil {
		t.Errorf("the node ends with %v", err)
	}
}

// A group is founded by files alone; the environment goes before the file, and a flag
// before both.
func TestServe_Settings(t *testing.T) {
	dir, addr, peer := t.TempDir(), services.Addr(t), services.Addr(t)
	config := filepath.Join(dir, "node.yaml")
	write(t, config, "data: "+filepath.Join(dir, "of-the-file")+"\nlisten: 127.0.0.1:1\nid: 3\npeer: "+peer+"\nmembers: 3="+peer+"/"+addr+"\n")
	t.Setenv("HOLDFAST_LISTEN", addr)
	t.Setenv("HOLDFAST_DATA", filepath.Join(dir, "of-the-environment"))
	n := &node{t: t, args: []string{"serve", "--config", config, "--data", filepath.Join(dir, "of-the-flag")}}
	if greeting := n.start(); !strings.Contains(greeting, addr) || !strings.Contains(greeting, "of-the-flag") {
		t.Errorf("the node greets with %s", greeting)
	}
	defer n.signal(syscall.SIGTERM)
	does(t, "holdfast://"+addr, "counter", "add", "n") // waits for its leader
	if members := does(t, "holdfast://"+addr, "member", "ls"); !strings.Contains(members, "3     votes  "+peer+"  "+addr) {
		t.Errorf("the group is\n%s", members)
	}
	second := program(t, dir, "serve", "--config", config, "--data", filepath.Join(dir, "other"), "--listen", services.Addr(t))
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), "--peer names another address") {
		t.Errorf("a second node on the same peer address: %v, %s", err, out)
	}
}

package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/services"
)

// lines are what a process says, one by one.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}

// await waits until a process has said something.
func (l lines) await(t *testing.T, text string) {
	t.Helper()
	for timeout := time.After(time.Minute); ; {
		select {
		case line := <-l:
			if strings.Contains(line, text) {
				return
			}
		case <-timeout:
			t.Fatalf("nobody says %q", text)
		}
	}
}

// counted adds to a counter until it is stopped, and returns how often that was
// answered, and how often not.
func counted(t *testing.T, url string) (stop func() (done, failed int64)) {
	space, err := holdfast.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	var done, failed atomic.Int64
	longest := time.Duration(0)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			began := time.Now()
			if _, err := space.Counter("load").Add(t.Context(), 1); err != nil {
				failed.Add(1)
			} else {
				done.Add(1)
			}
			longest = max(longest, time.Since(began))
		}
	}()
	return func() (int64, int64) {
		cancel()
		<-ended
		paused(t, longest)
		space.Close()
		return done.Load(), failed.Load()
	}
}

// Bits flip in the middle of the log of one node of three, of the leader too, under load:
// the node, started as always, says so, moves its files aside, is let in under another
// number and votes, without an operator. No call fails.
func TestGroup_DamagedFiles(t *testing.T) {
	dir := t.TempDir()
	nodes, _, hosts := group(t, dir, 3)
	runs(t, nodes...)
	url := "holdfast://" + strings.Join(hosts, ",")
	does(t, url, "counter", "add", "n", "1")
	stop := counted(t, url)
	for round := range 2 {
		i := leaderOf(t, url, hosts)
		if round == 0 {
			i = (i + 1) % 3
		}
		began, says := time.Now(), make(lines, 1000)
		_ = nodes[i].signal(syscall.SIGKILL)
		flip(t, filepath.Join(dir, fmt.Sprint(i+1)))
		nodes[i].says = says
		nodes[i].start()
		says.await(t, "moved aside")
		for out := ""; strings.Count(out, "votes") != 3 || !strings.Contains(out, fmt.Sprintf("\n%d ", 4+round)); {
			b, _ := program(t, dir, "--url", url, "member", "ls").CombinedOutput() // fails while nobody leads
			if out = string(b); time.Since(began) > time.Minute {
				t.Fatalf("after a minute the members are\n%s", out)
			}
		}
		t.Logf("proof: the log of one node of three was damaged under load: full strength after %s", time.Since(began).Round(time.Millisecond))
	}
	done, failed := stop()
	if got := does(t, url, "counter", "get", "load"); got != fmt.Sprint(done) || failed > 0 {
		t.Errorf("the counter is %s, after %d that were answered and %d that failed", got, done, failed)
	}
}

// flip turns bits around in the middle of the log in dir.
func flip(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "log-*"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	b, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	middle := len(bytes.TrimRight(b, "\x00")) / 2
	for i := range 8 {
		b[middle+i] ^= 0xff
	}
	if err := os.WriteFile(logs[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A disk is lost under load: the node, started as always, is let in under another
// number and votes, without an operator. With two lost disks nobody votes, and what
// is left of the third becomes a new cluster, as docs/operate.md says.
func TestGroup_LostDisks(t *testing.T) {
	dir := t.TempDir()
	nodes, _, hosts := group(t, dir, 3)
	for _, n := range nodes {
		n.start()
		t.Cleanup(func() { _ = n.cmd.Process.Kill(); _ = n.cmd.Wait() })
	}
	data := func(i int) string { return filepath.Join(dir, fmt.Sprint(i+1)) }
	lose := func(i int) {
		_ = nodes[i].signal(syscall.SIGKILL)
		if err := os.RemoveAll(data(i)); err != nil {
			t.Fatal(err)
		}
	}
	url := "holdfast://" + strings.Join(hosts, ",")
	does(t, url, "counter", "add", "n", "1")
	stop := counted(t, url)
	for round := range 3 { // the leader is among them, or becomes it
		began := time.Now()
		lose(round)
		nodes[round].start()
		for out := ""; strings.Count(out, "votes") != 3 || !strings.Contains(out, fmt.Sprintf("\n%d ", 4+round)); {
			b, _ := program(t, dir, "--url", url, "member", "ls").CombinedOutput() // fails while nobody leads
			if out = string(b); time.Since(began) > time.Minute {
				st, _ := program(t, dir, "--url", url, "status").CombinedOutput()
				t.Fatalf("after a minute the members are\n%s\nand the nodes\n%s", out, st)
			}
		}
		t.Logf("proof: node %d of three lost its disk under load: full strength after %s", round+1, time.Since(began).Round(time.Millisecond))
	}
	done, failed := stop()
	if got := does(t, url, "counter", "get", "load"); got != fmt.Sprint(done) || failed > 0 {
		t.Errorf("the counter is %s, after %d that were answered and %d that failed", got, done, failed)
	}
	for _, n := range nodes {
		_ = n.signal(syscall.SIGKILL)
	}
	for i := range 2 {
		if err := os.RemoveAll(data(i)); err != nil {
			t.Fatal(err)
		}
	}
	nodes[2].start()
	for i := range 2 {
		says := make(lines, 100)
		nodes[i].says = says
		nodes[i].start()
		says.await(t, "does not vote")
	}
	out, _ := program(t, t.TempDir(), "--url", url, "status").CombinedOutput()
	if strings.Contains(string(out), "leads") {
		t.Errorf("somebody leads:\n%s", out)
	}
	for _, n := range nodes {
		_ = n.signal(syscall.SIGKILL)
	}
	anew := filepath.Join(dir, "anew")
	does(t, url, "snapshot", "restore", data(2), "--force-new-cluster", "--data", anew)
	alone := &node{t: t, args: []string{"serve", "--data", anew, "--listen", hosts[2]}}
	alone.start()
	t.Cleanup(func() { _ = alone.cmd.Process.Kill(); _ = alone.cmd.Wait() })
	if got := does(t, "holdfast://"+hosts[2], "counter", "get", "load"); got != fmt.Sprint(done) {
		t.Errorf("in the new cluster the counter is %s, want %d", got, done)
	}
}

// A node with damaged files and --no-replace does not start, and is told what it can do about that, not what its command line has already.
func TestGroup_DamagedWithoutReplacing(t *testing.T) {
	dir := t.TempDir()
	nodes, _, hosts := group(t, dir, 3)
	runs(t, nodes...)
	does(t, "holdfast://"+strings.Join(hosts, ","), "counter", "add", "n", "1")
	_ = nodes[1].signal(syscall.SIGKILL)
	flip(t, nodes[1].args[2])
	out, err := program(t, dir, append(nodes[1].args, "--no-replace")...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "damaged") || !strings.Contains(string(out), "--no-replace keeps the node") {
		t.Errorf("with --no-replace it says %v, %s", err, out)
	}
	says := make(lines, 1000)
	nodes[1].says = says
	nodes[1].start()
	says.await(t, "moved aside") // as the hint says
}

// The directory of a node of three is copied under load while the node runs: the copy does not start, be the node there or killed, and
// tells its operator why; that of the node is told where the copy is. By the word of the operator that the node had stopped before the copy was made it goes
// on there, and the original that comes back all the same stops. No call fails, and nothing is lost.
func TestGroup_CopiedDirectory(t *testing.T) {
	dir := t.TempDir()
	nodes, members, hosts := group(t, dir, 3)
	says := make(lines, 1000)
	nodes[2].says = says
	runs(t, nodes...)
	url := "holdfast://" + strings.Join(hosts, ",")
	does(t, url, "counter", "add", "n", "1")
	stop := counted(t, url)
	elsewhere := func(name string) *node {
		to := filepath.Join(dir, name)
		if out, err := exec.Command("cp", "-a", filepath.Join(dir, "3"), to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return &node{t: t, args: []string{"serve", "--data", to, "--id", "3", "--peer", services.Addr(t), "--listen", services.Addr(t), "--members", members}}
	}
	refused := func(n *node, texts ...string) {
		t.Helper()
		out, err := program(t, dir, n.args...).CombinedOutput()
		for _, text := range texts {
			if err == nil || !strings.Contains(string(out), text) {
				t.Errorf("the copy says %v, %s; want %q", err, out, text)
			}
		}
	}
	copied := elsewhere("copy")
	refused(copied, "runs with the same directory", filepath.Join(dir, "3")+" on ", "remove "+filepath.Join(dir, "copy"))
	says.await(t, "with a copy of the directory of this node, in "+filepath.Join(dir, "copy"))
	_ = nodes[2].signal(syscall.SIGKILL)
	refused(copied, "where node 3 ran, or was killed", "--moved")
	moved := elsewhere("moved")
	moved.args = append(moved.args, "--moved")
	runs(t, moved)
	out, err := program(t, dir, nodes[2].args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "runs with the same directory, as node 3, in "+filepath.Join(dir, "moved")) {
		t.Errorf("the original says %v, %s", err, out)
	}
	done, failed := stop()
	if got := does(t, url, "counter", "get", "load"); got != fmt.Sprint(done) || failed > 0 {
		t.Errorf("the counter is %s, after %d that were answered and %d that failed", got, done, failed)
	}
}

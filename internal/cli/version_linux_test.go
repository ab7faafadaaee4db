package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/services"
)

// before and newest are the versions of the two programs.
const before, newest = core.EntryVersion - 1, core.EntryVersion

// runs starts nodes that end with the test.
func runs(t *testing.T, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		n.start()
		t.Cleanup(func() { _ = n.cmd.Process.Kill(); _ = n.cmd.Wait() })
	}
}

// versions waits until all nodes that url names, and that the test runs, say that the
// group is of a version.
func versions(t *testing.T, url string, nodes, version int) {
	t.Helper()
	want := fmt.Sprintf(`"version":%d,`, version)
	for began := time.Now(); ; <-time.After(50 * time.Millisecond) {
		out, _ := program(t, t.TempDir(), "--json", "--url", url, "status").CombinedOutput() // fails while a node is away
		if strings.Count(string(out), want) == nodes {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("after a minute not all of %d nodes have version %d:\n%s", nodes, version, out)
		}
	}
}

// Three nodes are upgraded one after the other under load: the group stays at its
// version until the last of them supports the next, so that the first two can go back.
// After the raise none can: it is refused, and both sides say which node to upgrade.
// No call fails.
func TestUpgrade_Rolling(t *testing.T) {
	dir := t.TempDir()
	nodes, _, hosts := group(t, dir, 3)
	says := make(lines, 1000)
	for _, n := range nodes {
		n.plays, n.says = "holdfast-before", says
	}
	runs(t, nodes...)
	url := "holdfast://" + strings.Join(hosts, ",")
	does(t, url, "counter", "add", "n", "1")
	versions(t, url, 3, before)
	stop := counted(t, url)
	change := func(i int, plays string) {
		t.Helper()
		began := time.Now()
		_ = nodes[i].signal(syscall.SIGTERM)
		nodes[i].plays = plays
		nodes[i].start()
		does(t, url, "counter", "add", "n", "1")
		t.Logf("proof: node %d plays %s under load: a call is answered %s after the stop", i+1, plays, time.Since(began).Round(time.Millisecond))
	}
	for _, i := range []int{0, 1} {
		change(i, "holdfast")
	}
	versions(t, url, 3, before)
	for _, i := range []int{1, 0} {
		change(i, "holdfast-before")
	}
	versions(t, url, 3, before)
	for _, i := range []int{2, 0, 1} {
		change(i, "holdfast")
	}
	versions(t, url, 3, newest)
	done, failed := stop()
	if got := does(t, url, "counter", "get", "load"); got != fmt.Sprint(done) || failed > 0 {
		t.Errorf("the counter is %s, after %d that were answered and %d that failed", got, done, failed)
	}
	refusedAfterRaise(t, nodes, says)
}

// refusedAfterRaise goes back with node 3 of a group that has been raised.
func refusedAfterRaise(t *testing.T, nodes []*node, says lines) {
	_ = nodes[2].signal(syscall.SIGTERM)
	cmd := exec.Command("holdfast-before", nodes[2].args...)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), fmt.Sprintf("is of version %d, and node 3 supports versions %d to %d: upgrade this node", newest, core.BaseVersion, before)) {
		t.Errorf("the program of before says %v, %s", err, out)
	}
	if err := os.RemoveAll(nodes[2].args[2]); err != nil { // so that only the others know, and let it in as node 4
		t.Fatal(err)
	}
	cmd = exec.Command("holdfast-before", nodes[2].args...)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "upgrade node 4") {
		t.Errorf("the program of before joins and says %v, %s", err, out)
	}
	says.await(t, fmt.Sprintf("the group is of version %d, and node 4 supports versions %d to %d: upgrade node 4", newest, core.BaseVersion, before))
}

// unpacked is a directory of testdata.
func unpacked(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("tar", "xzf", filepath.Join("testdata", name+".tar.gz"), "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v, %s", name, err, out)
	}
	return dir
}

// The directory of a node that a program of an earlier version left when it was killed,
// and a backup of it, are opened: what was counted, put and held is there.
func TestUpgrade_Directory(t *testing.T) {
	for _, was := range []string{"version2", "version3", "version4", "version5"} {
		t.Run(was, func(t *testing.T) { opened(t, was) })
	}
}

func opened(t *testing.T, was string) {
	dir, addr := unpacked(t, was+"/alone"), services.Addr(t)
	url := "holdfast://" + addr
	runs(t, &node{t: t, args: []string{"serve", "--data", dir, "--listen", addr}})
	if n, mode := does(t, url, "counter", "get", "n"), does(t, url, "kv", "get", "app/mode"); n != "42" || mode != "on" {
		t.Errorf("the counter is %s, and the key %s", n, mode)
	}
	if out, err := program(t, dir, "--url", url, "lock", "--try", "held", "--", "true").CombinedOutput(); err == nil || !strings.Contains(string(out), "held") {
		t.Errorf("the lock that was held is granted: %s", out)
	}
	versions(t, url, 1, newest)

	backup, anew, other := filepath.Join("testdata", was, "backup.snapshot"), filepath.Join(t.TempDir(), "anew"), services.Addr(t)
	does(t, url, "snapshot", "verify", absolute(t, backup))
	does(t, url, "snapshot", "restore", absolute(t, backup), "--data", anew)
	runs(t, &node{t: t, args: []string{"serve", "--data", anew, "--listen", other}})
	if n := does(t, "holdfast://"+other, "counter", "get", "n"); n != "41" {
		t.Errorf("in the backup the counter is %s", n)
	}
	versions(t, "holdfast://"+other, 1, newest)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	p, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// So are the directories of a group, of which one node had missed the last that was acknowledged: two of them serve what it
// held, in its version, which is raised when all its nodes are back.
func TestUpgrade_Directories(t *testing.T) {
	for _, was := range []int{2, 5} {
		t.Run(fmt.Sprintf("version%d", was), func(t *testing.T) { groupOpened(t, was) })
	}
}

func groupOpened(t *testing.T, was int) {
	dir := unpacked(t, fmt.Sprintf("version%d/group", was))
	var nodes []*node
	var hosts []string
	for i := 1; i <= 3; i++ { // where they were
		host := fmt.Sprintf("127.77.%d.%d", was, i)
		hosts = append(hosts, host+":7420")
		nodes = append(nodes, &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, fmt.Sprint(i)), "--peer", host + ":7421", "--listen", host + ":7420"}})
	}
	url := "holdfast://" + strings.Join(hosts, ",")
	keeps := func(count string) {
		t.Helper()
		if n, late := does(t, url, "counter", "get", "n"), does(t, url, "kv", "get", "app/late"); n != count || late != "yes" {
			t.Errorf("the counter is %s, and the key %s", n, late)
		}
		if was < 5 { // nothing was held there
			return
		}
		if out, err := program(t, dir, "--url", url, "lock", "--try", "held", "--", "true").CombinedOutput(); err == nil || !strings.Contains(string(out), "held") {
			t.Errorf("the lock that was held is granted: %s", out)
		}
	}
	runs(t, nodes[:2]...)
	keeps("42")
	versions(t, url, 2, was)
	runs(t, nodes[2])
	versions(t, url, 3, newest)
	does(t, url, "counter", "add", "n", "1")
	keeps("43")
}

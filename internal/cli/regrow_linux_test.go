package cli_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/services"
)

// until runs a command until it succeeds: some are refused until a node has caught up.
func until(t *testing.T, url string, args ...string) {
	t.Helper()
	out := []byte{}
	for began := time.Now(); time.Since(began) < time.Minute; {
		var err error
		if out, err = program(t, t.TempDir(), append([]string{"--url", url}, args...)...).CombinedOutput(); err == nil {
			return
		}
	}
	t.Fatalf("holdfast %s: %s", strings.Join(args, " "), out)
}

// A backup of a group becomes a cluster of one, and that a group of three, whether its
// addresses are named when it is restored or when it is started, by nodes that are told its
// number; what was saved is there, also when the restored node is gone.
func TestRestore_Regrows(t *testing.T) {
	nodes, _, hosts := group(t, t.TempDir(), 3)
	runs(t, nodes...)
	url := "holdfast://" + strings.Join(hosts, ",")
	does(t, url, "counter", "add", "n", "41")
	backup := filepath.Join(t.TempDir(), "backup.snap")
	does(t, "holdfast://"+hosts[leaderOf(t, url, hosts)], "snapshot", "save", backup)
	for name, early := range map[string]bool{"named at the restore": true, "named at the start": false} {
		dir := t.TempDir()
		var peers, clients, list []string
		for i := range 3 {
			peers, clients = append(peers, services.Addr(t)), append(clients, services.Addr(t))
			list = append(list, string(rune('1'+i))+"="+peers[i]+"/"+clients[i])
		}
		restore := []string{"--json", "snapshot", "restore", backup, "--data", filepath.Join(dir, "1")}
		if early {
			restore = append(restore, "--peer", peers[0], "--client", clients[0])
		}
		out, err := program(t, dir, restore...).Output()
		var anew struct{ Cluster, Node string }
		if err = errors.Join(err, json.Unmarshal(out, &anew)); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		regrown := []*node{{t: t, args: []string{"serve", "--data", filepath.Join(dir, "1"), "--peer", peers[0], "--listen", clients[0]}}}
		if early {
			regrown[0].args = append(regrown[0].args, "--id", anew.Node, "--cluster-id", anew.Cluster)
		}
		for i, id := range []string{"2", "3"} {
			regrown = append(regrown, &node{t: t, args: []string{"serve", "--data", filepath.Join(dir, id), "--id", id, "--join", "--cluster-id", anew.Cluster, "--peer", peers[i+1], "--listen", clients[i+1], "--members", strings.Join(list, ",")}})
		}
		runs(t, regrown...)
		one := "holdfast://" + clients[0]
		for i, id := range []string{"2", "3"} {
			until(t, one, "member", "add", id, peers[i+1], clients[i+1])
			until(t, one, "member", "promote", id)
		}
		if out := does(t, one, "member", "ls"); strings.Count(out, "votes") != 3 || !strings.Contains(out, peers[0]) {
			t.Errorf("%s: the members are\n%s", name, out)
		}
		_ = regrown[0].cmd.Process.Kill()
		_ = regrown[0].cmd.Wait()
		until(t, "holdfast://"+clients[1]+","+clients[2], "counter", "add", "n", "1")
		if got := does(t, "holdfast://"+clients[1]+","+clients[2], "counter", "get", "n"); got != "42" {
			t.Errorf("%s: without the restored node the counter is %s, want 42", name, got)
		}
		if err := os.RemoveAll(filepath.Join(dir, "1")); err != nil {
			t.Fatal(err)
		}
		lost := &node{t: t, args: append(regrown[0].args, "--id", "1", "--cluster-id", anew.Cluster, "--members", strings.Join(list, ","))}
		runs(t, lost)
		for out := ""; strings.Count(out, "votes") != 3 || !strings.Contains(out, "4 "); {
			out = does(t, "holdfast://"+clients[1]+","+clients[2], "member", "ls")
		}
	}
}

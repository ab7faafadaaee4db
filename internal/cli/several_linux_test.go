package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services"
)

// forced makes what is left in a directory a cluster of its own, and runs it.
func forced(t *testing.T, old, host string) (n *node, cluster string) {
	t.Helper()
	anew := filepath.Join(t.TempDir(), "anew")
	out, err := program(t, t.TempDir(), "--json", "snapshot", "restore", old, "--force-new-cluster", "--data", anew).Output()
	var began struct{ Cluster string }
	if err := errors.Join(err, json.Unmarshal(out, &began)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n = &node{t: t, args: []string{"serve", "--data", anew, "--listen", host, "--peer", services.Addr(t)}}
	runs(t, n)
	return n, began.Cluster
}

// Two operators, or one twice, make what is left of two nodes of three a cluster each, and the third comes back as it was: status says that
// these are several clusters, which node is of which, and what to do. Done so, they are one: the others join it, with its number.
func TestStatus_SurvivorsOfAForcedCluster(t *testing.T) {
	dir := t.TempDir()
	nodes, _, hosts := group(t, dir, 3)
	runs(t, nodes...)
	url := "holdfast://" + strings.Join(hosts, ",")
	does(t, url, "counter", "add", "n", "41")
	for _, n := range nodes {
		_ = n.signal(syscall.SIGKILL)
	}
	first, cluster := forced(t, filepath.Join(dir, "1"), hosts[0])
	second, other := forced(t, filepath.Join(dir, "2"), hosts[1])
	runs(t, nodes[2])
	cmd := program(t, dir, "--url", url, "status")
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("of three clusters status says %v", err)
	}
	for _, text := range []string{"nodes of 3 clusters", "cluster " + cluster + " at " + hosts[0], "cluster " + other + " at " + hosts[1], "cluster 1 at " + hosts[2], "hint: decide for one", "--cluster-id"} {
		if !strings.Contains(string(out), text) {
			t.Errorf("of three clusters status does not say %q:\n%s", text, out)
		}
	}
	for i, n := range []*node{second, nodes[2]} {
		_ = n.signal(syscall.SIGKILL)
		id, peer := fmt.Sprint(10+i), services.Addr(t)
		runs(t, &node{t: t, args: []string{"serve", "--data", filepath.Join(t.TempDir(), "empty"), "--id", id, "--join", "--cluster-id", cluster,
			"--members", fmt.Sprintf("1=%s/%s", first.args[len(first.args)-1], hosts[0]), "--peer", peer, "--listen", hosts[1+i]}})
		until(t, "holdfast://"+hosts[0], "member", "add", id, peer, hosts[1+i])
		until(t, "holdfast://"+hosts[0], "member", "promote", id)
	}
	if out := does(t, url, "status"); strings.Contains(out, "clusters") || strings.Count(out, "follows") != 2 {
		t.Errorf("of one cluster status says\n%s", out)
	}
}

package cli_test

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-io/holdfast/internal/services"
)

// One of two nodes moves: its new address is refused until it answers there, which it does at both while it listens at all addresses of its
// machine, and --members names it where the group has it. Then it is started at the new one alone.
func TestMoveOneOfTwoNodes(t *testing.T) {
	dir, ours := t.TempDir(), services.NewAuthority(t, "ours")
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	services.WritePair(t, ours.Issue(t, "node"), cert, key)
	nodes, members, hosts := group(t, dir, 2)
	for _, n := range nodes {
		n.args = append(n.args, "--peer-cert", cert, "--peer-key", key, "--peer-ca", ours.WriteRoots(t, dir))
	}
	runs(t, nodes...)
	url := "holdfast://" + strings.Join(hosts, ",")
	until(t, url, "counter", "add", "n", "41")
	two := nodes[1]
	peer := slices.Index(two.args, "--peer") + 1
	was := two.args[peer]
	port := was[strings.LastIndex(was, ":"):]
	now := "127.0.0.2" + port
	update := []string{"--url", url, "member", "update", "2", now, hosts[1]}
	if out, err := program(t, dir, update...).CombinedOutput(); err == nil || !strings.Contains(string(out), "new address") {
		t.Errorf("an address at which nobody answers: %v, %s", err, out)
	}
	_ = two.signal(syscall.SIGTERM)
	two.args[peer] = "0.0.0.0" + port
	runs(t, two)
	until(t, url, update[2:]...)
	_ = two.signal(syscall.SIGTERM)
	two.args[peer] = now
	two.args[slices.Index(two.args, "--members")+1] = strings.Replace(members, "2="+was, "2="+now, 1)
	runs(t, two)
	until(t, url, "counter", "add", "n", "1")
	if got, ls := does(t, url, "counter", "get", "n"), does(t, url, "member", "ls"); got != "42" || !strings.Contains(ls, now) {
		t.Errorf("the counter is %s, and the members are\n%s", got, ls)
	}
}

// Two nodes, all that there is of their group, are started at each other's addresses: they go on, and the updates that
// docs/operate.md asks for are taken.
func TestExchangeTwoNodes(t *testing.T) {
	dir := t.TempDir()
	nodes, members, hosts := group(t, dir, 2)
	runs(t, nodes...)
	url := "holdfast://" + strings.Join(hosts, ",")
	until(t, url, "counter", "add", "n", "41")
	at := func(i int, flag string) *string { return &nodes[i].args[slices.Index(nodes[i].args, flag)+1] }
	one, two := *at(0, "--peer"), *at(1, "--peer")
	for _, n := range nodes {
		_ = n.signal(syscall.SIGTERM)
	}
	*at(0, "--peer"), *at(1, "--peer"), *at(0, "--listen"), *at(1, "--listen") = two, one, hosts[1], hosts[0]
	*at(0, "--members") = strings.NewReplacer(one, two, two, one, hosts[0], hosts[1], hosts[1], hosts[0]).Replace(members)
	*at(1, "--members") = *at(0, "--members")
	runs(t, nodes...)
	until(t, url, "counter", "add", "n", "1")
	until(t, url, "member", "update", "2", one, hosts[0])
	until(t, url, "member", "update", "1", two, hosts[1])
	until(t, url, "counter", "add", "n", "1")
	ls := does(t, url, "member", "ls")
	for i, want := range []string{two, one} {
		if line := strings.Split(ls, "\n")[i+1]; !strings.HasPrefix(line, strconv.Itoa(i+1)) || !strings.Contains(line, want) {
			t.Errorf("node %d is not at %s:\n%s", i+1, want, ls)
		}
	}
	if got := does(t, url, "counter", "get", "n"); got != "43" {
		t.Errorf("the counter is %s", got)
	}
}

// The process that holds a lock is stopped for longer than its TTL, as on a paused machine: another is granted the lock. When it goes on it looks at
// the clock, finds the hold lost, and ends its command.
func TestGroup_PausedClient(t *testing.T) {
	dir := t.TempDir()
	nodes, _, hosts := group(t, dir, 3)
	runs(t, nodes...)
	url := "holdfast://" + strings.Join(hosts, ",")
	until(t, url, "counter", "add", "n", "1")
	holder := program(t, dir, "--url", url, "lock", "--ttl", "5s", "m", "--", "sleep", "1000")
	said := &strings.Builder{}
	holder.Stderr = said
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(does(t, url, "show", "m"), "holds") {
	}
	signal(t, holder.Process.Pid, syscall.SIGSTOP)
	does(t, url, "lock", "--wait", "1m", "m", "--", "true")
	signal(t, holder.Process.Pid, syscall.SIGCONT)
	if err := holder.Wait(); holder.ProcessState.ExitCode() != 76 || !strings.Contains(said.String(), "the hold was lost") {
		t.Errorf("the holder that was paused ends with %v, and says %s", err, said)
	}
}

package cli_test

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/internal/node/disk"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// spoil flips a bit of the counter in the snapshot of a node that is stopped, and seals it
// as a broken memory would have had it sealed.
func spoil(t *testing.T, dir string, id uint64, bit uint) {
	t.Helper()
	d, rec, err := disk.Open(storage.OS{}, dir, storage.Options{ClusterID: 1, NodeID: id}, replica.Recovered{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if !rec.Machine.Damage(bit) {
		t.Fatalf("the snapshot of node %d has no counter", id)
	}
	rec.Snapshot.Only = true
	if err := d.BeginSnapshot(rec.Snapshot); err != nil {
		t.Fatal(err)
	}
	v := rec.Machine.View()
	defer v.Close()
	for last := false; !last; {
		var data []byte
		data, last = v.Next(nil, 1<<20)
		if _, err := d.SaveChunk(replica.Chunk{Index: rec.Snapshot.Index, Data: data, Last: last}); err != nil {
			t.Fatal(err)
		}
	}
}

// spoiled stops all nodes, spoils the snapshots of some, and starts all.
func spoiled(t *testing.T, nodes []*node, hosts []string, bits map[int]uint) {
	t.Helper()
	for _, host := range hosts {
		does(t, "holdfast://"+host, "snapshot", "save", filepath.Join(t.TempDir(), "backup"))
	}
	for _, n := range nodes {
		_ = n.signal(syscall.SIGTERM)
	}
	for i, bit := range bits {
		spoil(t, nodes[i].args[2], uint64(i+1), bit)
	}
	for _, n := range nodes {
		n.start()
	}
}

// status waits until holdfast status says a text of each of so many nodes.
func status(t *testing.T, url, text string, nodes int) {
	t.Helper()
	var out []byte
	for began := time.Now(); time.Since(began) < time.Minute; {
		var err error // while a node does not answer
		if out, err = program(t, t.TempDir(), "--url", url, "status").CombinedOutput(); err == nil && strings.Count(string(out), text) == nodes {
			return
		}
	}
	t.Fatalf("after a minute %q is not said of %d nodes:\n%s", text, nodes, out)
}

// checks asks for a state check, and waits until it is the last one.
func checks(t *testing.T, url string, hosts []string, text string, nodes int) {
	t.Helper()
	leaderOf(t, url, hosts)
	if got := does(t, url, "member", "check"); !strings.Contains(got, "holdfast status") {
		t.Errorf("a check says %q", got)
	}
	status(t, url, text, nodes)
}

// A node that differs gets the state of the others. Where all three differ nothing is
// granted until an operator names one of them, which need not lead; the others take its
// state over, and the next check finds them equal.
func TestGroup_Check(t *testing.T) {
	t.Parallel() // it waits for a TTL
	nodes, _, hosts := group(t, t.TempDir(), 3)
	runs(t, nodes...)
	url := "holdfast://" + strings.Join(hosts, ",")
	does(t, url, "counter", "add", "n", "41")
	versions(t, url, 3, newest)
	spoiled(t, nodes, hosts, map[int]uint{1: 3})
	checks(t, url, hosts, "healed at", 1)
	if got := does(t, url, "counter", "get", "n"); got != "41" {
		t.Errorf("the counter is %s", got)
	}
	checks(t, url, hosts, "agrees at", 3)

	spoiled(t, nodes, hosts, map[int]uint{0: 3, 1: 4})
	checks(t, url, hosts, "; frozen", 3)
	space, err := holdfast.Open(t.Context(), url, holdfast.TTL(10*time.Second)) // nothing is granted for as long after it is unfrozen
	if err != nil {
		t.Fatal(err)
	}
	defer space.Close()
	if _, err := space.Mutex("m").TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("in a frozen group a lock is answered %v", err)
	}
	for _, c := range []struct{ number, want string }{{"9", "does not vote"}, {"x", "not a node's number"}} {
		if out, err := program(t, t.TempDir(), "--url", url, "member", "unfreeze", c.number).CombinedOutput(); err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("unfreeze %s says %v, %s", c.number, err, out)
		}
	}
	does(t, url, "member", "unfreeze", "3")
	status(t, url, "; frozen", 0)
	status(t, url, "; heals", 0)
	checks(t, url, hosts, "agrees at", 3)
	if got := does(t, url, "counter", "get", "n"); got != "41" {
		t.Errorf("the counter of node 3 was 41, and is %s", got)
	}
	h, err := space.Mutex("m").TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
	if out, err := program(t, t.TempDir(), "--url", url, "member", "unfreeze").CombinedOutput(); err == nil || !strings.Contains(string(out), "not frozen") {
		t.Errorf("unfreeze where nothing is frozen says %v, %s", err, out)
	}
}

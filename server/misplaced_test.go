package server_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/server"
)

// followerAway is a group that has counted to 1, of which node i, a follower, has stopped then.
func followerAway(t *testing.T) (g *group, c *client, i int) {
	t.Helper()
	g = newGroup(t, 3)
	c = newClient(t, 1, g.up)
	c.do(add())
	g.sameState()
	i = (g.leader() + 1) % 3
	if err := g.nodes[i].Close(); err != nil {
		t.Fatal(err)
	}
	return g, c, i
}

// A node on an empty directory that was started under the number of another, which is only
// stopped, is told so and takes nobody's place: the group gives a number to what answers at
// the address that it asks for.
func TestWrongNumberTakesNobodyOut(t *testing.T) {
	g, c, i := followerAway(t)
	g.nodes[i] = g.nodes[(i+1)%3]
	wrong, notices := noticed(g.cfgs[i])
	wrong.Dir, wrong.Listen = t.TempDir(), founderEndpoints(t, 1)[0].Peer
	s := start(t, wrong)
	hear(t, notices, "has not found at "+g.cfgs[i].Listen+" the node that asks")
	if err := s.Close(); err != nil {
		t.Errorf("it stopped with %v", err)
	}
	g.whole(1, 2, 3)
	g.nodes[i] = start(t, g.cfgs[i])
	c.do(add())
	g.sameState()
}

// So is one that was started under the number of the node that leads: that one is asked, too, as no other gives a number.
func TestNumberOfTheLeader(t *testing.T) {
	g := newGroup(t, 3)
	newClient(t, 1, g.up).do(add())
	i := g.leader()
	wrong, notices := noticed(g.cfgs[i])
	wrong.Dir, wrong.Listen = t.TempDir(), founderEndpoints(t, 1)[0].Peer
	s := start(t, wrong)
	hear(t, notices, "has not found at "+g.cfgs[i].Listen+" the node that asks")
	if err := s.Close(); err != nil {
		t.Errorf("it stopped with %v", err)
	}
	g.whole(1, 2, 3)
}

// A new node at the address of another founder than its number says does not start, and
// leaves nothing in its directory; a number by default is judged like one that was given.
func TestFounderAtAnothersAddress(t *testing.T) {
	for _, id := range []uint64{0, 2, 1} {
		cfg := founderConfigs(t, 3)[2]
		if cfg.ID = id; id == 1 { // in another spelling
			cfg.Listen = strings.Replace(cfg.Listen, "127.0.0.1", "LOCALHOST", 1)
		}
		_, err := server.New(cfg)
		if !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "--id 3") {
			t.Errorf("as number %d: %v", id, err)
		}
		if left, err := os.ReadDir(cfg.Dir); err != nil || len(left) > 0 {
			t.Errorf("as number %d it leaves %v, %v", id, left, err)
		}
	}
}

// A node with damaged files has its number from its directory, if it was given none: it is
// let in again like one that was told, also if it had its number from the group.
func TestDamagedNodeKnowsItsNumber(t *testing.T) {
	g := newGroup(t, 3)
	c := newClient(t, 1, g.up)
	for range 20 {
		c.do(add())
	}
	i := (g.leader() + 1) % 3
	left := slices.DeleteFunc([]uint64{1, 2, 3}, func(id uint64) bool { return id == uint64(i+1) })
	g.cfgs[i].ID = 0
	for _, number := range []uint64{4, 5} {
		g.damaged(i, number)
		g.whole(append(slices.Clone(left), number)...)
		c.do(add())
		g.sameState()
	}
}

// Where the file with its number is damaged, and it was given none, the node says that, and not
// only that number 1, which it would have by default, is that of another.
func TestDamagedNodeWithoutANumber(t *testing.T) {
	g := newGroup(t, 3)
	newClient(t, 1, g.up).do(add())
	cfg := g.cfgs[1]
	if err := g.nodes[1].Close(); err != nil {
		t.Fatal(err)
	}
	flipped(t)(filepath.Join(cfg.Dir, "identity"))
	cfg.ID = 0
	_, err := server.New(cfg)
	if !errors.Is(err, storage.ErrDamaged) || !contains(err, filepath.Join(cfg.Dir, "identity"), "--id") {
		t.Errorf("it says %v", err)
	}
	g.nodes[1] = g.nodes[0]
}

// Promise: "When the disks of a majority are lost, those that come back empty refuse to vote, and the
// rest cannot decide anything." They say what is left to do.
func TestLostMajorityIsTold(t *testing.T) {
	g := newGroup(t, 3)
	newClient(t, 1, g.up).do(add())
	for i, n := range g.nodes {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			wipe(t, g.cfgs[i].Dir)
		}
	}
	start(t, g.cfgs[0])
	lost, notices := noticed(g.cfgs[1])
	start(t, lost)
	start(t, g.cfgs[2])
	hear(t, notices, "--force-new-cluster")
}

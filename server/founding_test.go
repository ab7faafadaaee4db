package server_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/server"
)

// wipe empties the directory of a node that is stopped.
func wipe(t *testing.T, dir string) {
	t.Helper()
	names, err := os.ReadDir(dir)
	for _, n := range names {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, n.Name())))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// refusal waits until a node stops by itself, and returns why.
func refusal(t *testing.T, cfg server.Config) string {
	t.Helper()
	s, err := server.New(cfg)
	if err != nil {
		return err.Error()
	}
	defer s.Close()
	select {
	case <-s.Done():
		return s.Err().Error()
	case <-within(t).Done():
		t.Fatal("the node does not stop")
	}
	return ""
}

// What was acknowledged by two of three nodes stays when the disk of one of them is
// lost: started by its usual command line it does not vote in its own place.
func TestLostDiskDoesNotVote(t *testing.T) {
	g := newGroup(t, 3)
	c := newClient(t, 1, g.up)
	c.do(add())
	g.sameState()
	third := (g.leader() + 1) % 3
	g.nodes[third].Close()
	for want := uint64(2); want <= 10; want++ { // which only two nodes know
		if r := c.do(add()); r.Number != want {
			t.Fatalf("the counter is %d, want %d", r.Number, want)
		}
	}
	first, second := g.leader(), 3-third-g.leader()
	for _, i := range []int{first, second} {
		if err := g.nodes[i].Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.hangUp()
	wipe(t, g.cfgs[second].Dir)
	g.nodes[third] = start(t, g.cfgs[third])
	if why := refusal(t, g.cfgs[second]); !strings.Contains(why, "by another directory") || !strings.Contains(why, "member remove") {
		t.Errorf("the wiped node says %q, want that it is not known, and what to do", why)
	}
	if st, err := g.nodes[third].Status(within(t)); err != nil || st.Leading {
		t.Errorf("the node that lacks what was acknowledged leads: %+v, %v", st, err)
	}
	g.nodes[first] = start(t, g.cfgs[first])
	g.nodes[second] = g.nodes[first]
	if r := c.do(add()); r.Number != 11 {
		t.Errorf("the counter is %d after all, want 11", r.Number)
	}
}

// A node whose disk is lost while the others run is refused, also if it says that
// it joins; so is one that was removed, which stops by itself.
func TestStrangersStop(t *testing.T) {
	g := newGroup(t, 3)
	c := newClient(t, 1, g.up)
	c.do(add())
	lost := (g.leader() + 1) % 3
	g.nodes[lost].Close()
	wipe(t, g.cfgs[lost].Dir)
	joining := g.cfgs[lost]
	joining.Join = true
	if why := refusal(t, joining); !strings.Contains(why, "by another") {
		t.Errorf("a wiped node that joins says %q", why)
	}
	wipe(t, g.cfgs[lost].Dir)
	if why := refusal(t, g.cfgs[lost]); !strings.Contains(why, "by another directory") {
		t.Errorf("a wiped founder says %q", why)
	}
	id := g.cfgs[lost].ID
	g.nodes = append(g.nodes[:lost], g.nodes[lost+1:]...)
	g.members(replica.Change{Remove: []uint64{id}}, func(m replica.Membership) bool { return len(m.Conf.GetVoters()) == 2 })
	if why := refusal(t, g.cfgs[lost]); !strings.Contains(why, "was removed") {
		t.Errorf("a wiped node that was removed says %q", why)
	}
	c.do(add())
}

// A node that runs and is removed stops with that word.
func TestRemovedNodeStops(t *testing.T) {
	g := newGroup(t, 3)
	newClient(t, 1, g.up).do(add())
	i := (g.leader() + 1) % 3
	out := g.nodes[i]
	g.nodes = append(g.nodes[:i], g.nodes[i+1:]...)
	g.members(replica.Change{Remove: []uint64{uint64(i + 1)}}, func(m replica.Membership) bool { return len(m.Conf.GetVoters()) == 2 })
	select {
	case <-out.Done():
		if err := out.Err(); err == nil || !strings.Contains(err.Error(), "was removed") {
			t.Errorf("it stopped with %v", err)
		}
	case <-within(t).Done():
		t.Error("the removed node runs on")
	}
}

// A new group begins when all its founders are there; until then nobody votes, and
// the operator is told for whom it waits. Founders that were given different lists
// begin nothing.
func TestFoundersWaitForAll(t *testing.T) {
	g := &group{t: t, cfgs: founderConfigs(t, 3)}
	notices := make(chan string, 1000)
	g.cfgs[0].Notice = func(err error) { notices <- err.Error() }
	g.nodes = []*server.Server{start(t, g.cfgs[0]), start(t, g.cfgs[1])}
	if why := <-notices; !strings.Contains(why, "does not answer") {
		t.Errorf("the first founder says %q", why)
	}
	for why := ""; !strings.Contains(why, "node 3 does not answer"); {
		select {
		case why = <-notices:
		case <-within(t).Done():
			t.Fatal("nobody says that node 3 is missing")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*g.cfgs[0].Tick)
	defer cancel()
	<-ctx.Done()
	for i, n := range g.nodes {
		if st, err := n.Status(within(t)); err != nil || st.Term > 0 || len(st.Members.Conf.GetVoters()) > 0 {
			t.Errorf("node %d without the third founder: %+v, %v", i+1, st, err)
		}
	}
	g.nodes = append(g.nodes, start(t, g.cfgs[2]))
	if r := newClient(t, 1, g.up).do(add()); r.Number != 1 {
		t.Errorf("the counter is %d", r.Number)
	}
	st, err := g.nodes[2].Status(within(t))
	if err != nil || st.Members.Founding == 0 || st.Members.Directory(1) == 0 || st.Members.Directory(1) == st.Members.Directory(2) {
		t.Errorf("the group begins with %+v, %v", st.Members, err)
	}
}

// founderConfigs are those of a group that is not started.
func founderConfigs(t *testing.T, n int) []server.Config {
	t.Helper()
	var cfgs []server.Config
	founders := founderEndpoints(t, n)
	for i := range n {
		cfgs = append(cfgs, server.Config{Dir: t.TempDir(), ID: uint64(i + 1), Founders: founders, Listen: founders[i].Peer,
			Tick: 20 * time.Millisecond, SnapshotEntries: 20})
	}
	return cfgs
}

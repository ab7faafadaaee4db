package server_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
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

// replaced waits until a node that lost its disk stops to be started under another
// number, and starts it by the same configuration.
func replaced(t *testing.T, s *server.Server, cfg server.Config, number uint64) *server.Server {
	t.Helper()
	select {
	case <-s.Done():
	case <-within(t).Done():
		t.Fatal("the node is not let in")
	}
	if err := s.Close(); !errors.Is(err, server.ErrReplaced) {
		t.Fatalf("it stopped with %v", err)
	}
	s = start(t, cfg)
	if s.ID() != number {
		t.Fatalf("it is node %d now, want %d", s.ID(), number)
	}
	return s
}

// whole waits until a group has these voters.
func (g *group) whole(voters ...uint64) {
	g.t.Helper()
	for ctx := within(g.t); ; time.Sleep(time.Millisecond) {
		st, err := g.nodes[g.leader()].Status(ctx)
		got := slices.Sorted(slices.Values(st.Members.Conf.GetVoters()))
		if err == nil && slices.Equal(got, voters) && len(st.Members.Conf.GetVotersOutgoing()) == 0 {
			return
		}
		if ctx.Err() != nil {
			g.t.Fatalf("the voters are %v, want %v", got, voters)
		}
	}
}

// What was acknowledged by two of three nodes stays when the disk of one of them is
// lost: started by its usual command line it does not vote in its own place. When
// there is a leader again, the node is let in under another number, and votes.
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
	first := g.leader() // asked once: it may change
	second := 3 - third - first
	for _, i := range []int{first, second} {
		if err := g.nodes[i].Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.hangUp()
	wipe(t, g.cfgs[second].Dir)
	g.nodes[third] = start(t, g.cfgs[third])
	cfg, notices := noticed(g.cfgs[second])
	lost := start(t, cfg)
	hear(t, notices, "by another directory")
	st, err := g.nodes[third].Status(within(t))
	if err != nil || st.Leading {
		t.Errorf("the node that lacks what was acknowledged leads: %+v, %v", st, err)
	}
	if st, err := lost.Status(within(t)); err != nil || st.Term > 0 || len(st.Members.Conf.GetVoters()) > 0 {
		t.Errorf("the wiped node has taken part: %+v, %v", st, err)
	}
	g.nodes[first] = start(t, g.cfgs[first])
	g.nodes[second] = g.nodes[first]
	if r := c.do(add()); r.Number != 11 {
		t.Errorf("the counter is %d after all, want 11", r.Number)
	}
	g.nodes[second] = replaced(t, lost, cfg, 4)
	g.whole(append(slices.DeleteFunc([]uint64{1, 2, 3}, func(id uint64) bool { return id == uint64(second+1) }), 4)...)
	g.sameState()
}

// A node that was lost is let in again by itself, however often: from its own
// command line, and as one that joins.
func TestLostDisksAreReplaced(t *testing.T) {
	g := newGroup(t, 3)
	c := newClient(t, 1, g.up)
	c.do(add())
	i := (g.leader() + 1) % 3
	left := slices.DeleteFunc([]uint64{1, 2, 3}, func(id uint64) bool { return id == uint64(i+1) })
	for number := uint64(4); number < 7; number++ {
		if err := g.nodes[i].Close(); err != nil {
			t.Fatal(err)
		}
		g.nodes[i] = g.nodes[(i+1)%3]
		wipe(t, g.cfgs[i].Dir)
		cfg := g.cfgs[i]
		cfg.Join = number == 5
		if cfg.Join {
			cfg.ID = number - 1
		}
		g.nodes[i] = replaced(t, start(t, cfg), cfg, number)
		g.whole(append(slices.Clone(left), number)...)
		c.do(add())
		g.sameState()
		if err := g.nodes[i].Close(); err != nil { // and it stays what it is
			t.Fatal(err)
		}
		g.nodes[i] = start(t, cfg)
		if g.nodes[i].ID() != number {
			t.Fatalf("after a restart it is node %d, want %d", g.nodes[i].ID(), number)
		}
	}
}

// A node that was let in under another number has its old one in its command line, at its own address. It does
// not look for a node there: it would be told to start that one, on an empty directory.
func TestReplacedNodeIsNotItsPredecessor(t *testing.T) {
	g := newGroup(t, 3)
	newClient(t, 1, g.up).do(add())
	i := (g.leader() + 1) % 3
	left := slices.DeleteFunc([]uint64{1, 2, 3}, func(id uint64) bool { return id == uint64(i+1) })
	cfg, notices := noticed(g.cfgs[i])
	g.nodes[i] = replaced(t, g.lost(i, cfg), cfg, 4)
	g.whole(append(left, 4)...)
	if err := g.nodes[i].Close(); err != nil { // after which it tells nothing more
		t.Error(err)
	}
	for len(notices) > 0 {
		if text := <-notices; strings.Contains(text, "means node") && strings.Contains(text, "this is 4") || strings.Contains(text, "node 4 answers where") {
			t.Errorf("its operator is told: %s", text)
		}
	}
}

// lost stops a node, empties its directory and starts it by cfg.
func (g *group) lost(i int, cfg server.Config) *server.Server {
	g.t.Helper()
	if err := g.nodes[i].Close(); err != nil {
		g.t.Fatal(err)
	}
	g.nodes[i] = g.nodes[(i+1)%len(g.nodes)]
	wipe(g.t, cfg.Dir)
	return start(g.t, cfg)
}

// A node that joined is let in again by its usual command line, also when the group has
// given its place another number before: the one that it is started with was taken out
// then. If there is no such place it stops, and is told that its number was removed.
func TestJoinedNodeLosesItsDisks(t *testing.T) {
	g := newGroup(t, 3)
	newClient(t, 1, g.up).do(add())
	i := (g.leader() + 1) % 3
	left := slices.DeleteFunc([]uint64{1, 2, 3}, func(id uint64) bool { return id == uint64(i+1) })
	cfg := g.cfgs[i]
	cfg.Join = true
	for _, number := range []uint64{4, 5} {
		g.nodes[i] = replaced(t, g.lost(i, cfg), cfg, number)
		g.whole(append(slices.Clone(left), number)...)
	}
	out := g.nodes[i]
	g.nodes = append(g.nodes[:i], g.nodes[i+1:]...)
	g.members(replica.Change{Remove: []uint64{5}}, func(m replica.Membership) bool { return len(m.Conf.GetVoters()) == 2 })
	for range 2 { // with its state, then with nothing
		select {
		case <-out.Done():
		case <-within(t).Done():
			t.Fatal("it runs on")
		}
		if err := out.Close(); err == nil || !strings.Contains(err.Error(), "was removed") {
			t.Errorf("it stopped with %v", err)
		}
		wipe(t, cfg.Dir)
		out = start(t, cfg)
	}
}

// A node that joined and lost its disk is let in by the leader, also if that is none of the
// members that it was told of: those know it.
func TestLostNodeFindsTheLeader(t *testing.T) {
	g := newGroup(t, 3)
	newClient(t, 1, g.up).do(add())
	first := g.leader()
	i := (first + 1) % 3
	cfg := g.cfgs[i]
	cfg.Join, cfg.Founders = true, slices.Delete(slices.Clone(cfg.Founders), first, first+1)
	g.nodes[i] = replaced(t, g.lost(i, cfg), cfg, 4)
	g.whole(append(slices.DeleteFunc([]uint64{1, 2, 3}, func(id uint64) bool { return id == uint64(i+1) }), 4)...)
}

// A node that is not to ask for a number itself waits for the operator.
func TestReplaceByHand(t *testing.T) { inBubble(t, 3, replaceByHand) }

func replaceByHand(t *testing.T, g *group) {
	newClient(t, 1, g.up).do(add())
	i := (g.leader() + 1) % 3
	id := uint64(i + 1)
	if _, err := g.nodes[g.leader()].Members(within(t), replica.Change{Replace: []replica.Endpoint{{ID: id}}}); !errors.Is(err, driver.ErrConflict) || !strings.Contains(err.Error(), "is not lost") {
		t.Errorf("replacing a node that answers gives %v", err)
	}
	g.nodes[i].Close()
	g.nodes[i] = g.nodes[(i+1)%3]
	wipe(t, g.cfgs[i].Dir)
	g.cfgs[i].NoReplace = true
	cfg, notices := noticed(g.cfgs[i])
	s := start(t, cfg)
	hear(t, notices, fmt.Sprintf("holdfast member replace %d", id))
	for ctx := within(t); ; time.Sleep(time.Millisecond) {
		number, err := g.nodes[g.leader()].Members(ctx, replica.Change{Replace: []replica.Endpoint{{ID: id}}})
		if err == nil && number == 4 {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(number, err)
		}
	}
	g.nodes[i] = replaced(t, s, cfg, 4)
	g.whole(append(slices.DeleteFunc([]uint64{1, 2, 3}, func(x uint64) bool { return x == id }), 4)...)
}

// A node that was replaced while it was only stopped stops when it comes back, and says how it is let in: on an empty directory by the
// same command line.
func TestReplacedWhileStopped(t *testing.T) { inBubble(t, 3, replacedWhileStopped) }

func replacedWhileStopped(t *testing.T, g *group) {
	newClient(t, 1, g.up).do(add())
	i := (g.leader() + 1) % 3
	id := uint64(i + 1)
	if err := g.nodes[i].Close(); err != nil {
		t.Fatal(err)
	}
	g.nodes[i] = g.nodes[(i+1)%3]
	for ctx := within(t); ; time.Sleep(time.Millisecond) {
		_, err := g.nodes[g.leader()].Members(ctx, replica.Change{Replace: []replica.Endpoint{{ID: id}}})
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	s := start(t, g.cfgs[i])
	select {
	case <-s.Done():
	case <-within(t).Done():
		t.Fatal("it runs on")
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "as after holdfast member replace: empty this directory and start it by the same command line") {
		t.Errorf("it stops with %v", err)
	}
	wipe(t, g.cfgs[i].Dir)
	g.nodes[i] = replaced(t, start(t, g.cfgs[i]), g.cfgs[i], 4)
	g.whole(append(slices.DeleteFunc([]uint64{1, 2, 3}, func(x uint64) bool { return x == id }), 4)...)
}

// When two of three disks are lost nobody votes, and the operator is told.
func TestTwoLostDisks(t *testing.T) {
	g := newGroup(t, 3)
	newClient(t, 1, g.up).do(add())
	g.sameState()
	for i := range g.nodes {
		if err := g.nodes[i].Close(); err != nil {
			t.Fatal(err)
		}
	}
	wipe(t, g.cfgs[0].Dir)
	wipe(t, g.cfgs[1].Dir)
	g.nodes[2] = start(t, g.cfgs[2])
	for i := range 2 {
		cfg, notices := noticed(g.cfgs[i])
		g.nodes[i] = start(t, cfg)
		hear(t, notices, "does not vote")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*g.cfgs[0].Tick)
	defer cancel()
	<-ctx.Done()
	for i, n := range g.nodes {
		if st, err := n.Status(within(t)); err != nil || st.Leading || i < 2 && st.Term > 0 {
			t.Errorf("node %d: %+v, %v", i+1, st, err)
		}
	}
}

// The first node of a restored group, which knew the cluster from its directory alone, is told
// what it needs when that is lost; with that it is let in, and without it votes for nobody.
func TestLostDiskOfARestoredCluster(t *testing.T) {
	cfgs := founderConfigs(t, 2)
	other := cfgs[1]
	other.ClusterID, other.Founders = 77, []server.Member{{ID: 2, Peer: other.Listen}}
	start(t, other)
	wiped, notices := noticed(cfgs[0])
	s := start(t, wiped)
	hear(t, notices, "belongs to cluster 77, this is 1: start a node that is to join, or that has lost its disk, with the --cluster-id")
	if st, err := s.Status(within(t)); err != nil || st.Leading || st.Applied > 0 {
		t.Errorf("it leads: %v, and has applied %d entries: %v", st.Leading, st.Applied, err)
	}
}

// A server that was founded alone and has grown loses its disk. Without the others in its command line it can ask nobody: it founds a group of its own. When the others find it, they
// are told, and it is told or stops. With them it is let in, and has what the group has.
func TestGrownServerLosesItsDisk(t *testing.T) {
	cfgs := founderConfigs(t, 3)
	g := &group{t: t, cfgs: cfgs}
	cfgs[0].Founders = nil
	told := make(chan string, 1000)
	cfgs[1].Notice = func(err error) { told <- err.Error() }
	for i := range cfgs {
		cfgs[i].Join = i > 0
		g.nodes = append(g.nodes, start(t, cfgs[i]))
	}
	c := newClient(t, 1, func() []*server.Server { return g.nodes[:1] })
	c.do(add())
	for id := uint64(2); id <= 3; id++ {
		g.until("the node is added", func(ctx context.Context) bool {
			_, err := g.nodes[g.leader()].Members(ctx, replica.Change{Add: []replica.Endpoint{{ID: id, Peer: cfgs[id-1].Listen}}})
			return err == nil || errors.Is(err, driver.ErrConflict) || errors.Is(err, fs.ErrExist)
		})
		g.until("the node votes", func(ctx context.Context) bool {
			_, err := g.nodes[g.leader()].Members(ctx, replica.Change{Promote: []uint64{id}})
			return err == nil
		})
	}
	g.sameState()
	if err := g.nodes[0].Close(); err != nil {
		t.Fatal(err)
	}
	c.hangUp()
	g.nodes[0] = g.nodes[1]
	wipe(t, cfgs[0].Dir)
	alone, notices := noticed(cfgs[0])
	without := start(t, alone)
	hear(t, told, "what calls itself node 1 has another directory")
	select {
	case <-without.Done(): // they have found it before it knew itself as a member of its own group
	case <-heard(t, notices, "is of another group, which knows another node 1"):
		if st, err := without.Status(within(t)); err != nil || len(st.Members.Conf.GetVoters()) != 1 {
			t.Errorf("it votes in %+v, %v", st.Members, err)
		}
	}
	if err := without.Close(); err != nil && !strings.Contains(err.Error(), "does not know this directory") {
		t.Errorf("it stops with %v", err)
	}
	wipe(t, cfgs[0].Dir)
	cfgs[0].Founders = cfgs[1].Founders
	g.nodes[0] = replaced(t, start(t, cfgs[0]), cfgs[0], 4)
	g.whole(2, 3, 4)
	c = newClient(t, 2, g.up)
	if r := c.do(add()); r.Number != 2 {
		t.Errorf("the counter is %d, want 2", r.Number)
	}
	g.sameState()
}

// A server that runs alone, under the number and at the address at which a group expects a new node, comes into
// the group with nothing of its own: it is refused, and both are told. Emptied, as they are told, it joins.
func TestJoinWithAnotherState(t *testing.T) {
	cfgs := founderConfigs(t, 3)
	alone, notices := noticed(cfgs[2])
	cfgs = cfgs[:2]
	for i := range cfgs {
		cfgs[i].Founders = cfgs[i].Founders[:2]
	}
	alone.Founders = nil
	without := start(t, alone)
	other := newClient(t, 1, func() []*server.Server { return []*server.Server{without} })
	other.do(add())
	other.hangUp()
	told := make(chan string, 1000)
	g := &group{t: t, cfgs: cfgs}
	for i := range cfgs {
		cfgs[i].Notice = func(err error) { told <- err.Error() }
		g.nodes = append(g.nodes, start(t, cfgs[i]))
	}
	c := newClient(t, 2, g.up)
	c.do(add())
	g.until("the node is added", func(ctx context.Context) bool {
		_, err := g.nodes[g.leader()].Members(ctx, replica.Change{Add: []replica.Endpoint{{ID: 3, Peer: alone.Listen}}})
		return err == nil || errors.Is(err, fs.ErrExist)
	})
	hear(t, told, "what calls itself node 3 and node")
	hear(t, notices, "neither is known to the group of the other")
	if st, err := without.Status(within(t)); err != nil || len(st.Members.Conf.GetVoters()) != 1 {
		t.Errorf("it votes in %+v, %v", st.Members, err)
	}
	if err := without.Close(); err != nil {
		t.Fatal(err)
	}
	wipe(t, alone.Dir)
	alone.Join, alone.Founders = true, cfgs[0].Founders
	g.nodes = append(g.nodes, start(t, alone))
	g.until("the node votes", func(ctx context.Context) bool {
		_, err := g.nodes[g.leader()].Members(ctx, replica.Change{Promote: []uint64{3}})
		return err == nil
	})
	if r := c.do(add()); r.Number != 2 {
		t.Errorf("the counter is %d, want 2", r.Number)
	}
	g.sameState()
}

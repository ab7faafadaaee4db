package server_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/server"
)

// noticed is a configuration with what its node tells the operator.
func noticed(cfg server.Config) (server.Config, chan string) {
	notices := make(chan string, 1000)
	cfg.Notice = func(err error) { notices <- err.Error() }
	return cfg, notices
}

// hear waits for a notice with a text.
func hear(t *testing.T, notices chan string, text string) {
	t.Helper()
	for ctx := within(t); ; {
		select {
		case got := <-notices:
			if strings.Contains(got, text) {
				return
			}
		case <-ctx.Done():
			t.Fatalf("nobody is told that %q", text)
		}
	}
}

// heard is closed when there is a notice with a text.
func heard(t *testing.T, notices chan string, text string) chan struct{} {
	is := make(chan struct{})
	go func() {
		for {
			select {
			case got := <-notices:
				if strings.Contains(got, text) {
					close(is)
					return
				}
			case <-t.Context().Done():
				return
			}
		}
	}()
	return is
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

// A number that was given to a node which lost its disk is not taken by one that was
// started by hand under that number, at another address: that one is told.
func TestNumberBelongsToItsAddress(t *testing.T) {
	g := newGroup(t, 3)
	newClient(t, 1, g.up).do(add())
	i := (g.leader() + 1) % 3
	id := uint64(i + 1)
	g.nodes[i].Close()
	g.nodes[i] = g.nodes[(i+1)%3]
	wipe(t, g.cfgs[i].Dir)
	g.until("number 4 is given", func(ctx context.Context) bool {
		number, err := g.nodes[g.leader()].Members(ctx, replica.Change{Replace: []replica.Endpoint{{ID: id}}})
		return err == nil && number == 4
	})
	byHand, notices := noticed(g.cfgs[i])
	byHand.Dir, byHand.ID, byHand.Join = t.TempDir(), 4, true
	byHand.Listen = founderEndpoints(t, 1)[0].Peer
	byHand.Founders = append(slices.Delete(slices.Clone(byHand.Founders), i, i+1), server.Member{ID: 4, Peer: byHand.Listen})
	start(t, byHand)
	g.until("the node that was started by hand is met", func(ctx context.Context) bool {
		st, err := g.nodes[g.leader()].Status(ctx)
		return err == nil && st.Versions[4].Newest != 0
	})
	g.nodes[i] = replaced(t, start(t, g.cfgs[i]), g.cfgs[i], 4)
	g.whole(append(slices.DeleteFunc([]uint64{1, 2, 3}, func(x uint64) bool { return x == id }), 4)...)
	hear(t, notices, "the group knows no node at "+byHand.Listen)
}

// until waits until something is so.
func (g *group) until(what string, is func(context.Context) bool) {
	g.t.Helper()
	for ctx := within(g.t); !is(ctx); {
		if ctx.Err() != nil {
			g.t.Fatalf("it never comes that %s", what)
		}
	}
}

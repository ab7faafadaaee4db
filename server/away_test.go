package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/server"
)

// moving is a group of three in fake time of which nodes come, go and move while another is away.
type moving struct {
	*group
	wires *host.Pipes
}

func inMotion(t *testing.T, test func(t *testing.T, g *moving)) {
	t.Helper()
	severalInMotion(t, 3, test)
}

// severalInMotion is inMotion with so many nodes.
func severalInMotion(t *testing.T, n int, test func(t *testing.T, g *moving)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfgs, wires := founderConfigs(t, n), &host.Pipes{}
		for i := range cfgs {
			cfgs[i].Founders[i].Client = services.Addr(t)
			host.Put(&cfgs[i], &host.Host{Listen: wires.Listen, Dial: wires.Dial})
		}
		test(t, &moving{started(t, cfgs), wires})
	})
}

// stop stops a node, as a power cut does: without handing over.
func (g *moving) stop(id int) {
	g.t.Helper()
	if err := g.nodes[id-1].Close(); err != nil {
		g.t.Fatal(err)
	}
}

// start starts a node again.
func (g *moving) start(id int) { g.nodes[id-1] = start(g.t, g.cfgs[id-1]) }

// alive are the nodes that run.
func (g *moving) alive() []*server.Server {
	return slices.DeleteFunc(slices.Clone(g.nodes), func(s *server.Server) bool {
		select {
		case <-s.Done():
			return true
		default:
			return false
		}
	})
}

// joins lets another node in, as a voter.
func (g *moving) joins() {
	g.t.Helper()
	id := uint64(len(g.cfgs) + 1)
	cfg := server.Config{Dir: g.t.TempDir(), ID: id, Join: true, Founders: g.cfgs[0].Founders, Listen: services.Addr(g.t), Client: services.Addr(g.t)}
	host.Put(&cfg, &host.Host{Listen: g.wires.Listen, Dial: g.wires.Dial})
	g.cfgs, g.nodes = append(g.cfgs, cfg), append(g.nodes, start(g.t, cfg))
	g.change(replica.Change{Add: []replica.Endpoint{{ID: id, Peer: cfg.Listen, Client: cfg.Client}}})
	g.change(replica.Change{Promote: []uint64{id}})
}

// moves has a node that is stopped start at other addresses, as docs/operate.md says.
func (g *moving) moves(id int) {
	g.t.Helper()
	cfg := &g.cfgs[id-1]
	cfg.Founders = slices.Clone(cfg.Founders)
	cfg.Listen = services.Addr(g.t)
	at := server.Member{ID: cfg.ID, Peer: cfg.Listen, Client: services.Addr(g.t)}
	cfg.Founders[id-1] = at
	g.change(replica.Change{Update: []replica.Endpoint{{ID: at.ID, Peer: at.Peer, Client: at.Client}}})
	g.start(id)
}

// change changes the members, when the group can.
func (g *moving) change(c replica.Change) {
	g.t.Helper()
	g.soon(func(ctx context.Context) error {
		_, err := g.alive()[0].Members(ctx, c)
		return err
	})
}

// leads has a node lead.
func (g *moving) leads(id int) {
	g.t.Helper()
	g.soon(func(ctx context.Context) error {
		if st, err := g.nodes[id-1].Status(ctx); err != nil || st.Serving {
			return err
		}
		return fmt.Errorf("node %d does not lead: %w", id, g.alive()[0].Transfer(ctx, uint64(id)))
	})
}

// soon does something again and again until there is no error.
func (g *moving) soon(f func(ctx context.Context) error) {
	g.t.Helper()
	ctx := within(g.t)
	for err := f(ctx); err != nil; {
		if time.Sleep(100 * time.Millisecond); ctx.Err() != nil {
			g.t.Fatal(err)
		}
		err = f(ctx)
	}
}

// whole waits until the nodes that run lead and follow, and have applied the same.
func (g *moving) whole() {
	g.t.Helper()
	g.soon(func(ctx context.Context) error {
		var first replica.Status
		for i, s := range g.alive() {
			st, err := s.Status(ctx)
			if i == 0 {
				first = st
			}
			lead, _ := s.Leader()
			if err != nil || lead.ID == 0 || lead.Addr == "" || st.Applied != first.Applied || st.Hash != first.Hash {
				return fmt.Errorf("node %d has applied %d and follows %+v; node %d has applied %d: %v", st.ID, st.Applied, lead, first.ID, first.Applied, err)
			}
		}
		return nil
	})
}

// A node that was away while the present leader was added answers it, although it has never heard
// of it: it catches up, and the group can do without another.
func TestAway_LeaderAdded(t *testing.T) {
	inMotion(t, func(t *testing.T, g *moving) {
		g.whole()
		g.stop(3)
		g.joins()
		g.leads(4)
		g.start(3)
		g.whole()
		g.stop(1)
		g.whole()
	})
}

// All others were exchanged while a node was away. It has never heard of those of now, and one of
// them needs its vote.
func TestAway_OthersExchanged(t *testing.T) {
	inMotion(t, func(t *testing.T, g *moving) {
		g.whole()
		g.stop(3)
		g.joins()
		g.joins()
		for _, id := range []uint64{1, 2} {
			g.change(replica.Change{Remove: []uint64{id}})
			g.stop(int(id))
		}
		g.stop(5)
		g.start(3)
		g.whole()
	})
}

// A node that was away while the leader moved looks for it at its old address, and answers it all
// the same.
func TestAway_LeaderMoved(t *testing.T) {
	inMotion(t, func(t *testing.T, g *moving) {
		g.joins()
		g.joins()
		g.whole()
		g.stop(5)
		g.stop(3)
		g.moves(3)
		g.leads(3)
		g.start(5)
		g.whole()
	})
}

// All nodes lose their power after one has moved. Another that comes back does not know yet that
// this was decided, and looks for it at its old address: the two of them are a majority.
func TestAway_AllRestartAfterMove(t *testing.T) {
	inMotion(t, func(t *testing.T, g *moving) {
		g.whole()
		g.stop(3)
		g.moves(3)
		g.whole()
		for id := range g.nodes {
			g.stop(id + 1)
		}
		g.start(1)
		g.start(3)
		g.whole()
	})
}

// All nodes moved at once, as to another network, so that the group could not be told. None of them is
// where another looks for it, but --members has the new addresses.
func TestAway_AllMoved(t *testing.T) {
	inMotion(t, func(t *testing.T, g *moving) {
		g.allMove()
		g.start(1)
		g.start(3)
		g.whole()
	})
}

// Nodes came back at each other's addresses, each with its own directory, and --members of all has the true ones.
func TestAway_AllExchanged(t *testing.T) {
	inMotion(t, func(t *testing.T, g *moving) {
		g.allStop()
		was := g.cfgs[0].Founders
		moved := slices.Clone(was)
		for i := range moved {
			moved[i].Peer, moved[i].Client = was[(i+1)%3].Peer, was[(i+1)%3].Client
		}
		g.areAt(moved)
		for id := range g.nodes {
			g.start(id + 1)
		}
		g.whole()
	})
}

// Two nodes came back at each other's addresses: where the group has the other each finds itself, and finds the
// other by --members all the same. So they lead each other, and are a majority.
func TestAway_TwoExchanged(t *testing.T) {
	for _, n := range []int{2, 3} {
		severalInMotion(t, n, func(t *testing.T, g *moving) {
			g.exchange(n-1, n)
			g.whole()
			g.leads(n)
			g.whole()
			if n == 3 {
				g.stop(1)
				g.whole()
			}
		})
	}
}

// exchange has two nodes come back at each other's addresses, of which --members of all know.
func (g *moving) exchange(one, other int) {
	g.t.Helper()
	g.allStop()
	was := g.cfgs[0].Founders
	moved := slices.Clone(was)
	for at, from := range map[int]server.Member{one - 1: was[other-1], other - 1: was[one-1]} {
		moved[at].Peer, moved[at].Client = from.Peer, from.Client
	}
	g.areAt(moved)
	for id := range g.nodes {
		g.start(id + 1)
	}
}

// allMove stops all nodes, and gives them new addresses of which --members of all know.
func (g *moving) allMove() {
	g.t.Helper()
	g.allStop()
	moved := slices.Clone(g.cfgs[0].Founders)
	for i := range moved {
		moved[i].Peer, moved[i].Client = services.Addr(g.t), services.Addr(g.t)
	}
	g.areAt(moved)
}

// allStop stops all nodes when they have the same.
func (g *moving) allStop() {
	g.t.Helper()
	g.whole()
	for id := range g.nodes {
		g.stop(id + 1)
	}
}

// areAt has all nodes start at other addresses, of which --members of all know.
func (g *moving) areAt(moved []server.Member) {
	for i := range g.cfgs {
		g.cfgs[i].Founders, g.cfgs[i].Listen = moved, moved[i].Peer
	}
}

// follower waits for one that has a leader, and for the address at which it tells clients to find that.
func (g *moving) follower() (s *server.Server, leads server.Leader) {
	g.t.Helper()
	g.soon(func(context.Context) error {
		for _, s = range g.nodes {
			if leads, _ = s.Leader(); leads.ID != 0 && leads.ID != s.ID() {
				return nil
			}
		}
		return errors.New("no node follows another")
	})
	return s, leads
}

// Until the group has been told that all nodes moved, a node that follows sends clients to where --members has the
// leader, and asks it there for what operators order: so the group can be told by any node.
func TestAway_AllMovedAreTold(t *testing.T) {
	inMotion(t, func(t *testing.T, g *moving) {
		g.allMove()
		for id := range g.nodes {
			g.start(id + 1)
		}
		g.whole()
		s, leads := g.follower()
		if want := g.cfgs[0].Founders[leads.ID-1].Client; leads.Addr != want {
			t.Errorf("clients are told to find the leader, node %d, at %s, not at %s", leads.ID, leads.Addr, want)
		}
		for _, m := range g.cfgs[0].Founders {
			if _, err := s.Members(within(t), replica.Change{Update: []replica.Endpoint{{ID: m.ID, Peer: m.Peer, Client: m.Client}}}); err != nil {
				t.Errorf("the group is told where node %d is: %v", m.ID, err)
			}
		}
	})
}

// A group of which two nodes have changed places is told by an update of either, or of both, of whichever node it is asked:
// each is found at its own address then, without --members that say so.
func TestAway_ExchangedAreTold(t *testing.T) {
	for _, told := range [][]int{{1}, {2}, {2, 1}} {
		severalInMotion(t, 2, func(t *testing.T, g *moving) {
			g.exchange(1, 2)
			g.whole()
			s, _ := g.follower()
			for _, id := range told {
				m := g.cfgs[0].Founders[id-1]
				if _, err := s.Members(within(t), replica.Change{Update: []replica.Endpoint{{ID: m.ID, Peer: m.Peer, Client: m.Client}}}); err != nil {
					t.Errorf("the group is told where node %d is: %v", id, err)
				}
			}
			time.Sleep(time.Second) // the disks know it soon after it was answered
			g.allStop()
			are := g.cfgs[0].Founders
			for i := range g.cfgs {
				g.cfgs[i].Founders = nil
				g.start(i + 1)
			}
			g.whole()
			st, err := g.nodes[0].Status(within(t))
			for i, e := range st.Members.Endpoints {
				if want := are[i]; e.Peer != want.Peer || e.Client != want.Client {
					t.Errorf("node %d is at %s and %s, not at %s and %s: %v", e.ID, e.Peer, e.Client, want.Peer, want.Client, err)
				}
			}
		})
	}
}

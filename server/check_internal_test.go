package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/host"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/services"
)

// founded are three nodes of a group in a bubble of fake time, which compare their states only when asked.
func founded(t *testing.T) []*Server {
	t.Helper()
	var founders []Member
	for id := uint64(1); id <= 3; id++ {
		founders = append(founders, Member{ID: id, Peer: services.Addr(t)})
	}
	var nodes []*Server
	wires := &host.Pipes{}
	for _, e := range founders {
		cfg := Config{Dir: t.TempDir(), ID: e.ID, Founders: founders, Listen: e.Peer, Tick: 20 * time.Millisecond}
		host.Put(&cfg, &host.Host{Listen: wires.Listen, Dial: wires.Dial})
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		nodes = append(nodes, s)
	}
	return nodes
}

// until waits until f is true of every node.
func until(t *testing.T, nodes []*Server, what string, f func(*replica.Node) bool) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		n := 0
		for _, s := range nodes {
			if err := s.loop.do(t.Context(), func() {
				if f(s.loop.node) {
					n++
				} else if time.Since(began) > time.Minute {
					t.Errorf("after a minute %s is not so of %+v", what, s.loop.node.Status())
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		if n == len(nodes) || t.Failed() {
			return
		}
	}
}

// number is what a node has for the counter.
func number(n *replica.Node) uint64 {
	r := n.Machine().Read("", &core.Command{Op: core.OpCount, Name: "n", Count: core.CountLoad})
	return r.Number
}

// leads is the leader.
func leads(t *testing.T, nodes []*Server) *Server {
	t.Helper()
	for range 10_000 {
		for _, s := range nodes {
			if st, err := s.Status(t.Context()); err == nil && st.Serving {
				return s
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("nobody leads")
	return nil
}

// add counts.
func add(t *testing.T, nodes []*Server, by uint64) {
	t.Helper()
	f := &core.Frame{Session: core.SessionID{byte(by)}, Attempt: 1, Mark: 1, Commands: []core.Command{
		{Op: core.OpOpen, TTL: int64(time.Minute)}, {Op: core.OpCount, Seq: 1, Name: "n", Count: core.CountAdd, A: by}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if r, err := leads(t, nodes).Submit(ctx, f); err != nil || r.Results[1].Code != core.CodeOK {
		t.Fatalf("counting is answered %+v, %v", r, err)
	}
}

// One bit flips in the memory of a node, the leader or not: the next check finds it,
// the node gets the state of another, and the counter goes on from what was acknowledged.
func TestFlippedBitInMemoryHeals(t *testing.T) {
	for _, leader := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) { healBit(t, leader) })
	}
}

func healBit(t *testing.T, leader bool) {
	nodes := founded(t)
	until(t, nodes, "the newest version", func(n *replica.Node) bool { st := n.Status(); return st.Version == core.EntryVersion && st.Leader != 0 })
	add(t, nodes, 41)
	until(t, nodes, "41", func(n *replica.Node) bool { return number(n) == 41 })
	lead := leads(t, nodes)
	hurt := lead
	if !leader {
		hurt = nodes[lead.cfg.ID%3]
	}
	if err := hurt.loop.do(t.Context(), func() { hurt.loop.node.Machine().Damage(3) }); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := lead.Members(t.Context(), replica.Change{Check: true}); err != nil {
		t.Fatal(err)
	}
	until(t, nodes, "41 again", func(n *replica.Node) bool { return number(n) == 41 && !n.Status().Healing })
	t.Logf("proof: a bit flips in the memory of a node (the leader: %v): found and healed after %s", leader, time.Since(began).Round(time.Millisecond))
	add(t, nodes, 1)
	until(t, nodes, "42", func(n *replica.Node) bool { return number(n) == 42 })
}

package server_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/server"
)

// Every node tells who leads, and when that changes, without being asked again and
// again.
func TestLeader(t *testing.T) {
	g := newGroup(t, 3)
	first := g.leader()
	until := func(node *server.Server, id uint64) {
		t.Helper()
		for {
			now, changed := node.Leader()
			if now.ID == id {
				return
			}
			select {
			case <-changed:
			case <-within(t).Done():
				t.Fatalf("node %d takes node %d for the leader, not %d", node.ID(), now.ID, id)
			}
		}
	}
	for _, node := range g.nodes {
		until(node, uint64(first+1))
	}
	next := (first + 1) % 3
	if err := g.nodes[first].Transfer(within(t), uint64(next+1)); err != nil {
		t.Fatal(err)
	}
	for _, node := range g.nodes {
		until(node, uint64(next+1))
	}
}

package server_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/driver"
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
	err := error(driver.ErrConflict)
	for ctx := within(t); errors.Is(err, driver.ErrConflict) && ctx.Err() == nil; { // it has not caught up, for a moment
		err = g.nodes[first].Transfer(ctx, uint64(next+1))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range g.nodes {
		until(node, uint64(next+1))
	}
}

// To hand over to a node that does not answer is refused, whichever node is asked: the group
// would stand still for an election timeout, and nobody would be told why nothing came of it.
func TestTransfer_Silent(t *testing.T) {
	g := newGroup(t, 3)
	lead := g.leader()
	gone, other := (lead+1)%3, (lead+2)%3
	g.nodes[gone].Close()
	for _, asked := range []int{lead, other} {
		for ctx := within(t); ; {
			err := g.nodes[asked].Transfer(ctx, uint64(gone+1))
			if errors.Is(err, driver.ErrConflict) && strings.Contains(err.Error(), "does not answer") {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("node %d says %v", asked+1, err)
			}
		}
	}
}

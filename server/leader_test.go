package server_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/server"
)

// Every node tells who leads, and when that changes, without being asked again and
// again.
func TestLeader(t *testing.T) { inBubble(t, 3, tellLeader) }

func tellLeader(t *testing.T, g *group) {
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
	next, again := (first+1)%3, time.NewTicker(20*time.Millisecond)
	defer again.Stop()
	err := error(driver.ErrConflict)
	for ctx := within(t); errors.Is(err, driver.ErrConflict) && ctx.Err() == nil; <-again.C { // it has not caught up, for a moment
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
func TestTransfer_Silent(t *testing.T) { inBubble(t, 3, transferToSilent) }

func transferToSilent(t *testing.T, g *group) {
	lead := g.leader()
	gone, other, again := (lead+1)%3, (lead+2)%3, time.NewTicker(20*time.Millisecond)
	defer again.Stop()
	g.nodes[gone].Close()
	for _, asked := range []int{lead, other} {
		for ctx := within(t); ; <-again.C {
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

// A leader that stops hands over to another, without a word of which.
func TestTransfer_ToAny(t *testing.T) { inBubble(t, 3, transferToAny) }

func transferToAny(t *testing.T, g *group) {
	lead, ctx := g.leader(), within(t)
	if err := g.nodes[lead].Transfer(ctx, 0); err != nil {
		t.Fatal(err)
	}
	for now, changed := g.nodes[lead].Leader(); now.ID == 0 || now.ID == uint64(lead+1); now, changed = g.nodes[lead].Leader() {
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("node %d takes node %d for the leader", lead+1, now.ID)
		}
	}
}

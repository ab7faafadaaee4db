package server_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/server"
)

// told is what an operator knows of an order in the end.
type told struct {
	change replica.Change
	err    error
}

func (o *told) done() bool { return o.err == nil }

// unknown: the order may be done all the same, as when the leader changes meanwhile.
func (o *told) unknown() bool {
	e, ok := errors.AsType[*driver.Error](o.err)
	return ok && e.Outcome != driver.NotDone
}

// insists asks a node until it says another thing than that another change is under way, or that
// there is no leader.
func insists(ctx context.Context, node *server.Server, c replica.Change) *told {
	for ; ; time.Sleep(time.Millisecond) {
		_, err := node.Members(ctx, c)
		o := &told{c, err}
		busy := errors.Is(err, driver.ErrConflict) && strings.Contains(err.Error(), "under way") || errors.Is(err, driver.ErrUnavailable)
		if !busy || o.unknown() || ctx.Err() != nil {
			return o
		}
	}
}

// atOnce gives each order to a node of its own, all at the same time.
func (g *group) atOnce(orders []replica.Change) []*told {
	all := make([]*told, len(orders))
	var wg sync.WaitGroup
	for i, c := range orders {
		ctx := within(g.t)
		wg.Go(func() { all[i] = insists(ctx, g.nodes[i%len(g.nodes)], c) })
	}
	wg.Wait()
	return all
}

// oneOf: of the operators that were in each other's way one was told that it is done, and the
// others why not.
func oneOf(t *testing.T, id uint64, all []*told, why string) (won *told) {
	t.Helper()
	for _, o := range all {
		switch {
		case o.unknown():
			return nil // nobody can tell
		case o.done() && won != nil:
			t.Errorf("node %d: %+v and %+v are both told that it is done", id, won.change, o.change)
		case o.done():
			won = o
		case !errors.Is(o.err, fs.ErrInvalid) || !strings.Contains(o.err.Error(), why):
			t.Errorf("node %d: %+v is refused: %v; want a word of %q", id, o.change, o.err, why)
		}
	}
	if won == nil {
		t.Errorf("node %d: nobody is told that it is done", id)
	}
	return won
}

// Several operators change the members at once, through different nodes: each is told what became
// of its order, what is told as done is so, and of two for the same node one is told why not.
func TestOperatorsAtOnce(t *testing.T) {
	g := newGroup(t, 3)
	newClient(t, 1, g.up).do(add())
	numbers := []uint64{4, 5, 6}
	var adds, removes []replica.Change
	for i := range 2 {
		for _, id := range numbers {
			adds = append(adds, replica.Change{Add: []replica.Endpoint{{ID: id, Peer: fmt.Sprintf("127.0.0.1:%d", 10*id+uint64(i)), Client: fmt.Sprintf("127.0.0.1:%d", 100*id+uint64(i))}}})
			removes = append(removes, replica.Change{Remove: []uint64{id}})
		}
	}
	added := g.atOnce(adds)
	for i, id := range numbers {
		won := oneOf(t, id, []*told{added[i], added[i+len(numbers)]}, "is a member already")
		st, err := g.nodes[g.leader()].Status(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Members.Address(id); won != nil && got != won.change.Add[0].Client {
			t.Errorf("node %d is at %q, and told to be at %q", id, got, won.change.Add[0].Client)
		}
	}
	removed := g.atOnce(removes)
	for i, id := range numbers {
		oneOf(t, id, []*told{removed[i], removed[i+len(numbers)]}, "is no member")
		g.until("node "+fmt.Sprint(id)+" is removed everywhere", func(ctx context.Context) bool {
			for _, n := range g.nodes {
				if st, err := n.Status(ctx); err != nil || st.Members.Directory(id) != replica.Removed {
					return false
				}
			}
			return true
		})
	}
	g.whole(1, 2, 3)
	if r := newClient(t, 2, g.up).do(add()); r.Number != 2 {
		t.Errorf("the counter is %d, want 2", r.Number)
	}
}

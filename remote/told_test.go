package remote_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
)

// leader is the node that all agree on, once it serves.
func (g *group) leader(ctx context.Context) int {
	g.t.Helper()
	for ctx.Err() == nil {
		first, news := g.nodes[0].s.Leader()
		second, _ := g.nodes[1].s.Leader()
		third, _ := g.nodes[2].s.Leader()
		if first.ID != 0 && first == second && second == third {
			if st, err := g.nodes[first.ID-1].s.Status(ctx); err == nil && st.Serving {
				return int(first.ID - 1)
			}
		}
		select {
		case <-news:
		case <-time.After(steady):
		}
	}
	g.t.Fatal("nobody leads")
	return 0
}

// move hands the leadership over.
func (g *group) move(ctx context.Context, from, to int) {
	g.t.Helper()
	for ctx.Err() == nil {
		l, news := g.nodes[from].s.Leader()
		if l.ID == uint64(to+1) {
			return
		}
		_ = g.nodes[from].s.Transfer(ctx, uint64(to+1)) // it may be refused for a moment
		select {
		case <-news:
		case <-time.After(10 * steady):
		}
	}
	g.t.Fatal("nobody else leads")
}

// A client without any of its endpoints goes on with the nodes that it was told of: one that has led
// knows which node leads.
func TestLeaderIsFoundWithoutEndpoints(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g := newGroup(t, 3, steady)
	first := g.leader(ctx)
	endpoint, next := (first+1)%3, (first+2)%3
	s := openAt(t, g.cfgs[0].Founders[endpoint].Client)
	h, err := s.Mutex("a", holdfast.TTL(24*time.Hour)).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	g.stop(endpoint)
	g.move(ctx, first, next)
	if _, err := s.Counter("n").Add(ctx, 1); err != nil {
		t.Error(err)
	}
	if _, err := s.Inspect(ctx, "a"); err != nil || h.Err() != nil {
		t.Errorf("%v, and the hold: %v", err, h.Err())
	}
}

package server_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/server"
)

// learns reports whether a node has, as the only learner of its group, applied what the leader has, and
// whether the group knows its directory.
func (g *group) learns(ctx context.Context, s *server.Server) bool {
	lead, err1 := g.nodes[g.leader()].Status(ctx)
	st, err2 := s.Status(ctx)
	return err1 == nil && err2 == nil && st.Applied >= lead.Applied && lead.Members.Directory(s.ID()) == st.Dir && slices.Equal(lead.Members.Conf.GetLearners(), []uint64{s.ID()})
}

// A learner that loses its disk comes back by itself: its group gives it another number, and it
// learns as before. It does not vote, since nobody has promoted it.
func TestWipedLearnerComesBack(t *testing.T) {
	g := newGroup(t, 3)
	c := newClient(t, 1, g.up)
	c.do(add())
	cfg := server.Config{Dir: t.TempDir(), ID: 4, Join: true, Founders: g.cfgs[0].Founders, Listen: services.Addr(t), Tick: 20 * time.Millisecond}
	learner := start(t, cfg)
	g.members(replica.Change{Add: []replica.Endpoint{{ID: 4, Peer: cfg.Listen}}}, func(m replica.Membership) bool { return slices.Contains(m.Conf.GetLearners(), 4) })
	g.until("the learner has caught up", func(ctx context.Context) bool { return g.learns(ctx, learner) })
	if err := learner.Close(); err != nil {
		t.Fatal(err)
	}
	c.do(add())
	cfg.Dir = t.TempDir()
	learner = replaced(t, start(t, cfg), cfg, 5)
	g.until("the learner is back", func(ctx context.Context) bool { return g.learns(ctx, learner) })
	g.whole(1, 2, 3)
	if r := c.do(add()); r.Number != 3 {
		t.Errorf("the counter is %d, want 3", r.Number)
	}
}

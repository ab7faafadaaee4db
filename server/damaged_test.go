package server_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/storage"
	"github.com/holdfast-io/holdfast/server"
)

// damaged stops a node, damages its files and starts it again; it is let in as number.
func (g *group) damaged(i int, number uint64) server.Config {
	g.t.Helper()
	if err := g.nodes[i].Close(); err != nil {
		g.t.Fatal(err)
	}
	g.nodes[i] = g.nodes[(i+1)%3]
	damage(g.t, g.cfgs[i].Dir)
	cfg, notices := noticed(g.cfgs[i])
	s := start(g.t, cfg)
	hear(g.t, notices, "moved aside")
	g.nodes[i] = replaced(g.t, s, cfg, number)
	return cfg
}

// damage flips a bit in the middle of what a stopped node has logged.
func damage(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "log-*"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	b, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(bytes.TrimRight(b, "\x00"))/2] ^= 1
	if err := os.WriteFile(logs[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A voter with a damaged log is let in under another number, by itself: it votes never
// again under its old one, its files stay beside, and nothing is lost. So is one that the
// group had given a number, and the leader.
func TestDamagedNodesAreReplaced(t *testing.T) {
	g := newGroup(t, 3)
	c := newClient(t, 1, g.up)
	for range 20 {
		c.do(add())
	}
	i := (g.leader() + 1) % 3
	numbers := []uint64{1, 2, 3}
	for _, number := range []uint64{4, 5, 6} {
		if number == 6 {
			i = g.leader()
		}
		cfg := g.damaged(i, number)
		numbers[i] = number
		g.whole(slices.Sorted(slices.Values(numbers))...)
		c.do(add())
		g.sameState()
		if kept, err := filepath.Glob(filepath.Join(cfg.Dir, "damaged-*-log-*")); err != nil || len(kept) == 0 {
			t.Errorf("the damaged log is not kept: %v", err)
		}
	}
	if r := c.do(add()); r.Number != 24 {
		t.Errorf("the counter is %d, want 24", r.Number)
	}
}

// When the files of all founders are damaged they found no new group, also after another
// start; an operator that turned replacing off finds the files where they were.
func TestDamagedNodesFoundNothing(t *testing.T) {
	g := newGroup(t, 3)
	c := newClient(t, 1, g.up)
	for range 20 {
		c.do(add())
	}
	c.hangUp()
	for i := range g.nodes {
		if err := g.nodes[i].Close(); err != nil {
			t.Fatal(err)
		}
		damage(t, g.cfgs[i].Dir)
	}
	cfg := g.cfgs[0]
	cfg.NoReplace = true
	if _, err := server.New(cfg); !errors.Is(err, storage.ErrDamaged) {
		t.Fatalf("with NoReplace: %v", err)
	}
	for range 2 {
		var all []*server.Server
		var told []chan string
		for i := range g.nodes {
			cfg, notices := noticed(g.cfgs[i])
			all, told = append(all, start(t, cfg)), append(told, notices)
		}
		for i, s := range all {
			hear(t, told[i], "it founds no new group")
			if st, err := s.Status(within(t)); err != nil || st.Leader != 0 || st.Applied != 0 {
				t.Errorf("node %d: %+v, %v", i+1, st, err)
			}
		}
		for _, s := range all {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

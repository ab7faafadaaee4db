package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/watch"
	"github.com/holdfast-io/holdfast/server"
)

// Promise: "Where events are missing there is a watch:resync … or the error ErrCompacted:
// never a silent gap". What a lost server knew of, one that is started in its place on an empty
// directory does not, also after a restart.
func TestWatchOfAWipedServer(t *testing.T) {
	lost := start(t, server.Config{Dir: t.TempDir()})
	old := newClient(t, 1, one(lost)).do(lock()).Token
	lost.Close()
	cfg := server.Config{Dir: t.TempDir()}
	for _, what := range []string{"new", "with something", "started again"} {
		s := start(t, cfg)
		if what == "with something" {
			newClient(t, 2, one(s)).do(lock())
		}
		refusesOld(t, what, s, old)
		s.Close()
	}
}

// refusesOld checks that a watch goes on from nothing that another history has told.
func refusesOld(t *testing.T, what string, s *server.Server, old uint64) {
	t.Helper()
	for _, from := range []uint64{2, old, old + 1} {
		if _, _, err := s.Watch(watch.Filter{}, from); !isCompacted(err) {
			t.Errorf("%s: a watch from revision %d of a lost server: %v", what, from, err)
		}
	}
	if _, _, err := s.Watch(watch.Filter{}, 1); err != nil {
		t.Errorf("%s: a watch from the beginning: %v", what, err)
	}
}

// The same in a group of several, which begins at the clock by an entry of its log. A watch
// that has come before that is told to read the state anew.
func TestWatchOfAWipedGroup(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, lost *group) {
		old := newClient(t, 1, lost.up).do(lock()).Token
		for _, s := range lost.nodes {
			s.Close()
		}
		time.Sleep(time.Minute) // the clock has to go on between the two
		g := onWires(t, 3)
		early, _, err := g.nodes[0].Watch(watch.Filter{}, old+1)
		if err != nil {
			t.Fatal(err)
		}
		defer early.Close()
		token := newClient(t, 2, g.up).do(lock()).Token
		if _, resync, err := early.Next(within(t), nil, 10); err != nil || resync <= old+1 || resync > token+1 {
			t.Errorf("a watch from %d is told a resync to %d; the first token is %d: %v", old+1, resync, token, err)
		}
		g.sameState()
		for i, s := range g.nodes {
			refusesOld(t, fmt.Sprintf("node %d", i+1), s, old)
		}
	})
}

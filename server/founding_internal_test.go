package server

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/transport"
)

// A peer may refuse this node as soon as it listens. The node asks for another number
// when it is complete, not before.
func TestRefusedBeforeTheStartIsComplete(t *testing.T) {
	l := newLoop(nil, 1, 0)
	l.founding.empty.Store(true)
	s := &Server{loop: l}
	close(l.stopped)
	s.refused(l)(2, fmt.Errorf("%w: another directory", transport.ErrStranger))
	l.founding.wg.Wait()
	if in, _ := l.take(); len(in.todo) != 1 || !l.founding.asking.Load() {
		t.Errorf("the loop has %d things to do, and the node asks: %v", len(in.todo), l.founding.asking.Load())
	}
}

// A node that has nothing yet looks for a member that has moved where the others say that it
// is: at its old address, which --members still has, it could not answer it.
func TestPeersOf_MovedMember(t *testing.T) {
	s := &Server{cfg: Config{Founders: []Member{{ID: 1, Peer: "a:1"}, {ID: 2, Peer: "b:1"}, {ID: 3, Peer: "c:1"}, {ID: 6, Peer: "f:1"}}}}
	got := s.peersOf(map[uint64]replica.Word{
		1: {Node: 1, Members: replica.Membership{Endpoints: []replica.Endpoint{{ID: 1, Peer: "a:1"}, {ID: 3, Peer: "moved:1"}, {ID: 5, Peer: "e:1"}}}},
		6: {Node: 7},
	})
	if want := map[uint64]string{1: "a:1", 2: "b:1", 3: "moved:1", 5: "e:1", 7: "f:1"}; !maps.Equal(got, want) {
		t.Errorf("the peers are %v, want %v", got, want)
	}
}

// A node that has answered is there, whatever the others believe: they may not know yet that it has moved.
func TestPeersOf_Answered(t *testing.T) {
	s := &Server{cfg: Config{Founders: []Member{{ID: 1, Peer: "a:1"}, {ID: 2, Peer: "moved:1"}}}}
	old := replica.Membership{Endpoints: []replica.Endpoint{{ID: 1, Peer: "a:1"}, {ID: 2, Peer: "b:1"}}}
	got := s.peersOf(map[uint64]replica.Word{1: {Node: 1, Members: old}, 2: {Node: 2, Members: old}})
	if want := map[uint64]string{1: "a:1", 2: "moved:1"}; !maps.Equal(got, want) {
		t.Errorf("the peers are %v, want %v", got, want)
	}
}

// Of two nodes that say different things of a third, the same one is believed with each look.
func TestPeersOf_SameWithEachLook(t *testing.T) {
	s := &Server{cfg: Config{ID: 4, Founders: []Member{{ID: 1, Peer: "one:1"}, {ID: 2, Peer: "two:1"}, {ID: 3, Peer: "three:1"}}}}
	words := map[uint64]replica.Word{}
	for id := uint64(1); id <= 2; id++ {
		third := replica.Endpoint{ID: 3, Peer: fmt.Sprintf("three:%d", 10*id)}
		words[id] = replica.Word{Node: id, Members: replica.Membership{Endpoints: []replica.Endpoint{third, {ID: 10 + id, Peer: "five:1"}}}}
	}
	for range 50 { // a map has another order each time
		if got := s.peersOf(words)[3]; got != "three:20" {
			t.Fatalf("node 3 is looked for at %s", got)
		}
		if got := s.mayKnow(words)["five:1"]; got != 12 {
			t.Fatalf("node %d is asked at five:1", got)
		}
	}
}

// A node that waits to be let in, and reaches no leader for long, is told what a majority of lost disks
// needs; a leader that answers begins the count anew.
func TestUnledGroupIsTold(t *testing.T) {
	var f founding
	for range 2 {
		for i := range unledRounds - 1 {
			if text := f.unled(false); text != "" {
				t.Fatalf("in round %d it says %q", i, text)
			}
		}
		if text := f.unled(true); text != "" {
			t.Errorf("with a leader it says %q", text)
		}
	}
	text := ""
	for range unledRounds {
		text = f.unled(false)
	}
	if !strings.Contains(text, "--force-new-cluster") {
		t.Errorf("without a leader it says %q", text)
	}
}

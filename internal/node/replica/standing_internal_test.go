package replica

import (
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// The voter with the most of the log takes over; one that was asked and did not is asked
// again only if there is no other.
func TestStandingSuccessor(t *testing.T) {
	s := &standing{self: 1, members: &Membership{Conf: &raftpb.ConfState{Voters: []uint64{1, 2, 3, 4, 5}}},
		answers: map[uint64]bool{1: true, 2: true, 3: true, 4: true}, match: map[uint64]uint64{1: 9, 2: 7, 3: 8, 4: 6, 5: 9}}
	s.current = s.answers
	for _, c := range []struct {
		remove           []uint64
		asked, successor uint64
	}{
		{[]uint64{1}, 0, 3},
		{[]uint64{1}, 3, 2},
		{[]uint64{1}, 2, 3},
		{[]uint64{1, 3}, 0, 2},
		{[]uint64{1, 2, 4}, 3, 3},
		{[]uint64{1, 2, 3, 4}, 0, 0},
	} {
		if got := s.successor(Change{Remove: c.remove}, c.asked); got != c.successor {
			t.Errorf("without %v, after %d was asked: %d, want %d", c.remove, c.asked, got, c.successor)
		}
	}
}

// The removal of a leader is refused with the reasons if no voter that stays can take over now, be it that one of them has
// only yet to catch up: else the order would be answered without a reason, again and again.
func TestStandingHeadless(t *testing.T) {
	s := &standing{self: 1, members: &Membership{Conf: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}}, answers: map[uint64]bool{1: true, 2: true, 3: true},
		current: map[uint64]bool{1: true, 2: true}, ails: map[uint64]ailment{2: ailsFull}}
	c := Change{Remove: []uint64{1}}
	if got := s.headless(c); !strings.Contains(got, "the disk of node 2 is full") || !strings.Contains(got, "node 3 has not caught up") {
		t.Errorf("a leader with successors that are full or behind is not removed: %q", got)
	}
	s.current[3] = true
	if got := s.headless(c); got != "" || s.successor(c, 3) != 3 {
		t.Errorf("with node 3 caught up: %q, to %d", got, s.successor(c, 3))
	}
}

// A group that began with one address for the clients of two members, or for clients and nodes, goes on: neither what the
// leader notes of one of them, nor a node in its place is refused for it.
func TestSameClientsOfBefore(t *testing.T) {
	for _, two := range [][]Endpoint{
		{{ID: 1, Peer: "a", Client: "one"}, {ID: 2, Peer: "b", Client: "one"}},
		{{ID: 1, Peer: "a", Client: "one"}, {ID: 2, Peer: "b", Client: "b"}},
		{{ID: 1, Peer: "a", Client: "b"}, {ID: 2, Peer: "b", Client: "a"}},
	} {
		s := &standing{members: &Membership{Endpoints: two}}
		for _, c := range []Change{{Update: two[1:]}, s.expand(Change{Replace: []Endpoint{{ID: 2}}})} {
			if text := s.sameClients(c) + s.crossed(c); text != "" {
				t.Errorf("%+v: %s", c, text)
			}
		}
	}
}

// A voter takes over if it answers and has caught up: for another the group would stand still.
func TestStandingUnfit(t *testing.T) {
	s := &standing{self: 1, answers: map[uint64]bool{1: true, 2: true, 3: true}, current: map[uint64]bool{1: true, 2: true, 4: true}}
	for id, want := range map[uint64]string{1: "", 2: "", 3: "has not caught up", 4: "does not answer", 5: "does not answer"} {
		if got := s.unfit(id); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("node %d: %q, want %q", id, got, want)
		}
	}
}

// An address for clients that is another member's is no news of a leader; what else the group does
// not know of it is.
func TestClientAddressOfAnotherIsNoNews(t *testing.T) {
	n := &Node{members: Membership{Endpoints: []Endpoint{{ID: 1}, {ID: 2, Peer: "b", Client: "one"}}}}
	for _, own := range []string{"one", "b", "two"} {
		n.cfg = Config{ID: 1, Peer: "a", Client: own}
		want := Endpoint{ID: 1, Peer: "a"}
		if own == "two" {
			want.Client = own
		}
		if got, news := n.selfNews(); !news || got != want {
			t.Errorf("with %q for clients: %+v, %v", own, got, news)
		}
	}
}

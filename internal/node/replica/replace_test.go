package replica_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// at are the addresses of a node.
func at(peer string) replica.Endpoint {
	return replica.Endpoint{Peer: peer, Client: "client of " + peer}
}

// lost is a group of three at addresses of their own, of which node 3 is silent.
func lost(t *testing.T) *couple {
	t.Helper()
	c := newCouple(t, replica.Config{Peer: "p1", Dir: 11})
	c.ticks(2)
	for id := uint64(2); id <= 3; id++ {
		c.start(id, replica.Config{Dir: 11 * id}, replica.Joining(core.Config{}))
		c.done(replica.Change{Add: []replica.Endpoint{{ID: id, Peer: "p" + string(rune('0'+id)), Client: "c" + string(rune('0'+id))}}})
		c.nodes[1].Met(c.now, id, 11*id, replica.Versions{})
		c.ticks(20)
		c.done(promoting(id))
	}
	c.silent = 3
	c.ticks(11)
	return c
}

// place asks for a number, and returns the answer.
func (c *couple) place(e replica.Endpoint, anew bool) replica.Answer {
	c.t.Helper()
	c.told = nil
	c.nodes[1].Place(c.now, 9, e, anew)
	return c.answer(e)
}

func number(a replica.Answer) uint64 {
	if a.Outcome != replica.Done || len(a.Data) != 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(a.Data)
}

// A node that lost its directory gets a new number in the place of the old one, the
// same as often as it asks, and votes when it has caught up, without being asked.
func TestLostNodeGetsANumber(t *testing.T) {
	c := lost(t)
	if a := c.place(at("p9"), true); a.Code != core.CodeNotExist || !strings.Contains(a.Text, "holdfast member add 4 p9 CLIENT") {
		t.Errorf("where no node is expected: %+v", a)
	}
	if a := c.place(at("p2"), true); a.Code != core.CodeConflict {
		t.Errorf("in the place of a node that answers: %+v", a)
	}
	if a := c.place(at("p3"), false); a.Code != core.CodeConflict {
		t.Errorf("in the place of a lost node, and without the operator: %+v", a)
	}
	if n := number(c.place(at("p3"), true)); n != 4 {
		t.Fatalf("the lost node gets number %d, want 4", n)
	}
	c.ticks(2)
	if n := number(c.place(at("p3"), false)); n != 4 {
		t.Errorf("asked again it gets number %d, want 4", n)
	}
	c.start(4, replica.Config{Dir: 44}, replica.Joining(core.Config{}))
	c.nodes[1].Met(c.now, 4, 44, replica.Versions{})
	c.ticks(60)
	m := c.nodes[1].Status().Members
	if got := slices.Sorted(slices.Values(m.Conf.GetVoters())); !slices.Equal(got, []uint64{1, 2, 4}) || len(m.Conf.GetLearners()) > 0 || len(m.Conf.GetVotersOutgoing()) > 0 {
		t.Errorf("in the end the group is %v, want the voters 1, 2 and 4", m.Conf)
	}
	if m.Directory(3) != replica.Removed || m.Directory(4) != 44 {
		t.Errorf("the directories are %+v, used are %v", m.Endpoints, m.Used)
	}
}

// Replacing by hand is the same; it is refused where it would end the group.
func TestReplace(t *testing.T) {
	c := lost(t)
	replacing := func(id uint64) replica.Change { return replica.Change{Replace: []replica.Endpoint{{ID: id}}} }
	c.refused(replacing(7), core.CodeInvalid, "cannot be replaced: the members are 1, 2 and 3")
	c.refused(replacing(1), core.CodeConflict, "is not lost")
	c.refused(replacing(2), core.CodeConflict, "is not lost")
	c.refused(replica.Change{Replace: []replica.Endpoint{{ID: 3}}, Remove: []uint64{3}}, core.CodeInvalid, "named twice")
	if n := number(c.change(replica.Change{Replace: []replica.Endpoint{{ID: 3, Peer: "elsewhere", Client: "there"}}})); n != 4 {
		t.Errorf("the number is %d, want 4", n)
	}
	c.ticks(2)
	m := c.nodes[1].Status().Members
	want := replica.Endpoint{ID: 4, Peer: "elsewhere", Client: "there", Voter: true}
	if !slices.Contains(m.Endpoints, want) || !slices.Equal(m.Conf.GetLearners(), []uint64{4}) {
		t.Errorf("the group is %+v, want %+v in it", m, want)
	}
}

// A node with the greatest number there is does not end replacements, also not when it is
// gone again: numbers that were never given are left.
func TestReplaceAfterTheGreatestNumber(t *testing.T) {
	c := grown(t)
	c.done(adding(replica.MaxNumber))
	c.done(removing(replica.MaxNumber))
	c.silent = 3
	c.ticks(11)
	if n := number(c.change(replica.Change{Replace: []replica.Endpoint{{ID: 3}}})); n != 4 {
		t.Errorf("the new number is %d, want 4", n)
	}
}

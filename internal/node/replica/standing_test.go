package replica_test

import (
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// change asks node 1 for a change and returns its answer.
func (c *couple) change(ch replica.Change) replica.Answer {
	c.t.Helper()
	c.settle()
	return c.order(1, ch)
}

// order asks a node for a change and returns its answer, which may wait for those that stay.
func (c *couple) order(node uint64, ch replica.Change) replica.Answer {
	c.t.Helper()
	c.told = nil
	c.nodes[node].ChangeMembers(c.now, 9, ch)
	return c.answer(ch)
}

// answer is the only one that comes, at once or when those that stay have been heard.
func (c *couple) answer(to any) replica.Answer {
	c.t.Helper()
	c.settle()
	for t := 0; t <= 10 && len(c.told) == 0; t++ {
		c.ticks(1)
	}
	if len(c.told) != 1 {
		c.t.Fatalf("%+v is answered %+v", to, c.told)
	}
	return c.told[0]
}

// done asks for a change that has to be made.
func (c *couple) done(ch replica.Change) {
	c.t.Helper()
	if a := c.change(ch); a.Outcome != replica.Done {
		c.t.Fatalf("%+v is not done: %s", ch, a.Text)
	}
}

// refused asks for a change that must not be made, and changes nothing.
func (c *couple) refused(ch replica.Change, code core.Code, why string) {
	c.t.Helper()
	before := c.nodes[1].Status()
	a := c.change(ch)
	if a.Outcome != replica.NotDone || a.Code != code || !strings.Contains(a.Text, why) {
		c.t.Errorf("%+v: outcome %d, code %d, %q; want it refused with code %d and %q", ch, a.Outcome, a.Code, a.Text, code, why)
	}
	if after := c.nodes[1].Status(); after.Applied != before.Applied || after.Flying > 0 {
		c.t.Errorf("%+v was refused, and left an entry", ch)
	}
}

func adding(id uint64) replica.Change {
	return replica.Change{Add: []replica.Endpoint{{ID: id, Peer: fmt.Sprintf("peer-%d", id), Client: fmt.Sprintf("client-%d", id)}}}
}

func promoting(id uint64) replica.Change { return replica.Change{Promote: []uint64{id}} }
func removing(id uint64) replica.Change  { return replica.Change{Remove: []uint64{id}} }

// grown is a group of three voters, led by node 1.
func grown(t *testing.T) *couple {
	t.Helper()
	c := newCouple(t, replica.Config{})
	for id := uint64(2); id <= 3; id++ {
		c.start(id, replica.Config{}, replica.Joining(core.Config{}))
		c.done(adding(id))
		c.ticks(20)
		c.done(promoting(id))
	}
	return c
}

// A learner votes only if it exists, answers and has caught up: one that was never
// started would count for the majority for ever.
func TestPromoteOnlyWhoCanVote(t *testing.T) {
	c := newCouple(t, replica.Config{})
	c.put(10)
	c.refused(promoting(2), core.CodeInvalid, "no member: add it first")
	c.slow = true // the snapshot that it needs is not finished
	c.done(adding(2))
	c.ticks(20)
	c.refused(promoting(2), core.CodeConflict, "has not answered")
	c.refused(promoting(1), core.CodeInvalid, "votes already")
	c.put(1) // the group of one goes on

	c.start(2, replica.Config{}, replica.Joining(core.Config{}))
	c.ticks(20)
	c.refused(promoting(2), core.CodeConflict, "has not caught up")
	c.slow = false
	c.save(c.nodes[1], c.making)
	c.ticks(20)
	c.done(promoting(2))
	c.put(1)
	if voters := c.nodes[2].Status().Members.Conf.GetVoters(); len(voters) != 2 {
		t.Errorf("the voters are %v, want two", voters)
	}
}

// Those that answer now must be a majority after a removal.
func TestRemoveLeavesAMajorityThatAnswers(t *testing.T) {
	c := grown(t)
	c.silent = 3
	c.ticks(11)
	c.refused(removing(2), core.CodeConflict, "the voters would be 1 and 3, and 3 did not answer within 1s: a majority needs 2 of them")
	c.refused(removing(1), core.CodeConflict, "the voters would be 2 and 3, and 3 did not answer")
	c.done(removing(3)) // the silent one is no loss
	c.refused(replica.Change{Remove: []uint64{1, 2}}, core.CodeInvalid, "no voter would be left (now: 1 and 2)")
	c.done(removing(2))
	c.refused(removing(1), core.CodeInvalid, "no voter would be left (now: 1)")
	c.put(1)
}

// A voter gets a new address if it was seen there, or if those that answer are a majority
// without it: a wrong address would end the group at once.
func TestUpdateLeavesAMajorityThatAnswers(t *testing.T) {
	moving := func(id uint64, seen ...uint64) replica.Change {
		return replica.Change{Update: []replica.Endpoint{{ID: id, Peer: fmt.Sprintf("new-%d-%d", id, len(seen)), Client: fmt.Sprintf("client-%d", id)}}, Seen: seen}
	}
	c := grown(t)
	c.silent = 3
	c.ticks(11)
	c.refused(moving(2), core.CodeConflict, "nothing of this group answers as node 2 at its new address")
	c.refused(moving(2, 3), core.CodeConflict, "without 2 and 3 those that answer now are no majority")
	c.done(replica.Change{Update: []replica.Endpoint{{ID: 2, Peer: "peer-2", Client: "elsewhere"}}}) // clients do not vote
	c.done(moving(3))                                                                                // the silent one is no loss
	c.done(moving(2, 2))
	c.silent = 0
	c.ticks(11)
	c.done(moving(2))
	c.put(1)
}

// A member that was seen at the address of another gets it, and the other one the address that it has left: none of the two is
// where it was, so that nothing more has to answer for it. Members that have changed places in a ring are told one by one.
func TestUpdateExchangesAddresses(t *testing.T) {
	to := func(id, at uint64, seen ...uint64) replica.Change {
		return replica.Change{Update: []replica.Endpoint{{ID: id, Peer: fmt.Sprintf("peer-%d", at), Client: fmt.Sprintf("client-%d", at)}}, Seen: seen}
	}
	c := grown(t)
	is := func(places ...uint64) {
		t.Helper()
		for i, at := range places {
			got := c.nodes[1].Status().Members.Endpoints[i]
			if want := to(uint64(i+1), at).Update[0]; got.Peer != want.Peer || got.Client != want.Client {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
	}
	c.done(replica.Change{Update: to(1, 1).Update})
	c.refused(to(2, 3), core.CodeInvalid, "node 3 is at peer-3 already")
	c.refused(to(2, 3, 3), core.CodeInvalid, "node 3 is at peer-3 already")
	c.done(to(2, 3, 2))
	is(1, 3, 2)
	c.done(to(3, 2, 3))
	is(1, 3, 2)
	c.done(to(2, 1, 2))
	is(3, 1, 2)
	c.done(replica.Change{Update: []replica.Endpoint{{ID: 3, Peer: "peer-3", Client: "client-2"}}, Seen: []uint64{3}})
	if e := c.nodes[1].Status().Members.Endpoints[0]; e.Peer != "peer-2" || e.Client != "client-3" {
		t.Errorf("%+v, of which nothing was said but that it is not at peer-3", e)
	}
}

// In a group of two the exchange is taken, too: of the one that was not seen nothing is lost.
func TestUpdateExchangesAddresses_Two(t *testing.T) {
	for _, id := range []uint64{1, 2} {
		c := spelled(t)
		were := c.nodes[1].Status().Members.Endpoints
		at := were[2-id]
		at.ID = id
		c.done(replica.Change{Update: []replica.Endpoint{at}, Seen: []uint64{id}})
		for i, e := range c.nodes[2].Status().Members.Endpoints {
			if want := were[1-i]; e.Peer != want.Peer || e.Client != want.Client || e.Dir != were[i].Dir {
				t.Errorf("node %d is told: %+v, want the addresses of %+v", id, e, want)
			}
		}
		c.put(1)
	}
}

// An address that stands for all of a machine is no place to find a node.
func TestAddressOfNobodyIsRefused(t *testing.T) {
	c := newCouple(t, replica.Config{Peer: "10.0.0.1:7421"})
	c.ticks(2)
	for _, addr := range []string{"0.0.0.0:7421", ":7421", "[::]:7421"} {
		for _, ch := range []replica.Change{{Add: []replica.Endpoint{{ID: 2, Peer: addr}}}, {Update: []replica.Endpoint{{ID: 1, Peer: addr}}}} {
			c.refused(ch, core.CodeInvalid, "no other node could find node")
		}
	}
}

// Clients find one node at an address: a change that says otherwise is refused, but not one that
// leaves it as it is, nor one that gives on the address of a node that leaves it.
func TestClientAddressOfAnotherIsRefused(t *testing.T) {
	c := grown(t)
	for _, ch := range []replica.Change{
		{Update: []replica.Endpoint{{ID: 3, Peer: "peer-3", Client: "client-2"}}},
		{Add: []replica.Endpoint{{ID: 4, Peer: "peer-4", Client: "client-2"}}},
		{Add: []replica.Endpoint{{ID: 4, Peer: "peer-4", Client: "new"}, {ID: 5, Peer: "peer-5", Client: "new"}}},
	} {
		c.refused(ch, core.CodeInvalid, "already: give node")
	}
	c.silent = 3
	c.ticks(11)
	c.refused(replica.Change{Replace: []replica.Endpoint{{ID: 3, Client: "client-2"}}}, core.CodeInvalid, "clients find node 2 at client-2 already")
	c.silent = 0
	c.ticks(11)
	c.done(replica.Change{Update: []replica.Endpoint{{ID: 3, Peer: "peer-3", Client: "client-3"}}})
	c.done(replica.Change{Update: []replica.Endpoint{{ID: 2, Peer: "peer-2", Client: "client-3"}, {ID: 3, Peer: "peer-3", Client: "client-2"}}})
}

// Clients and other nodes find no member at one address, be it the same member: what is said to the
// one is not understood by the other. Only what a member has already is taken.
func TestAddressForBothIsRefused(t *testing.T) {
	c := grown(t)
	for _, ch := range []replica.Change{
		{Update: []replica.Endpoint{{ID: 3, Peer: "peer-3", Client: "peer-3"}}},
		{Update: []replica.Endpoint{{ID: 3, Peer: "peer-3", Client: "peer-2"}}},
		{Update: []replica.Endpoint{{ID: 3, Peer: "client-2", Client: "client-3"}}},
		{Add: []replica.Endpoint{{ID: 4, Peer: "new", Client: "new"}}},
		{Add: []replica.Endpoint{{ID: 4, Peer: "client-3", Client: "new"}}},
		{Add: []replica.Endpoint{{ID: 4, Peer: "new", Client: "peer-3"}}},
		{Add: []replica.Endpoint{{ID: 4, Peer: "new", Client: "client-4"}, {ID: 5, Peer: "peer-5", Client: "new"}}},
	} {
		c.refused(ch, core.CodeInvalid, "has two addresses, one for each")
	}
	c.done(replica.Change{Update: []replica.Endpoint{{ID: 3, Peer: "peer-3", Client: "elsewhere"}}})
}

// spelled is a group of two with addresses that can be written in several ways.
func spelled(t *testing.T) *couple {
	t.Helper()
	c := newCouple(t, replica.Config{Peer: "localhost:7421", Client: "Node1:7420"})
	c.ticks(2)
	c.start(2, replica.Config{}, replica.Joining(core.Config{}))
	c.done(replica.Change{Add: []replica.Endpoint{{ID: 2, Peer: "[2001:db8::2]:7421", Client: "node2:7420"}}})
	c.ticks(20)
	c.done(promoting(2))
	return c
}

// An address is the same in all its spellings: no two members have it, nor clients and nodes, and to spell the
// address of a member in another way does not move it.
func TestAddressInAnotherSpelling(t *testing.T) {
	c := spelled(t)
	for why, e := range map[string]replica.Endpoint{
		"node 1 is at LocalHost:7421 already":                              {ID: 4, Peer: "LocalHost:7421"},
		"clients find node 1 at NODE1:7420 already":                        {ID: 4, Peer: "node4:7421", Client: "NODE1:7420"},
		"at [2001:DB8:0::2]:7421 clients would find node 4":                {ID: 4, Peer: "node4:7421", Client: "[2001:DB8:0::2]:7421"},
		"at node2.:7420 clients would find node 2, and other nodes node 4": {ID: 4, Peer: "node2.:7420"},
	} {
		c.refused(replica.Change{Add: []replica.Endpoint{e}}, core.CodeInvalid, why)
	}
	c.refused(replica.Change{Update: []replica.Endpoint{{ID: 2, Peer: "[2001:db8::3]:7421", Client: "node2:7420"}}}, core.CodeConflict, "nothing of this group answers as node 2 at its new address")
	c.done(replica.Change{Update: []replica.Endpoint{{ID: 2, Peer: "[2001:DB8:0::2]:7421", Client: "NODE2:7420"}}})
}

// A node that lost its directory is known by its address, however it spells it.
func TestLostNodeSpellsItsAddress(t *testing.T) {
	c := spelled(t)
	c.start(3, replica.Config{}, replica.Joining(core.Config{}))
	c.done(replica.Change{Add: []replica.Endpoint{{ID: 3, Peer: "node3:7421"}}})
	c.ticks(20)
	c.done(promoting(3))
	c.nodes[1].Met(c.now, 3, 33, replica.Versions{})
	c.ticks(2)
	c.silent = 3
	c.ticks(11)
	if a := c.place(replica.Endpoint{Peer: "Node3.:7421"}, true); number(a) != 4 {
		t.Errorf("it is answered %+v", a)
	}
}

// A number is given once: not while its node is a member, and not afterwards, also
// when the memory of it went through a snapshot's header.
func TestNumbersAreGivenOnce(t *testing.T) {
	c := grown(t)
	c.refused(adding(2), core.CodeInvalid, "node 2 is a member already")
	for _, id := range []uint64{0, replica.MaxNumber + 1, raft.LocalAppendThread, raft.LocalApplyThread} {
		c.refused(adding(id), core.CodeInvalid, "a node's number is from 1 to 4294967295")
	}
	same := replica.Endpoint{ID: 4, Peer: "peer-2"}
	c.refused(replica.Change{Add: []replica.Endpoint{same}}, core.CodeInvalid, "node 2 is at peer-2 already")
	c.refused(replica.Change{Update: []replica.Endpoint{{ID: 3, Peer: "peer-2"}}}, core.CodeInvalid, "node 2 is at peer-2 already")
	c.refused(removing(9), core.CodeInvalid, "the members are 1, 2 and 3")
	c.done(removing(2))
	c.refused(adding(2), core.CodeInvalid, "number 2 was given to a node that was removed")
	c.done(adding(7))
	c.done(removing(7))
	c.refused(adding(7), core.CodeInvalid, "such as 8")
	for id := uint64(1); id <= 3; id += 2 {
		m := c.nodes[id].Status().Members
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := replica.DecodeMembership(b)
		if err != nil || len(again.Used) != 2 || again.Used[0] != 2 || again.Used[1] != 7 {
			t.Errorf("node %d remembers %v (%v), want 2 and 7", id, again.Used, err)
		}
	}
}

// A change that names a node twice, or nothing, or that comes during another is
// refused.
func TestOneChangeAtATime(t *testing.T) {
	c := grown(t)
	c.refused(replica.Change{}, core.CodeInvalid, "nothing is to change")
	c.refused(replica.Change{Add: adding(4).Add, Remove: []uint64{4}}, core.CodeInvalid, "node 4 is named twice")
	c.told = nil
	c.nodes[1].ChangeMembers(c.now, 8, adding(4))
	c.nodes[1].ChangeMembers(c.now, 9, adding(5))
	c.settle()
	if len(c.told) != 2 || c.told[0].Caller != 9 || c.told[0].Code != core.CodeConflict || c.told[1].Outcome != replica.Done {
		t.Errorf("of two changes at once: %+v; want the second refused, and the first done", c.told)
	}
}

// A node without a way to others adds none: the change would be durable, and the
// node could not send what follows from it.
func TestSoloNodeAddsNobody(t *testing.T) {
	c := newCouple(t, replica.Config{Solo: true})
	c.refused(adding(2), core.CodeInvalid, "no address for other nodes")
	c.put(1)
}

// A leader notes its addresses if the group does not know them; those that it knows
// stay, and an operator can change them.
func TestLeaderNotesItsAddresses(t *testing.T) {
	c := newCouple(t, replica.Config{Peer: "peer 1", Client: "client 1"})
	c.refused(adding(2), core.CodeConflict, "yet to note the address")
	c.ticks(2)
	if m := c.nodes[1].Status().Members; len(m.Endpoints) != 1 || m.Endpoints[0] != (replica.Endpoint{ID: 1, Peer: "peer 1", Client: "client 1"}) {
		t.Fatalf("the membership has %+v", m.Endpoints)
	}
	moved := replica.Endpoint{ID: 1, Peer: "elsewhere", Client: "here"}
	c.done(replica.Change{Update: []replica.Endpoint{moved}})
	c.ticks(2)
	if m := c.nodes[1].Status().Members; m.Endpoints[0] != moved || len(m.Conf.GetVoters()) != 1 {
		t.Errorf("the membership has %+v, want %+v", m.Endpoints, moved)
	}
	c.refused(replica.Change{Update: []replica.Endpoint{{ID: 5}}}, core.CodeInvalid, "no member")
}

// A membership of version 1 is read.
func TestMembershipOfVersionOne(t *testing.T) {
	old := []byte("\x01\x05\x00\x00\x00\x00\x00\x00\x00\x04\x08\x01\x08\x02\x01\x00\x00\x00\x00\x00\x00\x00\x01p\x01c\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	m, err := replica.DecodeMembership(old)
	if err != nil {
		t.Fatal(err)
	}
	want := &raftpb.ConfState{Voters: []uint64{1, 2}}
	if m.Held != 5 || m.Conf.String() != want.String() || len(m.Endpoints) != 2 || m.Endpoints[0] != (replica.Endpoint{ID: 1, Peer: "p", Client: "c"}) || len(m.Used) != 0 {
		t.Errorf("it is %+v", m)
	}
}

// A leader that is to be removed hands over first, and the one that takes over removes
// it: otherwise the others might need the vote of a node that has left to learn that it
// has.
func TestLeaderIsRemovedByItsSuccessor(t *testing.T) {
	c := grown(t)
	a := c.change(removing(1))
	if voters := c.nodes[1].Status().Members.Conf.GetVoters(); a.Outcome != replica.NotDone || a.Code != core.CodeOK || len(voters) != 3 {
		t.Fatalf("a leader that is to be removed answers %+v; voters %v", a, voters)
	}
	c.ticks(3)
	next := c.nodes[1].Status().Leader
	if next == 1 || next == 0 {
		t.Fatalf("node %d leads", next)
	}
	a = c.order(next, removing(1))
	if voters := c.nodes[next].Status().Members.Conf.GetVoters(); a.Outcome != replica.Done || len(voters) != 2 {
		t.Errorf("its successor answers %+v; voters %v", a, voters)
	}
}

// A leader that nobody could take over from stays.
func TestLastVoterIsNotReplacedInOneChange(t *testing.T) {
	c := newCouple(t, replica.Config{})
	c.start(2, replica.Config{}, replica.Joining(core.Config{}))
	c.done(adding(2))
	c.ticks(20)
	c.refused(replica.Change{Promote: []uint64{2}, Remove: []uint64{1}}, core.CodeConflict, "node 1 leads, and no voter stays that could take over from it: promote another one first")
	c.done(promoting(2))
	c.put(1)
}

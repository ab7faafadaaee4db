package replica_test

import (
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// unfit: leadership must not be handed to a node, for a reason; "": it may.
func (x *trio) unfit(id uint64, why string) {
	x.t.Helper()
	if got := x.nodes[1].Unfit(id); why == "" && got != "" || !strings.Contains(got, why) {
		x.t.Errorf("node %d cannot take over: %q, want %q", id, got, why)
	}
}

// A node with a full or a stuck disk, and one that differs, is not made the leader as long as that lasts. A full disk is no
// reason against it if that of the leader is full, too.
func TestAilingNodesAreUnfit(t *testing.T) {
	x := checking(t)
	x.tickAll(25)
	x.unfit(2, "")
	x.nodes[2].SetFull(true)
	x.tickAll(1)
	x.unfit(2, "the disk of node 2 is full")
	x.unfit(3, "")
	x.nodes[1].SetFull(true)
	x.unfit(2, "")
	x.nodes[1].SetFull(false)
	x.nodes[2].SetFull(false)
	x.tickAll(11)
	x.unfit(2, "")
	x.stuck = 2
	x.add(5, nil)
	x.tickAll(12)
	x.unfit(2, "the disk of node 2 has not written for 1s")
	x.stuck = 0
	x.damage(3, 4)
	x.park = true
	x.healing(3)
	x.tickAll(1)
	x.unfit(3, "node 3 differs from the others")
}

// A leader with a stuck disk hands over to a node that is well, if there is one, and to a full one else.
func TestSlowDiskHandsOverToTheWell(t *testing.T) {
	for _, all := range []bool{false, true} {
		x := newTrio(t)
		x.stuck = 1
		x.nodes[2].SetFull(true)
		x.nodes[3].SetFull(all)
		x.nodes[1].Submit(x.now, 7, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{1}, Attempt: 1, Mark: 1, Commands: []core.Command{open()}}))
		x.ticking(15)
		if two, three := x.nodes[2].Status().Serving, x.nodes[3].Status().Serving; all && !two && !three || !all && !three {
			t.Errorf("all are full: %v; node 2 serves: %v, node 3 serves: %v", all, two, three)
		}
	}
}

// A leader that is to be removed hands over to a node that is well, and without one it is told why it stays.
func TestRemovedLeaderHandsOverToTheWell(t *testing.T) {
	c := grown(t)
	c.ticks(25)
	c.nodes[2].SetFull(true)
	c.nodes[3].SetFull(true)
	c.ticks(1)
	c.refused(removing(1), core.CodeConflict, "no voter stays that could take over from it: the disk of node 2 is full")
	c.nodes[3].SetFull(false)
	c.ticks(11)
	c.nodes[1].ChangeMembers(c.now, 9, removing(1))
	c.settle()
	if !c.nodes[3].Status().Serving {
		t.Errorf("node %d leads, want node 3", c.nodes[3].Status().Leader)
	}
}

// Of two nodes that are to be removed at the same time the one that leads goes, and the other stays:
// they do not hand over to each other for as long as both are asked for.
func TestTwoRemovalsDoNotCross(t *testing.T) {
	c := grown(t)
	c.done(removing(3))
	c.ticks(25)
	c.nodes[1].ChangeMembers(c.now, 9, removing(1))
	c.settle()
	if !c.nodes[2].Status().Serving {
		t.Fatal("node 2 has not taken over")
	}
	c.told = nil
	for range 5 { // the order to remove node 2 is always there before the other
		c.nodes[2].ChangeMembers(c.now, 10, removing(2))
		c.settle()
		c.ticks(1)
	}
	for _, a := range c.told {
		if a.Code != core.CodeConflict || !strings.Contains(a.Text, "node 1 is about to be removed") {
			t.Errorf("the removal of node 2 is answered %+v", a)
		}
	}
	if a := c.order(2, removing(1)); a.Outcome != replica.Done {
		t.Errorf("the removal of node 1 is answered %+v", a)
	}
}

// A node that was to be removed, and was not, can lead again soon.
func TestNodeThatWasNotRemovedLeadsAgain(t *testing.T) {
	c := grown(t)
	c.ticks(25)
	c.nodes[1].ChangeMembers(c.now, 9, removing(1))
	c.settle()
	leader := c.nodes[c.nodes[1].Status().Leader]
	if why := leader.Unfit(1); !strings.Contains(why, "about to be removed") {
		t.Errorf("node 1 cannot take over: %q", why)
	}
	c.ticks(35)
	if why := leader.Unfit(1); why != "" {
		t.Errorf("three election timeouts later node 1 cannot take over: %q", why)
	}
}

// A leader with a stuck disk does not hand over to a node that heals, which would not take over: it would propose nothing
// for an election timeout, again and again.
func TestSlowDiskDoesNotHandOverToAHealingNode(t *testing.T) {
	x := checking(t)
	x.damage(3, 4)
	x.park = true
	x.healing(3)
	x.gone, x.stuck = 2, 1
	asked := 0
	x.drop = func(m replica.Message) bool {
		if typeOf(m) == raftpb.MsgTimeoutNow {
			asked++
		}
		return false
	}
	x.add(5, nil)
	x.tickAll(25)
	if st := x.nodes[3].Status(); asked > 0 || !st.Healing {
		t.Errorf("node 3 heals: %v, and was asked to lead %d times", st.Healing, asked)
	}
}

// A node that stops hands over to one that is well, to a full one if there is no other, and to none that heals.
func TestTakesOver(t *testing.T) {
	x := checking(t)
	x.tickAll(25)
	x.nodes[2].SetFull(true)
	x.tickAll(1)
	if to := x.nodes[1].TakesOver(); to != 3 {
		t.Errorf("of a full node and one that is well %d is to lead", to)
	}
	x.damage(3, 4)
	x.park = true
	x.healing(3)
	x.tickAll(1)
	if to := x.nodes[1].TakesOver(); to != 2 {
		t.Errorf("of a full node and one that heals %d is to lead", to)
	}
	x.gone = 2
	x.tickAll(12)
	if to := x.nodes[1].TakesOver(); to != 0 {
		t.Errorf("of one that is away and one that heals %d is to lead", to)
	}
}

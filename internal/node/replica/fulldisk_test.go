package replica_test

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// leads is the node that serves; 0: none.
func (x *trio) leads() uint64 {
	for id, n := range x.nodes {
		if n.Status().Serving {
			return id
		}
	}
	return 0
}

// full has the disks of some nodes full, and of the others not.
func (x *trio) full(ids ...uint64) {
	for _, n := range x.nodes {
		n.SetFull(false)
	}
	for _, id := range ids {
		x.nodes[id].SetFull(true)
	}
}

// "A leader with a disk that stays full for five seconds hands over to a node with room": not before, and the next one keeps the lead.
func TestFullLeaderHandsOver(t *testing.T) {
	x := newTrio(t)
	x.tickAll(25)
	x.full(1)
	x.tickAll(49)
	if at := x.leads(); at != 1 {
		t.Fatalf("a little before its time node %d leads", at)
	}
	x.tickAll(5)
	at, term := x.leads(), x.nodes[1].Status().Term
	if at != 2 && at != 3 {
		t.Fatalf("after five election timeouts node %d leads", at)
	}
	x.tickAll(200)
	if now := x.leads(); now != at || x.nodes[1].Status().Term != term {
		t.Errorf("node %d led, now it is %d", at, now)
	}
}

// Nothing changes hands if the nodes with room are no majority: of the log of a full node the group would need more.
func TestFullLeaderKeepsTheLead(t *testing.T) {
	for what, set := range map[string]func(*trio){
		"all are full":                     func(x *trio) { x.full(1, 2, 3) },
		"another is full":                  func(x *trio) { x.full(1, 2) },
		"another is away":                  func(x *trio) { x.full(1); x.gone = 2 },
		"two are full, none of them leads": func(x *trio) { x.full(2, 3) },
	} {
		x := newTrio(t)
		x.tickAll(25)
		term := x.nodes[1].Status().Term
		set(x)
		x.tickAll(200)
		if at := x.leads(); at != 1 || x.nodes[1].Status().Term != term {
			t.Errorf("%s: node %d leads, in term %d and not %d", what, at, x.nodes[1].Status().Term, term)
		}
	}
}

// A disk that is full now and then is not full for long.
func TestFullNowAndThen(t *testing.T) {
	x := newTrio(t)
	for range 6 {
		x.full(1)
		x.tickAll(30)
		x.full()
		x.tickAll(1)
	}
	if at := x.leads(); at != 1 {
		t.Errorf("node %d leads", at)
	}
}

// A full leader that nobody takes over from serves meanwhile: it asks again only after as long a time.
func TestFullLeaderAsksSeldom(t *testing.T) {
	x := newTrio(t)
	x.tickAll(25)
	asked := map[uint64]int{}
	x.drop = func(m replica.Message) bool {
		lost := typeOf(m) == raftpb.MsgTimeoutNow
		if lost {
			asked[m.To]++
		}
		return lost
	}
	x.full(1)
	x.tickAll(200)
	if x.leads() != 1 || asked[2] == 0 || asked[3] == 0 || asked[2]+asked[3] > 4 {
		t.Errorf("node %d leads; asked to: %v", x.leads(), asked)
	}
}

package replica_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// checking is a trio of version 3 with a counter, which is checked every ten seconds.
func checking(t *testing.T) *trio {
	t.Helper()
	return checkingFrom(t, newTrioOf(t, replica.Config{CheckEvery: 10 * time.Second}))
}

func checkingFrom(t *testing.T, x *trio) *trio {
	t.Helper()
	for id := uint64(2); id <= 3; id++ {
		x.nodes[1].Met(x.now, id, 0, supports(core.EntryVersion))
	}
	x.nodes[1].Submit(x.now, 7, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{9}, Attempt: 1, Mark: 1, Commands: []core.Command{open(), count()}}))
	x.pump(1)
	x.tickAll(5)
	if st := x.nodes[1].Status(); st.Version < 3 || !st.Serving {
		t.Fatalf("the group has version %d", st.Version)
	}
	return x
}

// numbers are what the counter is on each node.
func (x *trio) numbers() (all []uint64) {
	for id := uint64(1); id <= 3; id++ {
		r := x.nodes[id].Machine().Read("", &core.Command{Op: core.OpCount, Name: "n", Count: core.CountLoad})
		all = append(all, r.Number)
	}
	return all
}

func (x *trio) damage(id uint64, bit uint) {
	x.t.Helper()
	if !x.nodes[id].Machine().Damage(bit) {
		x.t.Fatal("there is no counter")
	}
}

// until lets time pass until every node says of itself what came of a check.
func (x *trio) until(word string) {
	x.t.Helper()
	for range 300 {
		x.tickAll(1)
		n := 0
		for id := uint64(1); id <= 3; id++ {
			if x.nodes[id].Status().Checked.Nodes[id] == word {
				n++
			}
		}
		if n == 3 {
			return
		}
	}
	for id := uint64(1); id <= 3; id++ {
		x.t.Errorf("node %d says %+v", id, x.nodes[id].Status().Checked)
	}
}

// Nodes that have the same agree, and say so.
func TestCheck_Agrees(t *testing.T) {
	x := checking(t)
	x.until(replica.CheckAgrees)
	for id, n := range x.nodes {
		if st := n.Status(); st.Healing || st.Frozen {
			t.Errorf("node %d heals: %v, is frozen: %v", id, st.Healing, st.Frozen)
		}
	}
	if k := x.nodes[1].Status().Checked; k.Nodes[2] != replica.CheckAgrees || k.Nodes[3] != replica.CheckAgrees || k.Ago > 10*time.Second {
		t.Errorf("the leader says %+v", k)
	}
}

// The age of a check is counted from its order, by the date that its entry bears: a node that
// applies it again when it starts, much later, does not tell it as fresh.
func TestCheck_Age(t *testing.T) {
	x := checking(t)
	for _, n := range x.nodes {
		n.Date(1_000_000)
	}
	x.nodes[1].Check(x.now, 8)
	x.until(replica.CheckAgrees)
	for id, n := range x.nodes {
		n.Date(1_001_200)
		if ago := n.Status().Checked.Ago; ago != 20*time.Minute {
			t.Errorf("node %d says %s after 20 minutes", id, ago)
		}
	}
}

// A bit that flips in the memory of a node is found by the next check, and the node
// goes on with the machine of another.
func TestCheck_FollowerHeals(t *testing.T) {
	x := checking(t)
	x.damage(3, 4)
	for range 250 {
		x.tickAll(1)
		if x.nodes[3].Status().Serving {
			t.Fatal("a node leads that differs")
		}
	}
	if got := x.numbers(); !slices.Equal(got, []uint64{1, 1, 1}) {
		t.Errorf("the counters are %v", got)
	}
	x.until(replica.CheckAgrees)
	st := x.nodes[3].Status()
	if st.Healing || st.Checked.Nodes[3] != replica.CheckAgrees || x.nodes[1].Status().Leader != 1 || len(x.sent) != 1 {
		t.Errorf("node 3 says %+v after %d snapshots", st, len(x.sent))
	}
	if st.Hash != x.nodes[1].Status().Hash || st.SnapshotIndex < x.sent[0].Index {
		t.Errorf("its hash is %x, and its newest snapshot is at %d", st.Hash, st.SnapshotIndex)
	}
}

// A node that heals votes for another leader when the one that it asks is lost, and then
// heals by that.
func TestCheck_LeaderOfAHealingNodeIsLost(t *testing.T) {
	x := checking(t)
	x.damage(3, 4)
	for i := 0; i < 250 && !x.nodes[3].Status().Healing; i++ {
		x.tickAll(1)
	}
	if x.gone = 1; !x.nodes[3].Status().Healing {
		t.Fatal("node 3 does not heal")
	}
	x.tickAll(200)
	two, three := x.nodes[2].Status(), x.nodes[3].Status()
	if !two.Serving || three.Leader != 2 || three.Healing {
		t.Errorf("node 2 serves: %v; node 3 follows %d and heals: %v", two.Serving, three.Leader, three.Healing)
	}
}

// A leader that differs serves nobody from the ruling on, and hands over to a node
// that does not.
func TestCheck_LeaderHeals(t *testing.T) {
	x := checking(t)
	x.damage(1, 4)
	ruled := false
	for range 400 {
		x.tickAll(1)
		st := x.nodes[1].Status()
		if ruled = ruled || st.Healing; st.Healing && st.Serving {
			t.Fatal("a node serves that differs")
		}
	}
	if got := x.numbers(); !ruled || !slices.Equal(got, []uint64{1, 1, 1}) {
		t.Errorf("found: %v; the counters are %v", ruled, got)
	}
	if lead := x.nodes[2].Status().Leader; lead == 1 || lead == 0 || x.nodes[1].Status().Healing {
		t.Errorf("node %d leads; node 1 heals: %v", lead, x.nodes[1].Status().Healing)
	}
}

// Without a majority nothing is granted.
func TestCheck_NoMajority(t *testing.T) {
	x := checking(t)
	x.damage(2, 5)
	x.damage(3, 6)
	x.until(replica.CheckNoRule)
	for id, n := range x.nodes {
		if st := n.Status(); !st.Frozen || st.Healing {
			t.Errorf("node %d is frozen: %v, heals: %v, and says %v", id, st.Frozen, st.Healing, st.Checked.Nodes)
		}
	}
}

// A check can be asked for, of a leader, in a group that knows it.
func TestCheck_OnDemand(t *testing.T) {
	x := checking(t)
	x.replied = nil
	before := x.nodes[1].Status().Checked.Index
	x.nodes[1].Check(x.now, 11)
	x.settle()
	if st := x.nodes[1].Status(); len(x.replied) != 1 || x.replied[0].Outcome != replica.Done || st.Checked.Index <= before {
		t.Errorf("it is answered %+v, and the last check is at %d", x.replied, st.Checked.Index)
	}
	old := newTrioOf(t, replica.Config{Newest: 2})
	old.nodes[1].Check(old.now, 11)
	old.settle()
	if len(old.replied) != 1 || old.replied[0].Code != core.CodeUnsupported || !strings.Contains(old.replied[0].Text, "upgrade node 1, 2 and 3") {
		t.Errorf("in a group of before it is answered %+v", old.replied)
	}
}

// Two voters that differ say so while the third is away, and an operator is told which
// one to start; with it the majority rules.
func TestCheck_TwoDifferWithoutTheThird(t *testing.T) {
	x := checking(t)
	x.gone = 3
	x.tickAll(15)
	x.damage(2, 4)
	x.nodes[1].Check(x.now, 11)
	x.pump(1)
	x.tickAll(40)
	for id := uint64(1); id <= 2; id++ {
		if st := x.nodes[id].Status(); st.Checked.Nodes[id] != replica.CheckOpen || st.Frozen || st.Healing {
			t.Errorf("node %d says %+v", id, st.Checked)
		}
	}
	if word := x.nodes[1].Status().Checked.Nodes[3]; word != replica.CheckSilent {
		t.Errorf("of the one that is away it says %q", word)
	}
	if told := fmt.Sprint(x.out[1].Notice); !strings.Contains(told, "nodes 1 and 2 have different states") || !strings.Contains(told, "without node 3, which does not answer: start it") {
		t.Errorf("the operator is told %q", told)
	}
	x.gone = 0
	x.until(replica.CheckAgrees)
	if got := x.numbers(); !slices.Equal(got, []uint64{1, 1, 1}) {
		t.Errorf("the counters are %v", got)
	}
}

// Two voters that differ go on after the third was removed for good: then there is no majority, and an operator decides.
func TestCheck_TwoDifferAndTheThirdIsRemoved(t *testing.T) {
	x := checking(t)
	x.gone = 3
	x.tickAll(15)
	x.damage(2, 4)
	x.nodes[1].Check(x.now, 11)
	x.pump(1)
	x.tickAll(40)
	right := x.numbers()[1]
	if x.nodes[1].Status().Frozen || right == x.numbers()[0] {
		t.Fatalf("before the removal it is frozen: %v, with %v", x.nodes[1].Status().Frozen, x.numbers())
	}
	x.nodes[1].ChangeMembers(x.now, 12, removing(3))
	x.tickAll(20)
	x.nodes[1].Check(x.now, 13)
	x.tickAll(150)
	for id := uint64(1); id <= 2; id++ {
		if st := x.nodes[id].Status(); !st.Frozen || st.Checked.Nodes[id] != replica.CheckNoRule {
			t.Errorf("after the removal node %d is frozen: %v, and says %v", id, st.Frozen, st.Checked)
		}
	}
	x.nodes[1].Unfreeze(x.now, 14, 2)
	x.tickAll(150 + holdersWait)
	if got := x.numbers()[:2]; x.nodes[1].Status().Frozen || !slices.Equal(got, []uint64{right, right}) {
		t.Errorf("after node 2 was named it is frozen: %v, with %v, want both %d", x.nodes[1].Status().Frozen, got, right)
	}
}

// Nobody is told to start a node that is about to tell what it has.
func TestCheck_NobodyIsToldTooEarly(t *testing.T) {
	x := checking(t)
	x.damage(2, 4)
	x.drop = func(m replica.Message) bool { return m.To == 1 && replica.IsSum(m.Data, 3) }
	x.nodes[1].Check(x.now, 11)
	x.pump(1)
	x.tickAll(40)
	if err := x.out[1].Notice; err != nil {
		t.Errorf("the operator is told %v", err)
	}
	if word := x.nodes[1].Status().Checked.Nodes[1]; word != replica.CheckOpen {
		t.Errorf("node 1 says %q", word)
	}
}

package replica_test

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// ahead is a trio in which node 3 differs, and has more of the log than node 2; node 1, which had
// led, is gone. Node 2 is not elected without the vote of node 3, which has the longer log.
func ahead(t *testing.T) *trio {
	t.Helper()
	x := checking(t)
	x.damage(3, 4)
	x.park = true
	x.healing(3)
	x.tickAll(15) // both others know what came of the check
	x.nodes[2].WantSnapshot(x.now)
	x.pump(2)
	x.deaf = 2
	x.add(5, nil)
	if one, two, three := x.nodes[1].Status(), x.nodes[2].Status(), x.nodes[3].Status(); one.Flying != 0 || two.Applied >= one.Applied || !three.Healing {
		t.Fatalf("node 1: %+v, node 2 has applied %d, node 3 heals: %v", one, two.Applied, three.Healing)
	}
	x.gone, x.deaf, x.park, x.parked = 1, 0, false, nil
	return x
}

// A node that differs, and that alone can be elected since it has the longest log, leads without
// serving, and hands over to one that is sound: without it there would be no leader.
func TestDoubtedNodeLeadsOnlyToHandOver(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		x := ahead(t)
		if restarted {
			x.againDoubted(3)
		}
		led := false
		for range 150 {
			x.tickAll(1)
			three := x.nodes[3].Status()
			if led = led || three.Leading; three.Serving && three.Healing {
				t.Fatalf("restarted: %v: a node that differs serves", restarted)
			}
			if three.Leading {
				x.leadsForNobody()
			}
		}
		if two := x.nodes[2].Status(); !led || !two.Serving {
			t.Errorf("restarted: %v: node 3 has led: %v, node 2 serves: %v", restarted, led, two.Serving)
		}
		if got := x.numbers(); got[1] != 2 || x.nodes[3].Status().Healing || !slices.Equal(got[1:], []uint64{2, 2}) {
			t.Errorf("restarted: %v: the counters of nodes 2 and 3 are %v", restarted, got[1:])
		}
	}
}

// againDoubted starts a node again that has its log, and that knows to differ.
func (x *trio) againDoubted(id uint64) {
	x.t.Helper()
	st := x.nodes[id].Status()
	rec := replica.Bootstrap(core.Config{}, st.Members.Endpoints)
	rec.HardState = &raftpb.HardState{Term: new(st.Term), Vote: new(uint64(0)), Commit: new(st.Applied)}
	rec.Entries, rec.Doubted = x.nodes[id].Log(), true
	n, err := replica.New(replica.Config{ID: id, CheckEvery: time.Hour}, rec)
	if err != nil {
		x.t.Fatal(err)
	}
	x.nodes[id] = n
}

// leadsForNobody: node 3 takes no commands and lets nobody read.
func (x *trio) leadsForNobody() {
	x.t.Helper()
	x.out[3] = replica.Output{}
	x.nodes[3].Submit(x.now, 8, core.AppendFrame(nil, &core.Frame{Session: core.SessionID{8}, Attempt: 1, Mark: 1, Commands: []core.Command{open(), count()}}))
	x.nodes[3].Read(x.now, 9)
	for _, a := range x.answersOf(x.nodes[3]) {
		if a.Outcome != replica.NotDone {
			x.t.Fatalf("a leader that differs has answered %+v", a)
		}
	}
	if read := x.out[3].Reads; len(read) > 0 {
		x.t.Fatalf("a leader that differs lets %v read", read)
	}
}

// A leader that differs goes on telling the others that it leads until one of them has taken over:
// they would elect another one each time that it falls silent.
func TestDoubtedLeaderIsHeard(t *testing.T) {
	x := checking(t)
	x.damage(1, 4)
	x.drop = func(m replica.Message) bool { return typeOf(m) == raftpb.MsgTimeoutNow }
	x.healing(1)
	term := x.nodes[1].Status().Term
	x.tickAll(50)
	if st := x.nodes[1].Status(); !st.Leading || st.Serving || st.Term != term {
		t.Errorf("nobody was asked to lead, and it leads: %v, serves: %v, in term %d after %d", st.Leading, st.Serving, st.Term, term)
	}
}

// leftAlone is node 1 of a trio, which is the only voter by the time at which it finds that it has
// something else than the two others had.
func leftAlone(t *testing.T) *trio {
	t.Helper()
	x := checking(t)
	x.damage(1, 4)
	x.nodes[1].Check(x.now, 11)
	x.pump(1)
	for range 3 { // node 1 has yet to look at what it has
		x.now += tick
		for id := uint64(2); id <= 3; id++ {
			x.nodes[id].Tick(x.now)
			x.pump(id)
		}
	}
	x.nodes[1].ChangeMembers(x.now, 12, replica.Change{Remove: []uint64{2, 3}})
	x.pump(1)
	if st := x.nodes[1].Status(); !st.Serving || st.Healing || len(st.Members.Conf.GetVoters()) != 1 {
		t.Fatalf("node 1 is not alone yet, or knows already: %+v", st)
	}
	return x
}

// A node that is the only voter goes on with what it has, also if it finds only then that it differs from
// those that have left: there is no other state. Neither it nor its next start doubts that any more.
func TestDoubtedOnlyVoterGoesOn(t *testing.T) {
	x := leftAlone(t)
	x.tickAll(30)
	if st := x.nodes[1].Status(); !st.Serving || st.Healing || st.SnapshotIndex == 0 {
		t.Errorf("the only voter serves: %v, heals: %v, and has a snapshot at %d", st.Serving, st.Healing, st.SnapshotIndex)
	}
	x.out[1] = replica.Output{}
	x.add(5, nil)
	if a := x.answersOf(x.nodes[1]); len(a) != 1 || a[0].Outcome != replica.Done {
		t.Errorf("the only voter answers %+v", a)
	}
	if x.doubts[1] && !x.only[1] {
		t.Error("its next start knows that it differed, and nothing takes that back")
	}
}

// foundBefore is node 1 of a trio, which has found that it differs while a command and a change that leaves it alone
// were flying: both are applied, and nobody was told of the command.
func foundBefore(t *testing.T) *trio {
	t.Helper()
	x := checking(t)
	x.damage(1, 4)
	var held []replica.Message // first the sums, then all that follows
	flies := false
	x.drop = func(m replica.Message) bool {
		keep := m.To == 1 && (flies || replica.IsSum(m.Data, 2) || replica.IsSum(m.Data, 3))
		if keep {
			held = append(held, m)
		}
		return keep
	}
	x.nodes[1].Check(x.now, 11)
	x.pump(1)
	x.tickAll(3)
	flies = true
	x.add(5, nil)
	x.nodes[1].ChangeMembers(x.now, 12, replica.Change{Remove: []uint64{2, 3}})
	x.pump(1)
	x.drop, x.out[1] = nil, replica.Output{}
	before := x.nodes[1].Status()
	x.deliver(held)
	if st := x.nodes[1].Status(); before.Flying == 0 || before.Healing || !st.Healing || st.Applied == before.Applied || len(st.Members.Conf.GetVoters()) != 1 {
		t.Fatalf("before it knew: %+v; then: %+v", before, st)
	}
	return x
}

// deliver brings messages to node 1.
func (x *trio) deliver(all []replica.Message) {
	x.t.Helper()
	for _, m := range all {
		if err := x.nodes[1].Step(x.now, m.Data); err != nil {
			x.t.Fatal(err)
		}
		x.pump(1)
	}
}

// The watchers of the only voter are told to look again when it goes on with what it has: what it has applied while it
// was in doubt nobody was told of. The same holds for a node that starts in doubt.
func TestDoubtedOnlyVoterHasItsWatchersLookAgain(t *testing.T) {
	for what, begin := range map[string]func(*testing.T) *trio{"found when alone": leftAlone, "found before": foundBefore} {
		x := begin(t)
		x.out[1] = replica.Output{}
		x.tickAll(3)
		if st := x.nodes[1].Status(); !st.Serving || !x.out[1].Jumped {
			t.Errorf("%s: it serves: %v, its watchers look again: %v", what, st.Serving, x.out[1].Jumped)
		}
		if word := x.nodes[1].Status().Checked.Nodes[1]; word != replica.CheckAlone {
			t.Errorf("%s: its state check says %q", what, word)
		}
		x.againDoubted(1)
		if out := x.nodes[1].Output(); !out.Jumped {
			t.Errorf("%s: started again in doubt its watchers do not look again", what)
		}
	}
}

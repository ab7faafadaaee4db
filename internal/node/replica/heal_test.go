package replica_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// typeOf is what kind of raft's messages m is.
func typeOf(m replica.Message) raftpb.MessageType {
	var r raftpb.Message
	if m.Data[0] == 0 || proto.Unmarshal(m.Data, &r) != nil {
		return -1
	}
	return r.GetType()
}

// healing lets time pass until a node heals.
func (x *trio) healing(id uint64) {
	x.t.Helper()
	for range 300 {
		if x.nodes[id].Status().Healing {
			return
		}
		x.tickAll(1)
	}
	x.t.Fatalf("node %d does not heal: %+v", id, x.nodes[id].Status().Checked)
}

// add counts once more, by a session of its own; the answer is in x.out.
func (x *trio) add(session byte, value []byte) {
	x.t.Helper()
	x.nodes[1].Submit(x.now, replica.Caller(session), core.AppendFrame(nil, &core.Frame{Session: core.SessionID{session}, Attempt: 1, Mark: 1, Commands: []core.Command{
		open(), count(), {Op: core.OpTxn, Seq: 2, Then: []core.KeyOp{{Kind: core.KeyPut, Key: "k", Value: value}}}}}))
	x.pump(1)
}

// The node that a differing leader hands over to may be lost in that moment, or not take
// over: until another has, the leader serves nobody.
func TestCheck_SuccessorIsLost(t *testing.T) {
	for what, lost := range map[string]func(x *trio, to uint64, asked int) bool{
		"lost":            func(x *trio, to uint64, _ int) bool { x.gone = 3; return to == 3 },
		"deaf to it":      func(_ *trio, to uint64, _ int) bool { return to == 3 },
		"deaf for a time": func(_ *trio, _ uint64, asked int) bool { return asked <= 3 },
	} {
		x, asked := checking(t), 0
		x.damage(1, 4)
		x.drop = func(m replica.Message) bool {
			if typeOf(m) == raftpb.MsgTimeoutNow {
				asked++
				return lost(x, m.To, asked)
			}
			return false
		}
		x.healing(1)
		x.tickAll(1)
		if asked == 0 {
			t.Fatalf("%s: nobody was asked to lead", what)
		}
		x.servesNobody(what)
		x.tickAll(100)
		leader := x.nodes[1].Status().Leader
		if one := x.nodes[1].Status(); leader < 2 || !x.nodes[leader].Status().Serving || one.Healing {
			t.Errorf("%s: asked %d times, node 1 follows %d and heals: %v", what, asked, leader, one.Healing)
		}
	}
}

// restarted is a trio in which a node that heals is started again with its machine as its
// newest snapshot, and knows or does not know what was found.
func (x *trio) restarted(id uint64, doubted bool) {
	x.t.Helper()
	st := x.nodes[id].Status()
	hs := &raftpb.HardState{Term: new(st.Term), Vote: new(uint64(0)), Commit: new(st.Applied)}
	rec := replica.Recovered{Snapshot: replica.SnapshotMeta{Index: st.Applied, Term: st.Term, Conf: st.Members}, Machine: x.nodes[id].Machine(), HardState: hs, Doubted: doubted}
	n, err := replica.New(replica.Config{ID: id, CheckEvery: time.Hour}, rec)
	if err != nil {
		x.t.Fatal(err)
	}
	x.nodes[id] = n
}

// What a majority has found a node keeps for its next start: a snapshot of what is wrong, made
// before the ruling came, must not let it forget. It does not lead, although nobody else would, and heals as
// before. The word of an operator is not kept.
func TestCheck_KnownAfterARestart(t *testing.T) {
	x := checking(t)
	x.damage(3, 4)
	x.park = true
	x.healing(3)
	x.tickAll(1)
	if !x.doubts[3] || x.doubts[1] || x.doubts[2] {
		t.Fatalf("the next start is to know: %v", x.doubts)
	}
	x.restarted(3, true)
	x.deaf = 3 // it hears no leader
	x.tickAll(100)
	if st := x.nodes[3].Status(); st.Serving || st.Leading || !st.Healing || st.SnapshotIndex != 0 {
		t.Errorf("it leads: %v, heals: %v, and has a snapshot at %d", st.Leading, st.Healing, st.SnapshotIndex)
	}
	for _, s := range x.parked {
		x.nodes[1].SnapshotSent(x.now, s.To, false)
	}
	x.deaf, x.park, x.parked = 0, false, nil
	x.tickAll(300)
	if got := x.numbers(); x.nodes[3].Status().Healing || !slices.Equal(got, []uint64{1, 1, 1}) || !x.only[3] {
		t.Errorf("it heals: %v; the counters are %v; its snapshot is the only one: %v", x.nodes[3].Status().Healing, got, x.only[3])
	}
	x = checking(t)
	x.damage(2, 5)
	x.damage(3, 6)
	x.until(replica.CheckNoRule)
	x.nodes[1].Unfreeze(x.now, 11, 1)
	x.settle()
	x.healing(2)
	x.tickAll(1)
	if len(x.doubts) != 0 {
		t.Errorf("after the word of an operator the next start is to know: %v", x.doubts)
	}
}

// A node that is alone goes on with what it has, and its next snapshot ends the doubt on disk.
func TestCheck_DoubtedAlone(t *testing.T) {
	rec := replica.Bootstrap(core.Config{}, []replica.Endpoint{{ID: 1}})
	rec.Doubted = true
	n, err := replica.New(replica.Config{ID: 1}, rec)
	if err != nil {
		t.Fatal(err)
	}
	out := n.Output()
	n.Written(0, out.Writes[len(out.Writes)-1].ID)
	if settle(n); !n.Status().Serving || n.Status().Healing {
		t.Errorf("it serves: %v, heals: %v", n.Status().Serving, n.Status().Healing)
	}
	if out.Snapshot == nil || !out.Snapshot.Only {
		t.Errorf("it makes the snapshot %+v, want one in the place of all others", out.Snapshot)
	}
}

// servesNobody: node 1 leads, and neither takes commands nor lets anybody read.
func (x *trio) servesNobody(what string) {
	x.t.Helper()
	if st := x.nodes[1].Status(); st.Serving || !st.Leading {
		x.t.Fatalf("%s: before anybody has taken over it leads: %v, serves: %v", what, st.Leading, st.Serving)
	}
	x.out[1] = replica.Output{}
	x.add(5, nil)
	x.nodes[1].Read(x.now, 6)
	answers := x.answersOf(x.nodes[1])
	if len(answers) != 2 || answers[0].Outcome != replica.NotDone || answers[1].Outcome != replica.NotDone || len(x.out[1].Reads) != 0 {
		x.t.Errorf("%s: a node that differs answers %+v, and lets %v read", what, answers, x.out[1].Reads)
	}
}

// Without a majority nothing is granted, also if the leader was about to hand over when
// that came out.
func TestCheck_FreezeIsProposedAgain(t *testing.T) {
	x := checking(t)
	x.damage(2, 5)
	x.damage(3, 6)
	x.drop = func(m replica.Message) bool { return typeOf(m) == raftpb.MsgTimeoutNow }
	x.nodes[1].Check(x.now, 11)
	x.pump(1)
	for range 5 {
		x.nodes[1].Transfer(x.now, 3)
		x.tickAll(1)
	}
	if st := x.nodes[1].Status(); st.Frozen || st.Checked.Nodes[1] != replica.CheckNoRule {
		t.Fatalf("while it hands over it is frozen: %v, and says %+v", st.Frozen, st.Checked)
	}
	x.tickAll(30)
	if st := x.nodes[1].Status(); !st.Frozen || !st.Serving {
		t.Errorf("afterwards it is frozen: %v, serves: %v", st.Frozen, st.Serving)
	}
}

// An operator ends a freeze by naming the node that has what is right: the others take it
// over, whether or not it leads, and the next check finds them equal.
func TestCheck_UnfreezeNamesANode(t *testing.T) {
	for _, ruler := range []uint64{0, 1, 2} {
		x := checking(t)
		x.damage(2, 5)
		x.damage(3, 6)
		x.until(replica.CheckNoRule)
		right := x.numbers()[max(ruler, 1)-1]
		x.replied = nil
		x.nodes[1].Unfreeze(x.now, 11, ruler)
		x.settle()
		if len(x.replied) != 1 || x.replied[0].Outcome != replica.Done {
			t.Fatalf("naming node %d is answered %+v", ruler, x.replied)
		}
		if !x.nodes[1].Status().Frozen {
			t.Fatal("grants go on before it is known what is right")
		}
		x.tickAll(100 + holdersWait)
		if got := x.numbers(); !slices.Equal(got, []uint64{right, right, right}) {
			t.Errorf("node %d has %d, and in the end all have %v", ruler, right, got)
		}
		x.until(replica.CheckAgrees)
		for id, n := range x.nodes {
			if st := n.Status(); st.Frozen || st.Healing {
				t.Errorf("after node %d was named node %d is frozen: %v, heals: %v", ruler, id, st.Frozen, st.Healing)
			}
		}
	}
}

// What would undo grants, or never end, is refused: in a group that is not frozen, for a
// node that does not vote, or does not answer.
func TestCheck_UnfreezeRefuses(t *testing.T) {
	x := checking(t)
	refused := func(ruler uint64, code core.Code, text string) {
		t.Helper()
		x.replied = nil
		x.nodes[1].Unfreeze(x.now, 11, ruler)
		x.settle()
		if len(x.replied) != 1 || x.replied[0].Code != code || !strings.Contains(x.replied[0].Text, text) {
			t.Errorf("naming node %d is answered %+v, want %q", ruler, x.replied, text)
		}
	}
	refused(2, core.CodeConflict, "not frozen")
	x.damage(2, 5)
	x.damage(3, 6)
	x.until(replica.CheckNoRule)
	refused(9, core.CodeInvalid, "does not vote")
	x.gone = 3
	x.tickAll(12)
	refused(3, core.CodeConflict, "has not answered")
	if !x.nodes[1].Status().Frozen {
		t.Error("a refusal has ended the freeze")
	}
}

// Of two orders to unfreeze the second does not undo what was granted after the first.
func TestCheck_UnfreezeTwice(t *testing.T) {
	x := checking(t)
	x.damage(2, 5)
	x.damage(3, 6)
	x.until(replica.CheckNoRule)
	right := x.numbers()[0]
	x.nodes[1].Unfreeze(x.now, 11, 1)
	x.tickAll(holdersWait - 10)
	for i := 0; x.nodes[1].Status().Flying == 0; i++ {
		if !x.nodes[1].Status().Frozen || i > 1000 {
			t.Fatalf("the freeze does not end: %+v", x.nodes[1].Status())
		}
		x.settle()
		x.now += tick
		x.nodes[1].Tick(x.now)
	}
	x.damage(2, 7)
	x.nodes[1].Unfreeze(x.now, 12, 2)
	x.tickAll(150)
	if got := x.numbers(); x.nodes[1].Status().Frozen || !slices.Equal(got, []uint64{right, right, right}) {
		t.Errorf("it is frozen: %v, with %v, want all %d", x.nodes[1].Status().Frozen, got, right)
	}
}

// A leader that was never told what came of a check hears it from the node that heals,
// and gives it its machine.
func TestCheck_RulingReachesTheNextLeader(t *testing.T) {
	x := checking(t)
	x.damage(3, 4)
	x.park = true
	x.drop = func(m replica.Message) bool { return m.To == 2 && replica.IsRuling(m.Data) && x.gone == 0 }
	x.healing(3)
	x.tickAll(3)
	if word := x.nodes[2].Status().Checked.Nodes[2]; word != replica.CheckSilent {
		t.Fatalf("node 2 knows %q", word)
	}
	x.gone, x.park = 1, false
	x.tickAll(200)
	two, three := x.nodes[2].Status(), x.nodes[3].Status()
	if !two.Serving || two.Checked.Nodes[2] != replica.CheckAgrees || three.Healing || len(x.sent) != 1 {
		t.Errorf("node 2 serves: %v, and knows %v; node 3 heals: %v", two.Serving, two.Checked.Nodes, three.Healing)
	}
}

// A node that gets the machine of another applies what has come since, a little with each
// tick, and replaces the snapshots of before.
func TestCheck_HealedMachineIsUpToDate(t *testing.T) {
	x := checking(t)
	x.damage(3, 4)
	x.park = true
	x.healing(3)
	x.tickAll(10)
	for i := range byte(170) {
		x.add(20+i, make([]byte, 60<<10))
	}
	x.park = false
	for len(x.parked) > 0 {
		s := x.parked[0]
		x.parked = x.parked[1:]
		x.carry(1, s)
		x.nodes[1].SnapshotSent(x.now, s.To, true)
	}
	ticks := 0
	for ; x.nodes[3].Status().Healing && ticks < 100; ticks++ {
		x.add(byte(200+ticks), nil)
		x.tickAll(1)
	}
	if got := x.numbers(); got[0] != got[2] || got[0] <= 170 {
		t.Errorf("the counters are %v", got)
	}
	if ticks < 4 || ticks > 20 {
		t.Errorf("10 MB of log took %d ticks", ticks)
	}
	x.tickAll(5)
	if !x.only[3] || x.nodes[3].Status().SnapshotIndex < x.sent[0].Index {
		t.Errorf("it made a snapshot in the place of all others: %v, at %d", x.only[3], x.nodes[3].Status().SnapshotIndex)
	}
	if one, three := x.nodes[1].Status(), x.nodes[3].Status(); one.Hash != three.Hash {
		t.Errorf("the hashes are %x and %x", one.Hash, three.Hash)
	}
}

// waitingFor is a trio that grants nothing for a time, since it has begun anew.
func waitingFor(t *testing.T, wait int64, checkEvery time.Duration) *trio {
	t.Helper()
	return checkingFrom(t, newTrioFrom(t, func(ends []replica.Endpoint) replica.Recovered {
		rec := replica.Bootstrap(core.Config{}, ends)
		rec.Snapshot.Conf.Held = wait
		if err := rec.Machine.Apply(core.AppendEntry(nil, &core.Entry{Kind: core.EntryFreeze, Version: core.BaseVersion}), nil); err != nil {
			t.Fatal(err)
		}
		return rec
	}, replica.Config{CheckEvery: checkEvery}))
}

// The wait of a group that has begun anew ends with a check: an earlier one, which found no
// majority, may have been forgotten with a restart.
func TestCheck_BeforeTheWaitOfARestoreEnds(t *testing.T) {
	for _, differ := range []bool{false, true} {
		x := waitingFor(t, 10e9, time.Hour)
		if differ {
			x.damage(2, 5)
			x.damage(3, 6)
		}
		x.tickAll(300)
		st := x.nodes[1].Status()
		if st.ClusterTime < 10e9 || st.Frozen != differ {
			t.Errorf("the nodes differ: %v; after the wait, at %d, the group is frozen: %v (%v)", differ, st.ClusterTime, st.Frozen, st.Checked)
		}
	}
}

// A group that waits since it has begun anew, and one that a check has frozen, are two
// things: an operator does not end the wait, and its end does not end the other.
func TestCheck_FreezeIsNotTheWaitOfARestore(t *testing.T) {
	const wait = 60e9
	x := waitingFor(t, wait, 10*time.Second)
	x.replied = nil
	x.nodes[1].Unfreeze(x.now, 11, 1)
	x.settle()
	if len(x.replied) != 1 || x.replied[0].Code != core.CodeConflict || !strings.Contains(x.replied[0].Text, "ends by itself") {
		t.Errorf("to end the wait is answered %+v", x.replied)
	}
	x.damage(2, 5)
	x.damage(3, 6)
	x.until(replica.CheckNoRule)
	x.tickAll(800)
	if st := x.nodes[1].Status(); !st.Frozen || st.Members.Held == 0 || st.ClusterTime < wait {
		t.Fatalf("at %d, without a majority, it is frozen: %v", st.ClusterTime, st.Frozen)
	}
	x.nodes[1].Unfreeze(x.now, 11, 1)
	x.tickAll(100)
	if st := x.nodes[1].Status(); st.Frozen || st.Members.Held != 0 {
		t.Errorf("in the end it is frozen: %v, and waits until %d", st.Frozen, st.Members.Held)
	}
}

// A check that comes while most voters heal freezes nothing: what they have is known to
// be wrong, and they go on to get what is right.
func TestCheck_WhileMostHeal(t *testing.T) {
	x := checking(t)
	x.damage(2, 5)
	x.damage(3, 6)
	x.until(replica.CheckNoRule)
	right := x.numbers()[0]
	x.nodes[1].Unfreeze(x.now, 11, 1)
	x.park = true // nothing heals them, until after the check
	x.healing(2)
	x.healing(3)
	if at := x.nodes[2].Status().SnapshotIndex; at != 0 {
		t.Errorf("a node that heals offers its snapshot at %d", at)
	}
	x.tickAll(50 + holdersWait)
	if x.nodes[1].Status().Frozen {
		t.Fatal("the group is frozen still, and checks nothing meanwhile")
	}
	x.nodes[1].Check(x.now, 12)
	x.tickAll(20)
	if st := x.nodes[1].Status(); st.Frozen || st.Checked.Nodes[1] != replica.CheckAgrees || !x.nodes[2].Status().Healing {
		t.Errorf("a check has found %v, frozen %v", st.Checked.Nodes, st.Frozen)
	}
	x.park = false
	for _, s := range x.parked {
		x.carry(1, s)
		x.nodes[1].SnapshotSent(x.now, s.To, true)
	}
	x.tickAll(150)
	if got := x.numbers(); !slices.Equal(got, []uint64{right, right, right}) {
		t.Errorf("the nodes have %v, want %d", got, right)
	}
	for id, n := range x.nodes {
		if st := n.Status(); st.Frozen || st.Healing {
			t.Errorf("node %d is frozen: %v, heals: %v", id, st.Frozen, st.Healing)
		}
	}
}

// The node that an operator has named is lost before another has its state, be it before or after it is known what that is: nothing is granted
// meanwhile. Started again, the others take its state over, also after the time of the next check; if it is gone for good they are started
// again, which forgets what the operator said, and one of them is named.
func TestCheck_NamedNodeIsLost(t *testing.T) {
	for name, late := range map[string]bool{"before it has told what it has": false, "before it has sent what it has": true} {
		t.Run(name+" and comes back", func(t *testing.T) {
			x, was := namedAndLost(t, late)
			x.gone, x.park = 0, false
			x.allHave(was[1])
		})
		t.Run(name+" for good", func(t *testing.T) {
			x, was := namedAndLost(t, late)
			x.park = false
			x.restarted(1, x.doubts[1])
			x.restarted(3, x.doubts[3])
			x.tickAll(100)
			leader := x.nodes[1].Status().Leader
			if leader == 0 || x.doubts[1] || x.doubts[3] {
				t.Fatalf("node %d leads, and the next start is to know: %v", leader, x.doubts)
			}
			x.nodes[leader].Check(x.now, 12)
			x.tickAll(50)
			x.nodes[leader].Unfreeze(x.now, 13, 1)
			x.allHave(was[0])
		})
	}
}

// namedAndLost is a trio in which node 2 was named, and is gone since; late: when the others know what it has. It also
// tells what each node had.
func namedAndLost(t *testing.T, late bool) (x *trio, was []uint64) {
	t.Helper()
	x = checking(t)
	x.damage(2, 5)
	x.damage(3, 6)
	x.until(replica.CheckNoRule)
	was = x.numbers()
	x.park = late
	x.nodes[1].Unfreeze(x.now, 11, 2)
	x.settle()
	if late {
		x.healing(3)
		x.healing(1)
	}
	x.gone = 2
	x.tickAll(200)
	for _, id := range []uint64{1, 3} {
		if st := x.nodes[id].Status(); !st.Frozen || !slices.Equal(x.numbers(), was) || st.Healing != late {
			t.Fatalf("without node 2 node %d is frozen: %v, heals: %v, and the nodes have %v, as before %v", id, st.Frozen, st.Healing, x.numbers(), was)
		}
	}
	return x, was
}

// allHave lets time pass, and wants grants to go on with a number on all nodes that run.
func (x *trio) allHave(right uint64) {
	x.t.Helper()
	x.tickAll(300 + holdersWait)
	for i, n := range x.numbers() {
		id := uint64(i + 1)
		if st := x.nodes[id].Status(); id != x.gone && (n != right || st.Frozen || st.Healing) {
			x.t.Errorf("node %d has %d, want %d; it is frozen: %v, heals: %v", id, n, right, st.Frozen, st.Healing)
		}
	}
}

// The wait of a group that has begun anew does not end while a change of its members is not complete.
func TestCheck_WaitOfARestoreGoesOnDuringAChange(t *testing.T) {
	for _, changing := range []bool{false, true} {
		x := newTrioFrom(t, func(ends []replica.Endpoint) replica.Recovered {
			rec := replica.Bootstrap(core.Config{}, ends)
			rec.Snapshot.Conf.Held = 10e9
			if changing {
				rec.Snapshot.Conf.Conf.VotersOutgoing = []uint64{1, 2, 3}
			}
			if err := rec.Machine.Apply(core.AppendEntry(nil, &core.Entry{Kind: core.EntryFreeze, Version: core.BaseVersion}), nil); err != nil {
				t.Fatal(err)
			}
			return rec
		}, replica.Config{CheckEvery: time.Hour})
		checkingFrom(t, x).tickAll(300)
		if st := x.nodes[1].Status(); st.Frozen != changing || changing != (st.Held > 0) {
			t.Errorf("a change is under way: %v; after the wait it is frozen: %v, for %s", changing, st.Frozen, st.Held)
		}
	}
}

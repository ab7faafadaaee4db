package replica

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/internal/core"
)

// The nodes of a group compare their machines now and then: an entry has all of them
// hash a view of that index, a little with each tick, and tell the leader. What the
// majority of all voters has is right. A node that has something else neither leads
// nor tells anybody anything until it has been given the machine of another node; its
// log is as good as before. Without a majority nobody knows what is right, so that
// nothing is granted until an operator names a node: another check follows, in which
// what that node has is right, and grants go on from there.

// checkVersion is the first version of groups that are checked.
const checkVersion = 3

// check is the newest one, as this node knows it.
type check struct {
	index  uint64     // of its entry; 0: there was none
	ruler  uint64     // the node that an operator named; 0: the majority is right
	at     int64      // elapsed time when that was applied
	from   uint64     // the machine's revision there
	date   int64      // Unix time when it was ordered; 0: not known
	view   *core.View // not hashed to its end; nil: it is, or is void
	sum    uint64     // this node's, if hashed
	hashed bool
	ended  string            // how it ended that this node differed: CheckHealed or CheckAlone; "": it has not, or did not differ
	sums   map[uint64]uint64 // that a leader was told, or tells
	void   map[uint64]bool   // nodes that heal, which have nothing to say
	rule   ruling
	right  uint64 // what is right
	ticks  int    // since this node told its sum
}

// ruling is what came out of a check.
type ruling uint8

const (
	unruled ruling = iota
	ruled
	noMajority
)

// Checked is what came out of the last state check.
type Checked struct {
	// Index is that of its entry; 0: there was none.
	Index uint64
	// Ago is how long ago that was ordered: the entry is applied again with each start.
	Ago time.Duration
	// Nodes says of each node what this one knows: the leader knows all.
	Nodes map[uint64]string
}

// What is known of a node after a check.
const (
	CheckAgrees  = "agrees"
	CheckDiffers = "differs"
	CheckHealed  = "healed"                  // it differed, and has got what is right
	CheckAlone   = "differed, goes on alone" // as the only voter, with what it had
	CheckSilent  = "not known"
	CheckOpen    = "differs from another node" // which of them is right is not known yet
	CheckNoRule  = "no majority"
)

// checkStep is how much of a view is hashed with each tick: about a millisecond's
// work, 10 MB a second.
const checkStep = 1 << 20

// proposeCheck asks for a check when it is time, and there is anybody to compare with.
func (n *Node) proposeCheck() {
	if n.now-max(n.check.at, n.began) >= int64(n.cfg.CheckEvery) && n.compares() {
		n.askCheck(nobody)
	}
}

// compares: there are others to compare with, and all know how.
func (n *Node) compares() bool {
	return n.machine.Version() >= checkVersion && !n.joint() && !n.Solitary()
}

// Check asks for a state check. The caller is answered Done when it has begun; what
// comes of it is in [Status.Checked].
func (n *Node) Check(now int64, caller Caller) {
	n.asLeader(now, caller, func() { n.askCheck(caller) })
}

// Unfreeze asks to end a freeze with what the node ruler has, 0 being this one: the
// others take that over, then grants go on. The caller is answered Done when the check
// that does it has begun.
func (n *Node) Unfreeze(now int64, caller Caller, ruler uint64) {
	n.asLeader(now, caller, func() {
		if ruler == 0 {
			ruler = n.cfg.ID
		}
		if code, text := n.rules(ruler); code != core.CodeOK {
			n.deny(caller, code, text)
			return
		}
		n.orderCheck(kindRule, ruler, caller, &core.Entry{Seconds: n.date})
	})
}

// rules says why what a node has cannot be made right for all.
func (n *Node) rules(id uint64) (core.Code, string) {
	switch {
	case !slices.Contains(n.members.Conf.GetVoters(), id):
		return core.CodeInvalid, fmt.Sprintf("node %d does not vote: name one of %s", id, numbers(n.members.Conf.GetVoters()))
	case !n.machine.Frozen():
		return core.CodeConflict, "the group is not frozen, so that there is nothing to end: see holdfast status"
	case n.members.Held != 0 && n.check.rule != noMajority:
		return core.CodeConflict, "nothing is granted since the group has begun anew from another, not since a state check: that wait ends by itself"
	case !n.answering(id):
		return core.CodeConflict, fmt.Sprintf("node %d has not answered for %s, so that the others could not take over what it has: start it, or name another", id, n.cfg.electionTimeout())
	}
	return core.CodeOK, ""
}

func (n *Node) asLeader(now int64, caller Caller, do func()) {
	switch {
	case !n.begin(now) || !n.serving || n.transfer != 0:
		n.answer(caller, NotDone, nil)
		return
	case n.machine.Version() < checkVersion:
		n.deny(caller, core.CodeUnsupported, n.tooNew(checkVersion))
	default:
		do()
	}
	n.process()
}

func (n *Node) askCheck(caller Caller) {
	if n.serving && n.transfer == 0 && !n.checking() && !n.goesOn() {
		n.orderCheck(kindCheck, 0, caller, &core.Entry{Seconds: n.date})
		return
	}
	n.answer(caller, Done, nil) // one is under way
}

// checking reports whether a check, or what follows from one, is proposed and not applied.
func (n *Node) checking() bool {
	term := n.currentTerm()
	return slices.ContainsFunc(n.flying, func(p proposal) bool { return p.check && p.term == term })
}

// orderCheck proposes a check or what follows from one.
func (n *Node) orderCheck(kind byte, ruler uint64, caller Caller, e *core.Entry) {
	n.number++
	e.Now = n.clock.sample(n.now)
	if !n.fly(proposal{number: n.number, term: n.currentTerm(), conf: caller, check: true, ruler: ruler}, kind, 64, e) {
		n.answer(caller, NotDone, nil)
	}
}

// joint reports whether a change of the members is not complete.
func (n *Node) joint() bool { return len(n.members.Conf.GetVotersOutgoing()) > 0 }

// beginCheck begins to hash the machine as it is after the entry e. One that is
// being healed has nothing to say. With a ruler it is void unless the group is frozen: of
// two orders to unfreeze the second must not undo what was granted after the first.
func (n *Node) beginCheck(e *raftpb.Entry, ruler uint64) {
	if ruler != 0 && !n.machine.Frozen() {
		return
	}
	n.endCheckView()
	date, _ := Date(e)
	n.check = check{index: e.GetIndex(), ruler: ruler, at: n.now, from: n.machine.Revision(), date: date, sums: map[uint64]uint64{}, void: map[uint64]bool{}, ticks: n.cfg.ElectionTicks}
	if n.healing == nil {
		n.check.view = n.machine.CheckView()
	}
}

// endCheckView gives up hashing.
func (n *Node) endCheckView() {
	if n.check.view != nil {
		n.check.view.Close()
		n.check.view = nil
	}
}

// tickCheck hashes a little, tells others until somebody has ruled, and does what a
// ruling demands for as long as it is not done.
func (n *Node) tickCheck() {
	k := &n.check
	if k.view != nil {
		var last bool
		if n.hashing, last = k.view.Next(n.hashing[:0], checkStep); last {
			k.sum, k.hashed, k.ticks = k.view.Sum(), true, n.cfg.ElectionTicks
			n.endCheckView()
			n.hashing = nil
		}
	}
	n.tellSum()
	n.obey()
	n.tellOpen()
}

// tellOpen tells an operator of nodes that differ for as long as a node is away without
// which it is not known what is right.
func (n *Node) tellOpen() {
	k := &n.check
	if !n.serving || !k.open() {
		return
	}
	var told, away []uint64
	for _, id := range n.members.Conf.GetVoters() {
		if _, ok := k.sums[id]; ok {
			told = append(told, id)
		} else if !n.answering(id) {
			away = append(away, id)
		}
	}
	if len(away) > 0 {
		n.out.Notice = fmt.Errorf("nodes %s have different states at log entry %d, and which is right is not known without node %s, which does not answer: start it; "+
			"if it is lost for good remove it (holdfast member remove), and nothing is granted until you name the node that is right (holdfast member unfreeze)",
			numbers(told), k.index, numbers(away))
	}
}

// open: nodes differ, and it is not known which of them is right.
func (k *check) open() bool {
	if k.rule != unruled || k.ruler != 0 {
		return false
	}
	sum, first := k.sum, !k.hashed
	for _, other := range k.sums {
		if first {
			sum, first = other, false
		}
		if other != sum {
			return true
		}
	}
	return false
}

// tellSum tells the leader what this node has, now and then until there is a ruling. A
// leader tells the others: they may know a ruling of the leader before.
func (n *Node) tellSum() {
	k := &n.check
	if k.index == 0 || k.rule != unruled || !k.hashed && n.healing == nil {
		return
	}
	if n.leading && n.healing == nil {
		n.hearSum(n.cfg.ID, k.sum)
	}
	if k.ticks++; k.ticks < n.cfg.ElectionTicks || n.leader == 0 {
		return
	}
	k.ticks = 0
	if !n.leading {
		n.noteSum(n.leader)
		return
	}
	for _, id := range n.members.Conf.GetVoters() {
		if id != n.cfg.ID {
			n.noteSum(id)
		}
	}
}

// noteSum tells a node what this one has, or that it has nothing to say.
func (n *Node) noteSum(to uint64) {
	switch k := &n.check; {
	case n.healing != nil:
		n.note(to, noteVoid, k.index, 0)
	case k.hashed:
		n.note(to, noteSum, k.index, k.sum)
	}
}

// hearSum is for a leader: a node has told what it has.
func (n *Node) hearSum(from, sum uint64) {
	n.check.sums[from] = sum
	delete(n.check.void, from)
	n.decided(from)
}

// hearVoid is for a leader: a node that heals has nothing to say.
func (n *Node) hearVoid(from uint64) {
	n.check.void[from] = true
	n.decided(from)
}

func (n *Node) decided(from uint64) {
	k := &n.check
	if k.rule == unruled && !n.joint() {
		k.decide(n.members.Conf.GetVoters())
		n.obey()
	}
	if from != n.cfg.ID {
		n.tellRuling(from)
	}
}

func (n *Node) tellRuling(to uint64) {
	switch n.check.rule {
	case ruled:
		n.note(to, noteRight, n.check.index, n.check.right)
	case noMajority:
		n.note(to, noteNone, n.check.index, 0)
	}
}

// decide rules once a majority of all voters has the same, or cannot any more; or once
// the node that an operator named has told. Voters that heal do not count: an earlier
// ruling has found what they have to be wrong, and they get what the others have.
func (k *check) decide(voters []uint64) {
	if k.ruler != 0 {
		if sum, told := k.sums[k.ruler]; told {
			k.rule, k.right = ruled, sum
		}
		return
	}
	count, most, silent, all := map[uint64]int{}, 0, 0, 0
	for _, id := range voters {
		sum, told := k.sums[id]
		if !told && k.void[id] {
			continue
		}
		if all++; !told {
			silent++
			continue
		}
		if count[sum]++; count[sum] > most {
			most, k.right = count[sum], sum
		}
	}
	switch need := all/2 + 1; {
	case most >= need:
		k.rule = ruled
	case most+silent < need:
		k.rule = noMajority
	}
}

// sound: this node has what is right, or there is no other state.
func (k *check) sound() bool {
	return k.rule == ruled && (k.ended != "" || k.hashed && k.sum == k.right)
}

// obey does what a ruling demands of this node.
func (n *Node) obey() {
	k := &n.check
	switch {
	case n.healing != nil || k.rule == unruled || !k.hashed && k.ended == "":
	case k.rule == ruled && !k.sound():
		n.differ()
	case !n.serving || n.transfer != 0 || n.checking():
	case k.rule == noMajority && !n.machine.Frozen():
		n.orderCheck(kindCore, 0, nobody, &core.Entry{Kind: core.EntryFreeze})
	case k.rule == ruled && k.ruler != 0 && n.machine.Frozen() && n.members.Held == 0: // else that ends by itself
		n.goOn()
	}
}

// checked is the check as an operator sees it.
func (n *Node) checked() Checked {
	k := &n.check
	if k.index == 0 {
		return Checked{}
	}
	c := Checked{Index: k.index, Ago: n.checkedAgo(), Nodes: map[uint64]string{}}
	for _, id := range n.members.all() {
		c.Nodes[id] = k.word(id, n.cfg.ID, n.healing != nil)
	}
	return c
}

// checkedAgo is how long ago the check was ordered: by the dates if its entry has one, since a
// start applies it again, and not less than this node has seen pass.
func (n *Node) checkedAgo() time.Duration {
	seen := time.Duration(n.now - n.check.at)
	if n.check.date == 0 {
		return seen
	}
	return max(seen, time.Duration(n.date-n.check.date)*time.Second)
}

func (k *check) word(id, self uint64, heals bool) string {
	sum, told := k.sums[id]
	if id == self {
		sum, told = k.sum, k.hashed
	}
	switch {
	case id == self && heals:
		return CheckDiffers
	case id == self && k.ended != "":
		return k.ended
	case k.rule == noMajority:
		return CheckNoRule
	case told && k.open():
		return CheckOpen
	case k.rule == unruled || !told:
		return CheckSilent
	case sum == k.right:
		return CheckAgrees
	}
	return CheckDiffers
}

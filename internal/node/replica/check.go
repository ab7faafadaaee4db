package replica

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/holdfast-io/holdfast/internal/core"
)

// The nodes of a group compare their machines now and then: an entry has all of them
// hash a view of that index, a little with each tick, and tell the leader. What the
// majority of all voters has is right. A node that has something else neither leads
// nor tells anybody anything until it has been given the machine of another node; its
// log is as good as before. Without a majority nobody knows what is right, so that
// nothing is granted until an operator ends that.

// checkVersion is the first version of groups that are checked.
const checkVersion = 3

// check is the newest one, as this node knows it.
type check struct {
	index  uint64     // of its entry; 0: there was none
	at     int64      // elapsed time when that was applied
	view   *core.View // not hashed to its end; nil: it is, or is void
	sum    uint64     // this node's, if hashed
	hashed bool
	sums   map[uint64]uint64 // that a leader was told
	rule   ruling
	right  uint64 // what the majority has
	ticks  int    // since the leader was told
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
	// Ago is how long ago that was applied here.
	Ago time.Duration
	// Nodes says of each node what this one knows: the leader knows all.
	Nodes map[uint64]string
}

// What is known of a node after a check.
const (
	CheckAgrees  = "agrees"
	CheckDiffers = "differs"
	CheckSilent  = "not known"
	CheckNoRule  = "no majority"
)

// checkStep is how much of a view is hashed with each tick: about a millisecond's
// work, 10 MB a second.
const checkStep = 1 << 20

// proposeCheck asks for a check when it is time, and there is anybody to compare with.
func (n *Node) proposeCheck() {
	if n.now-max(n.check.at, n.began) >= int64(n.cfg.CheckEvery) && n.machine.Version() >= checkVersion && !n.joint() && !n.Solitary() {
		n.askCheck(nobody)
	}
}

// Check asks for a state check. The caller is answered Done when it has begun; what
// comes of it is in [Status.Checked].
func (n *Node) Check(now int64, caller Caller) {
	n.asLeader(now, caller, func() { n.askCheck(caller) })
}

// Unfreeze asks to end a freeze. The caller is answered Done when that is applied.
func (n *Node) Unfreeze(now int64, caller Caller) {
	n.asLeader(now, caller, func() {
		n.number++
		n.order(proposal{number: n.number, term: n.currentTerm(), conf: caller}, kindCore, &core.Entry{Kind: core.EntryUnfreeze, Now: n.clock.sample(n.now)})
	})
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
	if n.serving && n.transfer == 0 && n.check.asked(n.currentTerm(), n.flying) {
		n.number++
		n.order(proposal{number: n.number, term: n.currentTerm(), conf: caller, check: true}, kindCheck, &core.Entry{Now: n.clock.sample(n.now)})
		return
	}
	n.answer(caller, Done, nil) // one is under way
}

// asked reports whether no check flies.
func (k *check) asked(term uint64, flying []proposal) bool {
	return !slices.ContainsFunc(flying, func(p proposal) bool { return p.check && p.term == term })
}

// order proposes an entry that somebody may wait for.
func (n *Node) order(p proposal, kind byte, e *core.Entry) {
	if !n.fly(p, kind, 64, e) {
		n.answer(p.conf, NotDone, nil)
	}
}

// joint reports whether a change of the members is not complete.
func (n *Node) joint() bool { return len(n.members.Conf.GetVotersOutgoing()) > 0 }

// beginCheck begins to hash the machine as it is after the entry at index. One that is
// being healed has nothing to say.
func (n *Node) beginCheck(index uint64) {
	n.endCheckView()
	n.check = check{index: index, at: n.now, sums: map[uint64]uint64{}}
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

// tickCheck hashes a little, and tells the leader until that has ruled.
func (n *Node) tickCheck() {
	k := &n.check
	if k.view != nil {
		var last bool
		if n.hashing, last = k.view.Next(n.hashing[:0], checkStep); last {
			k.sum, k.hashed, k.ticks = k.view.Sum(), true, n.cfg.ElectionTicks
			n.endCheckView()
			n.hashing = nil
			n.obey() // the others may have been faster
		}
	}
	if !k.hashed || k.rule != unruled || n.healing != nil {
		return
	}
	if n.leading {
		n.hearSum(n.cfg.ID, k.sum)
		return
	}
	if k.ticks++; k.ticks >= n.cfg.ElectionTicks && n.leader != 0 {
		k.ticks = 0
		n.note(n.leader, noteSum, k.index, k.sum)
	}
}

// hearSum is for a leader: a node has told what it has.
func (n *Node) hearSum(from, sum uint64) {
	k := &n.check
	k.sums[from] = sum
	if k.rule == unruled && !n.joint() {
		k.decide(n.members.Conf.GetVoters())
		n.obey()
	}
	if k.rule != unruled && from != n.cfg.ID {
		n.tellRuling(from)
	}
}

func (n *Node) tellRuling(to uint64) {
	if n.check.rule == ruled {
		n.note(to, noteRight, n.check.index, n.check.right)
	} else {
		n.note(to, noteNone, n.check.index, 0)
	}
}

// decide rules once a majority of all voters has the same, or cannot any more.
func (k *check) decide(voters []uint64) {
	count, most, silent := map[uint64]int{}, 0, 0
	for _, id := range voters {
		sum, told := k.sums[id]
		if !told {
			silent++
			continue
		}
		if count[sum]++; count[sum] > most {
			most, k.right = count[sum], sum
		}
	}
	switch need := len(voters)/2 + 1; {
	case most >= need:
		k.rule = ruled
	case most+silent < need:
		k.rule = noMajority
	}
}

// obey does what a ruling demands of this node.
func (n *Node) obey() {
	k := &n.check
	switch {
	case k.rule == ruled && k.hashed && k.sum != k.right:
		n.differ()
	case k.rule == noMajority && n.serving && !n.machine.Frozen():
		n.number++
		n.order(proposal{number: n.number, term: n.currentTerm()}, kindCore, &core.Entry{Kind: core.EntryFreeze, Now: n.clock.sample(n.now)})
	}
}

// differ stops all that depends on the machine. A leader hands over to a node that has
// what the majority has; if that does not take it, its silence ends its term.
func (n *Node) differ() {
	n.healing = &healing{least: n.check.index, ticks: n.cfg.ElectionTicks}
	n.loseTrack() // also a former leader does not see any more what becomes of its proposals
	if !n.leading {
		return
	}
	n.stepDown()
	to, far := uint64(0), uint64(0)
	n.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if sum, told := n.check.sums[id]; told && sum == n.check.right && !p.IsLearner && p.Match >= far {
			to, far = id, p.Match
		}
	})
	n.raft.TransferLeader(to)
}

// healing is the part of a node that differs from the majority.
type healing struct {
	least   uint64 // a snapshot of an index below does not help
	ticks   int    // since the leader was asked
	machine *core.Machine
	at      uint64 // what that has applied
}

// healStep is how many entries a machine that came applies with each tick.
const healStep = 4096

// tickHeal asks for the machine of another node, and brings it to where this one is.
func (n *Node) tickHeal() {
	h := n.healing
	if h == nil {
		return
	}
	if n.leader != 0 && !n.answering(n.leader) {
		// Raft does not tick, and would refuse its vote to others for as long as it believes
		// in a leader.
		n.ensure(n.raft.ForgetLeader())
	}
	if h.machine == nil {
		if h.ticks++; h.ticks >= n.cfg.ElectionTicks && n.leader != 0 && n.leader != n.cfg.ID {
			h.ticks = 0
			first, err := n.log.FirstIndex()
			n.ensure(err)
			h.least = max(h.least, first-1)
			n.note(n.leader, noteWant, h.least, 0)
		}
		return
	}
	if h.at < n.applied {
		entries, err := n.log.Entries(h.at+1, min(n.applied, h.at+healStep)+1, 64<<20)
		if err != nil { // they are not kept any more
			h.machine = nil
			return
		}
		for _, e := range entries {
			if err := Replay(h.machine, e); err != nil {
				n.fail(fmt.Errorf("replica: entry %d cannot be applied: %w", e.GetIndex(), err))
				return
			}
			h.at = e.GetIndex()
		}
	}
	if h.at == n.applied {
		n.healed()
	}
}

// healed goes on with the machine that came.
func (n *Node) healed() {
	n.machine, n.healing = n.healing.machine, nil
	n.endCheckView()
	n.check.hashed, n.check.rule = false, ruled
	n.out.Jumped = true
	n.snap.wanted = n.applied // those on disk may be wrong
	n.maybeSnapshot()
}

// The notes that nodes send each other beside raft's messages. They begin with a zero,
// which none of those does.
const (
	noteSum   = 1 + iota // what a node has at a check
	noteRight            // what the majority has
	noteNone             // there is no majority
	noteWant             // a node needs a machine of that index at least
	noteHeal             // goes with the snapshot of one
	noteSize  = 34
)

func encodeNote(kind byte, from, to, index, sum uint64) []byte {
	b := []byte{0, kind}
	for _, v := range []uint64{from, to, index, sum} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func (n *Node) note(to uint64, kind byte, index, sum uint64) {
	n.out.Messages = append(n.out.Messages, Message{To: to, Data: encodeNote(kind, n.cfg.ID, to, index, sum)})
}

// isNote tells a note from raft's messages.
func isNote(data []byte) bool { return len(data) == noteSize && data[0] == 0 }

// hearNote takes a note from a member.
func (n *Node) hearNote(b []byte) error {
	number := func(i int) uint64 { return binary.LittleEndian.Uint64(b[2+8*i:]) }
	from, to, index, sum := number(0), number(1), number(2), number(3)
	if to != n.cfg.ID {
		return fmt.Errorf("replica: a note of node %d for node %d came to node %d", from, to, n.cfg.ID)
	}
	if !n.members.has(from) {
		return nil // it has been removed, or this node has yet to hear of it
	}
	k := &n.check
	switch b[1] {
	case noteSum:
		if n.leading && index == k.index && n.healing == nil {
			n.hearSum(from, sum)
		}
	case noteRight, noteNone:
		if index == k.index && k.rule == unruled && from == n.leader {
			k.rule, k.right = ruled, sum
			if b[1] == noteNone {
				k.rule = noMajority
			}
			n.obey()
		}
	case noteWant:
		n.sendMachine(from, index)
	}
	return nil
}

// sendMachine sends the newest snapshot to a node that needs one of an index at
// least, or makes one.
func (n *Node) sendMachine(to, least uint64) {
	switch {
	case !n.serving || n.sending[to]:
	case n.snap.index < least:
		n.snap.wanted = n.applied
		n.maybeSnapshot()
	default:
		n.sending[to] = true
		n.out.SendSnapshots = append(n.out.SendSnapshots, SendSnapshot{To: to, Index: n.snap.index, Message: encodeNote(noteHeal, n.cfg.ID, to, n.snap.index, 0)})
	}
}

// arrivedMachine takes the machine of another node, if this one needs it.
func (n *Node) arrivedMachine(b []byte, machine *core.Machine) error {
	index := binary.LittleEndian.Uint64(b[2+8*2:])
	if h := n.healing; b[1] == noteHeal && h != nil && h.machine == nil && index >= h.least {
		if err := n.cfg.supported(fmt.Sprintf("the snapshot at %d", index), machine.Version()); err != nil {
			n.fail(err)
			return err
		}
		h.machine, h.at = machine, index
	}
	return nil
}

// checked is the check as an operator sees it.
func (n *Node) checked() Checked {
	k := &n.check
	if k.index == 0 {
		return Checked{}
	}
	c := Checked{Index: k.index, Ago: time.Duration(n.now - k.at), Nodes: map[uint64]string{}}
	for _, id := range n.members.all() {
		c.Nodes[id] = k.word(id, n.cfg.ID, n.healing != nil)
	}
	return c
}

func (k *check) word(id, self uint64, heals bool) string {
	sum, told := k.sums[id]
	if id == self {
		sum, told = k.sum, k.hashed
	}
	switch {
	case id == self && heals:
		return CheckDiffers
	case k.rule == noMajority:
		return CheckNoRule
	case k.rule == unruled || !told:
		return CheckSilent
	case sum == k.right:
		return CheckAgrees
	}
	return CheckDiffers
}

package replica

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/holdfast-io/holdfast/internal/core"
)

// healing is the part of a node that differs from what is right.
type healing struct {
	check   uint64 // the check that found it; 0: it was found before this start
	right   uint64 // what was right there
	least   uint64 // a snapshot of an index below does not help
	ticks   int    // since the leader was asked, or another was asked to lead
	asked   uint64 // the node that was asked to lead last
	missed  int    // ticks without a leader
	machine *core.Machine
	at      uint64 // what that has applied
}

// differ stops all that depends on the machine. A leader hands over to a node that has
// what is right. What a majority has found the next start knows, too; the word of an operator it does not: should
// the node that was named be lost, the others are started again, and one of them is named.
func (n *Node) differ() {
	n.heals(&healing{check: n.check.index, right: n.check.right, least: n.check.index, ticks: n.cfg.ElectionTicks})
	if n.check.ruler == 0 {
		n.writeDoubt()
	}
	if n.leading {
		n.raise(n.machine.Revision()) // what follows is granted by a node that does not know of the grants here
	}
	n.loseTrack() // also a former leader does not see any more what becomes of its proposals
	if n.leading {
		n.stepDown()
	}
}

// heals takes the machine for wrong, and all snapshots of it.
func (n *Node) heals(h *healing) { n.healing, n.snap.wrong = h, true }

// missing is for how many election timeouts a node that heals leaves it to the others to elect a leader.
const missing = 3

// stands reports whether raft's clock goes on, by which a node stands for election. On one that heals
// it does only when nobody has led for some time: it may be the one with the longest log, without which no
// other is elected. It leads then without serving, and hands over.
func (n *Node) stands() bool {
	h := n.healing
	if h == nil || n.leading {
		return true
	}
	if h.missed++; n.leader != 0 {
		h.missed = 0
	}
	return h.missed > missing*n.cfg.ElectionTicks
}

// tickHeal asks for the machine of another node, and brings it to where this one is.
func (n *Node) tickHeal() {
	h := n.healing
	switch {
	case h == nil:
		return
	case n.members.alone(n.cfg.ID):
		n.trust()
		return
	case n.leading:
		n.tickHandOver()
		return
	case n.leader != 0 && !n.answering(n.leader):
		// Raft does not tick, and would refuse its vote to others for as long as it believes
		// in a leader.
		n.ensure(n.raft.ForgetLeader())
	}
	switch {
	case h.machine == nil:
		n.tickWant()
	default:
		n.catchUp()
	}
}

// trust goes on with the machine as it is, on the only voter: there is no other state. A snapshot of it
// takes the place of all others, which ends the doubt on disk, too. What was applied in doubt no watcher was told of.
func (n *Node) trust() {
	n.healing, n.check.ended = nil, CheckAlone
	n.out.Jumped = true
	n.maybeSnapshot()
	n.begunTerm(n.term)
}

// tickHandOver asks another node to lead, and after an election timeout yet another: the
// one that was asked may be lost. Until then this node leads on without serving, since
// only a node that follows somebody does what it is asked here.
func (n *Node) tickHandOver() {
	h := n.healing
	if h.ticks++; h.ticks < n.cfg.ElectionTicks {
		return
	}
	if to := n.successor(); to != 0 {
		h.ticks, h.asked = 0, to
		n.raft.TransferLeader(n.cfg.ID) // ends what was asked of the one before
		n.raft.TransferLeader(to)
	}
}

// successor is a voter that answers and is not known to be wrong: one that was asked last only if there
// is no other, then one that is known to have what is right, then one that is well, then the one with the most of the log. A
// node that heals itself does not do what it is asked. 0: there is none.
func (n *Node) successor() (to uint64) {
	var best choice
	n.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		known, right := n.judged(id)
		if p.IsLearner || id == n.cfg.ID || !n.answering(id) || known && !right || n.ailing(id).bars() {
			return
		}
		if h := (choice{id != n.healing.asked, right, n.ailing(id) == 0, p.Match}); to == 0 || h.before(best) {
			to, best = id, h
		}
	})
	return to
}

// judged tells whether a node has what is right, as far as that is known.
func (n *Node) judged(id uint64) (known, right bool) {
	sum, told := n.check.sums[id]
	known = told && n.healing.check != 0 && n.healing.check == n.check.index
	return known, known && sum == n.healing.right
}

// choice is what speaks for a node that could take over.
type choice struct {
	fresh bool // it was not asked last
	right bool // it is known to have what is right
	well  bool // nothing else is wrong with it
	match uint64
}

func (h choice) before(o choice) bool {
	switch {
	case h.fresh != o.fresh:
		return h.fresh
	case h.right != o.right:
		return h.right
	case h.well != o.well:
		return h.well
	}
	return h.match >= o.match
}

// tickWant asks the leader for its machine.
func (n *Node) tickWant() {
	h := n.healing
	if h.ticks++; h.ticks >= n.cfg.ElectionTicks && n.leader != 0 {
		h.ticks = 0
		first, err := n.log.FirstIndex()
		n.ensure(err)
		h.least = max(h.least, first-1)
		n.note(n.leader, noteWant, h.least, n.machine.Revision())
	}
}

// healEntries and healBytes bound what a machine that came applies with each tick, so
// that the node has time for its log.
const (
	healEntries = 4096
	healBytes   = 2 << 20
)

// catchUp applies to the machine that came what this node has applied.
func (n *Node) catchUp() {
	h := n.healing
	if h.at < n.applied {
		entries, err := n.log.Entries(h.at+1, min(n.applied, h.at+healEntries)+1, healBytes)
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

// healed goes on with the machine that came. Snapshots of the one before are wrong: they
// are neither sent nor kept.
func (n *Node) healed() {
	k := &n.check
	n.endCheckView()
	k.hashed = false
	if k.index == n.healing.check && k.index != 0 {
		k.rule, k.right, k.ended = ruled, n.healing.right, CheckHealed
	}
	n.machine, n.healing = n.healing.machine, nil
	n.out.Jumped = true
	n.snap.wrong, n.snap.atLeast = true, max(n.snap.atLeast, n.applied)
	n.maybeSnapshot()
}

// sendMachine sends the newest snapshot to a node that needs one of an index at
// least, or makes one. A leader that does not know whether its own is right finds out
// first.
func (n *Node) sendMachine(to, least uint64) {
	switch k := &n.check; {
	case !n.serving || n.sending[to]:
	case !k.sound():
		if !k.hashed && k.view == nil && n.machine.Version() >= checkVersion && !n.joint() {
			n.askCheck(nobody)
		}
	case n.snap.index < max(least, n.snap.atLeast) || n.snap.wrong:
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

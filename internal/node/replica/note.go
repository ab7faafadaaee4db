package replica

import (
	"encoding/binary"
	"fmt"
)

// The notes that nodes send each other beside raft's messages. They begin with a zero,
// which none of those does.
const (
	noteSum   = 1 + iota // what a node has at a check
	noteRight            // what is right there
	noteNone             // there is no majority
	noteWant             // a node needs a machine of that index at least; its own has got to that revision
	noteHeal             // goes with the snapshot of one
	noteVoid             // a node heals, and has nothing to say at a check
	noteAils             // a node should not be made the leader
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
	switch {
	case !n.members.has(from): // it has been removed, or this node has yet to hear of it
	case b[1] == noteWant:
		n.heardWant(from, index, sum)
	case b[1] == noteAils:
		n.unwell.said[from] = complaint{ailment(index), n.now}
	case index != n.check.index || index == 0: // of another check than the newest here
	case b[1] == noteSum || b[1] == noteVoid:
		n.hearSaid(from, b[1], sum)
	case b[1] == noteRight || b[1] == noteNone:
		n.hearRuling(b[1], sum)
	}
	return nil
}

// hearSaid takes what a node says at the newest check. What a leader says is answered: it
// has yet to hear of a ruling.
func (n *Node) hearSaid(from uint64, kind byte, sum uint64) {
	switch {
	case n.leading && n.healing != nil:
	case n.leading && kind == noteSum:
		n.hearSum(from, sum)
	case n.leading:
		n.hearVoid(from)
	case from == n.leader:
		if kind == noteSum {
			n.check.sums[from] = sum // it is a fact, and tells whether this node differs
		}
		n.noteSum(from)
		n.tellRuling(from)
	}
}

// hearRuling takes a ruling, which is a fact from any sender.
func (n *Node) hearRuling(kind byte, right uint64) {
	k := &n.check
	if k.rule != unruled {
		return
	}
	if k.rule, k.right = ruled, right; kind == noteNone {
		k.rule = noMajority
	}
	n.obey()
}

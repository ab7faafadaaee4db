package replica

import (
	"fmt"
	"time"
)

// A node that would lead badly tells the leader with every tick, so that leadership is not handed to
// it: by an operator, by a leader that stops, or by one that has to hand over itself. It may still be
// elected, if no other can be.

// ailment is why a node should not be made the leader; 0: it may.
type ailment uint64

const (
	ailsDiffers ailment = 1 + iota // it heals
	ailsLeaves                     // it was asked to hand over, since it is to be removed
	ailsSlow                       // its disk has not written for an election timeout
	ailsFull                       // its disk is nearly full
)

// unwell is what speaks against nodes as leaders.
type unwell struct {
	said    map[uint64]complaint // by other members, of themselves
	leaving int64                // elapsed time until which this node is about to be removed
	cramped int64                // elapsed time since which this node serves with a full disk, or has asked another to lead for it
}

// complaint is what a node said against itself, and when.
type complaint struct {
	ailment ailment
	at      int64
}

// ailment is this node's own.
func (n *Node) ailment() ailment {
	switch {
	case n.healing != nil:
		return ailsDiffers
	case n.now < n.unwell.leaving:
		return ailsLeaves
	case n.slow():
		return ailsSlow
	case n.full:
		return ailsFull
	}
	return 0
}

// tickAiling tells the leader what is wrong with this node.
func (n *Node) tickAiling() {
	if a := n.ailment(); a != 0 && n.leader != 0 && !n.leading {
		n.note(n.leader, noteAils, uint64(a), 0)
	}
}

// complains is what another node has told against itself within an election timeout.
func (n *Node) complains(id uint64) ailment {
	w, told := n.unwell.said[id]
	if !told || n.now-w.at > int64(n.cfg.electionTimeout()) {
		return 0
	}
	return w.ailment
}

// ailing is what is wrong with another node, as far as it has told. What is
// wrong with the disk of this node, too, is no reason against the other.
func (n *Node) ailing(id uint64) ailment {
	a := n.complains(id)
	if a >= ailsSlow && a == n.ailment() {
		return 0
	}
	return a
}

// leaves has this node pass for one that goes, for as long as an operator may ask the next leader to
// remove it: two nodes that are to be removed at the same time would otherwise hand over to each other
// again and again.
func (n *Node) leaves(to uint64) {
	n.unwell.leaving = n.now + 2*int64(n.cfg.electionTimeout())
	n.note(to, noteAils, uint64(ailsLeaves), 0)
}

// bars reports whether a node with it cannot take over at all: one that heals does not do what it is asked. With another
// ailment it does, if there is no other node.
func (a ailment) bars() bool { return a == ailsDiffers }

// text says why a node must not lead, and what to do.
func (a ailment) text(id uint64, silence time.Duration) string {
	switch a {
	case ailsDiffers:
		return fmt.Sprintf("node %d differs from the others, and does not lead before it has their state (holdfast status): try again when it has, or name another", id)
	case ailsLeaves:
		return fmt.Sprintf("node %d is about to be removed: name another", id)
	case ailsSlow:
		return fmt.Sprintf("the disk of node %d has not written for %s, so that everybody would wait for it: look at that disk, or name another", id, silence)
	case ailsFull:
		return fmt.Sprintf("the disk of node %d is full, so that as the leader it would refuse what makes the state grow: make room there, or name another", id)
	}
	return ""
}

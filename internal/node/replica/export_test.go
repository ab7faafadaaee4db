package replica

import (
	"encoding/binary"
	"math"

	"go.etcd.io/raft/v3/raftpb"
)

// InMemory is how many entries of the log are in memory.
func (n *Node) InMemory() uint64 {
	first, _ := n.log.FirstIndex()
	last, _ := n.log.LastIndex()
	return last + 1 - first
}

// Log is what is in memory of the log.
func (n *Node) Log() []*raftpb.Entry {
	first, _ := n.log.FirstIndex()
	last, _ := n.log.LastIndex()
	entries, _ := n.log.Entries(first, last+1, math.MaxUint64)
	return entries
}

// Arrivals is how many machines are kept that raft may install.
func (n *Node) Arrivals() int { return len(n.snap.arrived) }

// IsRuling tells the note with what is right at a check.
func IsRuling(data []byte) bool { return isNote(data) && data[1] == noteRight }

// IsSum tells the note with which a node says what it has at a check.
func IsSum(data []byte, from uint64) bool {
	return isNote(data) && data[1] == noteSum && binary.LittleEndian.Uint64(data[2:]) == from
}

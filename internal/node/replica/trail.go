package replica

import (
	"math"

	"go.etcd.io/raft/v3/raftpb"
)

// looseBytes is how much applied log a node alone lets go of at a time.
const looseBytes = 256 << 10

// entryCost is about what an entry takes in memory beside its data.
const entryCost = 128

// trail is how large entries are that were let go of in memory, up to the first
// that was not: the disk keeps as much of them as of any other node's.
type trail []uint32

// letGo frees applied entries from memory if nobody could want them. The disk has
// them for the next start, and a node that joins begins with a snapshot made
// after it was added.
func (n *Node) letGo() {
	s := &n.snap
	if s.loose < looseBytes || !n.Solitary() {
		return
	}
	s.loose = 0
	to := n.applied
	if s.view != nil {
		to = s.making.Index // its term will be asked for
	}
	first, err := n.log.FirstIndex()
	if err != nil || to < first {
		return
	}
	entries, err := n.log.Entries(first, to+1, math.MaxUint64)
	n.ensure(err)
	s.trail.add(entries, int(min(n.cfg.Trailing, math.MaxInt32)))
	n.ensure(n.log.Compact(to))
}

// add notes the sizes of entries, and forgets all but the newest limit.
func (t *trail) add(entries []*raftpb.Entry, limit int) {
	for _, e := range entries[max(0, len(entries)-limit):] {
		*t = append(*t, uint32(len(e.GetData())))
	}
	if more := len(*t) - limit; more > 0 {
		*t = append((*t)[:0], (*t)[more:]...)
	}
}

// compact frees the log below the newest snapshot, less what slow followers may
// still want. In a group it is all in memory, so its bytes count as well as its
// entries.
func (n *Node) compact() {
	s := &n.snap
	first, err := n.log.FirstIndex()
	n.ensure(err)
	to := s.index
	for size := 0; s.index-to < n.cfg.Trailing; to-- {
		data, known := n.sizeOf(to, first)
		if size += data; !known || size > n.cfg.TrailingBytes {
			break
		}
	}
	if to <= s.freed {
		return
	}
	if to >= first {
		n.ensure(n.log.Compact(to))
		s.trail = nil
	}
	s.freed, n.out.Compact = to, to
}

// sizeOf is the size of an entry's data, known for those in memory, from first
// on, and those on the trail.
func (n *Node) sizeOf(index, first uint64) (size int, known bool) {
	if index < first {
		at := int(index-first) + len(n.snap.trail)
		if at < 0 {
			return 0, false
		}
		return int(n.snap.trail[at]), true
	}
	entries, err := n.log.Entries(index, index+1, math.MaxUint64)
	n.ensure(err)
	if len(entries) == 0 {
		return 0, false
	}
	return len(entries[0].GetData()), true
}

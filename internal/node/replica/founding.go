package replica

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"
)

// An empty directory does not know whether it is new or was wiped, so that it must
// not vote on its own word. A founder asks all others first. It founds the group
// only when all of them are empty, and all of them propose what it proposes: the
// directories of the founders. So a majority that has voted was founded with one
// such proposal, and each of its nodes says so for ever; no other can come
// together without it. (A founder that is wiped in between has another directory
// then, and directories never come back.)

// Word is what a node says of itself to a founder that asks.
type Word struct {
	Node, Dir uint64
	Versions  Versions // that it supports
	// Proposal is what the node would found a group with; 0: it does not know yet,
	// or is no founder.
	Proposal uint64
	// Members are the nodes that it knows: no voters if its directory is empty.
	Members Membership
}

// Encode gives the word as it goes over the wire.
func (w *Word) Encode() ([]byte, error) {
	members, err := w.Members.Encode()
	if err != nil {
		return nil, err
	}
	b := []byte{2, w.Versions.Least, w.Versions.Newest}
	for _, v := range []uint64{w.Node, w.Dir, w.Proposal} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return append(b, members...), nil
}

// DecodeWord is the reverse of Encode.
func DecodeWord(b []byte) (w Word, err error) {
	if len(b) < 27 || b[0] != 2 {
		return w, errors.New("replica: a node's word of unknown form: run the same version on all nodes")
	}
	for i, v := range []*uint64{&w.Node, &w.Dir, &w.Proposal} {
		*v = binary.LittleEndian.Uint64(b[3+8*i:])
	}
	w.Versions = Versions{b[1], b[2]}
	w.Members, err = DecodeMembership(b[27:])
	return w, err
}

// Word is what this node says of itself.
func (n *Node) Word() Word {
	return Word{Node: n.cfg.ID, Dir: n.cfg.Dir, Versions: n.Versions(), Members: n.members}
}

// empty: the node has no state.
func (w *Word) empty() bool { return len(w.Members.Conf.GetVoters()) == 0 }

// Founding is what a founder with an empty directory should do.
type Founding struct {
	// Found: it is a founder of a group of these.
	Found []Endpoint
	// Join: the group goes on without its founding, and knows this directory: it
	// sends its state.
	Join bool
	// Stranger: a group is there which this directory is not of.
	Stranger error
	// Proposal is what it proposes until then, and Waiting the nodes that it waits for.
	Proposal uint64
	Waiting  string
}

// Found decides for a founder with an empty directory; words are what the others
// have said, in one round of questions.
func Found(self Endpoint, founders []Endpoint, words map[uint64]Word) Founding {
	all := slices.Clone(founders)
	slices.SortFunc(all, func(a, b Endpoint) int { return compare(a.ID, b.ID) })
	for _, e := range all {
		if w, ok := words[e.ID]; ok && !w.empty() {
			return meet(self, &w)
		}
	}
	var silent []string
	for i := range all {
		w, ok := words[all[i].ID]
		switch {
		case all[i].ID == self.ID:
			all[i].Dir = self.Dir
		case !ok:
			silent = append(silent, fmt.Sprintf("node %d does not answer at %s", all[i].ID, all[i].Peer))
		default:
			all[i].Dir = w.Dir
		}
	}
	if len(silent) > 0 {
		return Founding{Waiting: strings.Join(silent, ", ") + ": a new group begins when all its founders are there"}
	}
	return agree(self, all, words)
}

// Only is f for a node that had a state and lost it: it can be let in by a group that is
// there, and founds none, since others would take that for the one that it was of.
func (f Founding) Only(why string) Founding {
	if f.Proposal == 0 {
		return f
	}
	return Founding{Waiting: why}
}

// meet is for a founder that meets a node with a state.
func meet(self Endpoint, w *Word) Founding {
	known := w.Members.Directory(self.ID)
	switch {
	case known != self.Dir:
		return Founding{Stranger: fmt.Errorf("%w: node %d has a state of this group, and %s", ErrStranger, w.Node, whyStrange(self.ID, known))}
	case w.Members.Founding != 0 && w.Members.Founding == foundingOf(w.Members.Endpoints):
		return Founding{Found: w.Members.Endpoints}
	}
	return Founding{Join: true}
}

// ErrStranger is the kind of a refusal of a directory that a group does not know.
var ErrStranger = errors.New("this directory is not of the group")

func whyStrange(id, known uint64) string {
	switch known {
	case Removed:
		return fmt.Sprintf("node %d was removed from it", id)
	case 0:
		return fmt.Sprintf("knows no directory of node %d", id)
	}
	return fmt.Sprintf("knows node %d by another directory", id)
}

// agree founds if all others propose the same.
func agree(self Endpoint, all []Endpoint, words map[uint64]Word) Founding {
	f := Founding{Proposal: foundingOf(all)}
	for _, e := range all {
		if w := words[e.ID]; e.ID != self.ID && w.Proposal != f.Proposal {
			f.Waiting = fmt.Sprintf("node %d has yet to propose the same founders, which takes a moment; if it lasts, --members of the two differ", e.ID)
			return f
		}
	}
	f.Found = all
	return f
}

// foundingOf is the proposal of founders and their directories; 0 if one of these
// is not known, or if there is one founder only.
func foundingOf(founders []Endpoint) uint64 {
	b := []byte("holdfast founding")
	for _, e := range founders {
		if e.Dir == 0 {
			return 0
		}
		b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, e.ID), e.Dir)
	}
	if len(founders) < 2 {
		return 0
	}
	sum := sha256.Sum256(b)
	return max(1, binary.LittleEndian.Uint64(sum[:]))
}

// may refuses messages that a node must not follow. One without a state does not
// vote: it does not know what it has promised before. And a leader that has this
// node's word for more than the log holds shows that the log is not what it was.
func (n *Node) may(m *raftpb.Message) bool {
	switch m.GetType() {
	case raftpb.MsgTimeoutNow:
		return n.healing == nil // else it must not lead
	case raftpb.MsgVote, raftpb.MsgPreVote:
		return len(n.members.Conf.GetVoters()) > 0
	case raftpb.MsgHeartbeat:
		last, err := n.log.LastIndex()
		n.ensure(err)
		if m.GetCommit() > last {
			n.fail(fmt.Errorf("replica: node %d has this node's word for entry %d, and its log ends at %d: %w as it was, but an older copy; remove the node from the group, and let it join under a new number with an empty directory", m.GetFrom(), m.GetCommit(), last, ErrStranger))
		}
	}
	return n.err == nil
}

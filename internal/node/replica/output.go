package replica

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Output is what the shell has to do after an input. It is valid until the next
// call of the node, the entries in it for ever.
type Output struct {
	Writes []Write
	// Messages go to peers.
	Messages []Message
	// Frames go to streams: encoded messages of package session.
	Frames []StreamFrame
	// Answers go to callers without a stream.
	Answers []Answer
	// Closed streams get nothing more; their clients have to find the leader.
	Closed []Caller
	// Reads may now look at the machine: nothing older than their asking is
	// missing from it.
	Reads []Caller
	// Events are what the applied entries did, for the watchers of this node.
	Events []core.Event
	// Jumped: events are missing, since a snapshot took the machine's place or
	// since there were too many at once: watchers of this node need a resync.
	Jumped bool
	// Applied has the machine's hash after each entry: the same on every node.
	Applied []Applied
	// Snapshot asks for a new snapshot: read it with Node.SnapshotNext.
	Snapshot *SnapshotMeta
	// SendSnapshots asks to stream the newest snapshot to a peer, then to call
	// Node.SnapshotSent.
	SendSnapshots []SendSnapshot
	// Members is the membership, when it has changed and at the beginning.
	Members *Membership
	// Removed are the numbers of nodes that are not to be heard any more, when there is
	// another, and at the beginning.
	Removed []uint64
	// Version is that of the group, when it has changed and at the beginning; else 0.
	Version uint8
	// Compact, if not 0, frees the log up to and with this index.
	Compact uint64
	// Notice is what an operator should know and no call returns; it comes again while
	// it is so.
	Notice error
	// Mark: there is nothing to write, so that the disk can vouch for what is
	// written.
	Mark bool
}

// Applied is the machine's hash after the entry at Index.
type Applied struct{ Index, Hash uint64 }

// Write is something to make durable, in order.
type Write struct {
	ID uint64
	// HardState, Entries and Install are what to write; Entries replace what the
	// log has from their first index on.
	HardState *raftpb.HardState
	Entries   []*raftpb.Entry
	// Install makes the snapshot that was received the beginning of the log;
	// entries of before are void.
	Install *SnapshotMeta
	// Doubt: the state of this node was found to be wrong, which its next start has to know
	// ([Recovered.Doubted]) until a snapshot that is [SnapshotMeta.Only], or Install, has brought
	// another. Nothing else is written with it.
	Doubt bool
	// Sync is false if it need not be durable before Written is called.
	Sync bool

	asked     int64 // when
	responses []*raftpb.Message
}

// Message is for a peer; Data is an encoded raft message.
type Message struct {
	To   uint64
	Data []byte
}

// StreamFrame is for a stream.
type StreamFrame struct {
	Stream Caller
	Data   []byte
	// More: another page follows when the client has taken this one and Node.More
	// is called.
	More bool
}

// Outcome is what is known of a call.
type Outcome uint8

// The outcomes. While a caller has none, what it asked for may still happen.
const (
	Done     Outcome = 1 + iota // it was applied; Answer.Data is the reply
	NotDone                     // it certainly was not, and will not be
	Overload                    // not taken; come back later
	Unknown                     // it may have been applied: nobody can tell any more
)

// Answer is for a caller without a stream.
type Answer struct {
	Caller  Caller
	Outcome Outcome
	Data    []byte    // Done: an encoded core.Reply
	Code    core.Code // NotDone, if what was asked for is at fault
	Text    string    // and why
	// RetryAfter is when to ask again after an Overload, in nanoseconds.
	RetryAfter int64
}

// SnapshotMeta says what a snapshot stands for.
type SnapshotMeta struct {
	Index, Term uint64
	Conf        Membership
	// Only, of one that is to be made: those of before are of a wrong state, and have to go.
	Only bool
}

// Chunk is a piece of a snapshot that a node makes of its own state.
type Chunk struct {
	Index uint64 // of the snapshot
	Data  []byte
	Last  bool // nothing follows
}

// SendSnapshot asks to bring the newest snapshot to a peer. Message is the raft
// message that has to arrive with it.
type SendSnapshot struct {
	To      uint64
	Index   uint64
	Message []byte
}

// Output proposes what has come, returns what there is to do and forgets it.
func (n *Node) Output() Output {
	n.process()
	n.flushStreams()
	n.tellVersion()
	out := n.out
	n.out = Output{Events: n.spare[:0]}
	n.spare = nil
	if cap(out.Events) <= maxSpare {
		n.spare = out.Events
	}
	return out
}

// maxSpare bounds the events of which the room is used again by the next Output but one.
const maxSpare = 1 << 12

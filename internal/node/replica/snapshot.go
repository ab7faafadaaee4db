package replica

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/core"
)

// snapshots is the state of making and receiving them.
type snapshots struct {
	index   uint64 // of the newest durable one
	atLeast uint64 // a node was added here: an older one is of no use to it
	wanted  uint64 // somebody asked for one that has this entry
	wrong   bool   // those on disk are of a state that was wrong: the next one replaces them
	bytes   int    // of log applied since
	freed   uint64 // up to where the disk was told to free the log
	loose   int    // bytes of log applied since memory let go of some
	trail   trail
	view    *core.View
	making  SnapshotMeta
	begun   int64     // when the newest was begun
	after   int64     // when the next may be begun, since the last found no room
	arrived []arrival // in order; raft installs them
}

// arrival is the machine of a snapshot that a peer sent, and its index.
type arrival struct {
	index   uint64
	machine *core.Machine
}

// raft gives the metadata as raft knows it, with the membership as its data; the
// machine's own data goes another way.
func (m *SnapshotMeta) raft() (*raftpb.Snapshot, error) {
	data, err := m.Conf.Encode()
	if err != nil {
		return nil, err
	}
	meta := &raftpb.SnapshotMetadata{Index: new(m.Index), Term: new(m.Term), ConfState: m.Conf.Conf}
	return &raftpb.Snapshot{Metadata: meta, Data: data}, nil
}

// metaOf is the reverse of raft.
func metaOf(s *raftpb.Snapshot) (SnapshotMeta, error) {
	conf, err := DecodeMembership(s.GetData())
	if err != nil {
		return SnapshotMeta{}, err
	}
	conf.Conf = s.GetMetadata().GetConfState()
	return SnapshotMeta{Index: s.GetMetadata().GetIndex(), Term: s.GetMetadata().GetTerm(), Conf: conf}, nil
}

// history is the log as raft sees it. A snapshot that does not know the newest
// node is held back, since that node would refuse it, and one of a wrong state.
type history struct {
	*raft.MemoryStorage
	snap *snapshots
}

func (h history) Snapshot() (*raftpb.Snapshot, error) {
	if h.snap.index < h.snap.atLeast || h.snap.wrong {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return h.MemoryStorage.Snapshot()
}

// maybeSnapshot begins a snapshot when enough has been applied since the last,
// or when a new node needs one.
func (n *Node) maybeSnapshot() {
	s := &n.snap
	enough := n.applied-s.index >= n.cfg.SnapshotEntries || s.bytes >= n.cfg.SnapshotBytes || s.index < max(s.atLeast, s.wanted) || s.wrong
	if s.view != nil || !enough || n.now < s.after || n.healing != nil {
		return
	}
	s.begun = n.now
	s.view = n.machine.View()
	s.bytes = 0
	s.making = SnapshotMeta{Index: n.applied, Term: n.term, Conf: n.members, Only: s.wrong}
	making := s.making
	n.out.Snapshot = &making
}

// tickWanted makes a snapshot that somebody waits for, and that had no room before.
func (n *Node) tickWanted() {
	if n.snap.index < n.snap.wanted {
		n.maybeSnapshot()
	}
}

// rightSnapshot is the index of the newest durable snapshot; 0: it is of a state that
// was found to be wrong.
func (n *Node) rightSnapshot() uint64 {
	if n.snap.wrong {
		return 0
	}
	return n.snap.index
}

// WantSnapshot asks for a snapshot of everything that is applied by now and
// returns the index that it will have at least: see [Status.SnapshotIndex].
func (n *Node) WantSnapshot(now int64) uint64 {
	if n.begin(now) {
		n.snap.wanted = n.applied
		n.maybeSnapshot()
	}
	return n.applied
}

// SnapshotNext appends at most about limit bytes of the snapshot at index, which
// is being made, to dst. Inputs may come between two calls. If one of them has
// installed another, this one is at its end: the disk knows that it is void.
func (n *Node) SnapshotNext(index uint64, dst []byte, limit int) Chunk {
	if n.snap.view == nil || n.snap.making.Index != index {
		return Chunk{Index: index, Data: dst, Last: true}
	}
	data, last := n.snap.view.Next(dst, limit)
	return Chunk{Index: index, Data: data, Last: last}
}

// SnapshotSaved tells that the last chunk of the snapshot at index was taken; ok:
// and that the snapshot is durable; if it is not, the disk had no room for it, and the
// node tries again after a while.
func (n *Node) SnapshotSaved(now int64, index uint64, ok bool) {
	s := &n.snap
	if s.view == nil || s.making.Index != index {
		return
	}
	s.view.Close()
	s.view = nil
	if !n.begin(now) || s.making.Index <= s.index && !s.making.Only {
		return
	}
	if !ok {
		s.after = n.now + fullSnapshots*int64(n.cfg.electionTimeout())
		return
	}
	if err := n.noteSnapshot(&s.making); err != nil {
		n.ensure(err)
		return
	}
	s.index, s.wrong = s.making.Index, s.wrong && !s.making.Only
	n.compact()
	n.maybeSnapshot()
}

// noteSnapshot tells raft of a snapshot, unless that is in the place of another of its
// index.
func (n *Node) noteSnapshot(m *SnapshotMeta) error {
	if m.Index == n.snap.index {
		return nil
	}
	snap, err := m.raft()
	if err == nil {
		_, err = n.log.CreateSnapshot(m.Index, m.Conf.Conf, snap.GetData())
	}
	return err
}

// Arrived brings a snapshot that a peer sent: its raft message, and the machine
// restored from its data, which must be durable. wanted: a Write with Install
// follows; if not, raft has no use for it, and neither has anybody else.
func (n *Node) Arrived(now int64, message []byte, machine *core.Machine) (wanted bool, err error) {
	if !n.begin(now) {
		return false, n.err
	}
	if isNote(message) {
		return false, n.arrivedMachine(message, machine)
	}
	m := &raftpb.Message{}
	if err := proto.Unmarshal(message, m); err != nil {
		return false, fmt.Errorf("replica: a peer's message does not decode: %w", err)
	}
	if m.GetTo() != n.cfg.ID || m.GetType() != raftpb.MsgSnap {
		return false, fmt.Errorf("replica: a %s for node %d came with a snapshot to node %d", m.GetType(), m.GetTo(), n.cfg.ID)
	}
	index := m.GetSnapshot().GetMetadata().GetIndex()
	if err := n.cfg.supported(fmt.Sprintf("the snapshot at %d of node %d", index, m.GetFrom()), machine.Version()); err != nil {
		n.fail(err)
		return false, err
	}
	n.snap.arrived = append(n.snap.arrived, arrival{index, machine})
	n.step(m)
	n.process()
	if wanted = slices.ContainsFunc(n.writes, func(w Write) bool { return w.Install != nil && w.Install.Index == index }); !wanted {
		n.snap.arrived = slices.DeleteFunc(n.snap.arrived, func(a arrival) bool { return a.machine == machine })
	}
	return wanted, nil
}

// install puts the machine of a snapshot in place of what this node had; what
// was being made of the old one is void, and what became of this node's own
// proposals is not known.
func (n *Node) install(meta *SnapshotMeta) {
	s := &n.snap
	at := slices.IndexFunc(s.arrived, func(a arrival) bool { return a.index == meta.Index })
	if at < 0 {
		n.fail(fmt.Errorf("replica: raft installs the snapshot at %d, which is not at hand", meta.Index))
		return
	}
	if err := n.loadSnapshot(meta); err != nil {
		n.ensure(err)
		return
	}
	if s.view != nil {
		s.view.Close()
		s.view = nil
	}
	n.endCheckView()
	n.check.hashed, n.check.ended = false, ""
	n.machine, n.members, n.healing = s.arrived[at].machine, meta.Conf, nil
	n.applied, n.term = meta.Index, meta.Term
	n.removed.at, n.removed.durable = meta.Index, max(n.removed.durable, meta.Index)
	n.loseTrack()
	later := slices.DeleteFunc(s.arrived, func(a arrival) bool { return a.index <= meta.Index })
	*s = snapshots{index: meta.Index, freed: meta.Index, arrived: later}
	n.out.Jumped = true
	n.tellMembers()
}

// loadSnapshot makes a snapshot the beginning of raft's view of the log.
func (n *Node) loadSnapshot(meta *SnapshotMeta) error {
	snap, err := meta.raft()
	if err != nil {
		return err
	}
	return n.log.ApplySnapshot(snap)
}

// SnapshotSent tells how it went with a snapshot that was to be sent. It must
// always be called, or the peer is never tried again.
func (n *Node) SnapshotSent(now int64, to uint64, ok bool) {
	if !n.begin(now) {
		return
	}
	delete(n.sending, to)
	status := raft.SnapshotFinish
	if !ok {
		status = raft.SnapshotFailure
	}
	n.raft.ReportSnapshot(to, status)
	n.process()
}

// Joining is what a node begins with that is to be added to a group: nothing.
func Joining(machine core.Config) Recovered {
	return Recovered{Snapshot: SnapshotMeta{Conf: Membership{Conf: &raftpb.ConfState{}}}, Machine: core.New(machine)}
}

// Bootstrap is what a new group begins with: an empty machine, and a snapshot of
// it at index 1. Every founding node must be given the same: see [Found].
func Bootstrap(machine core.Config, founders []Endpoint) Recovered {
	conf := Membership{Conf: &raftpb.ConfState{}, Founding: foundingOf(founders)}
	for _, e := range founders {
		conf.Conf.Voters = append(conf.Conf.Voters, e.ID)
		conf.set(e)
	}
	return Recovered{Snapshot: SnapshotMeta{Index: 1, Term: 1, Conf: conf}, Machine: core.New(machine)}
}

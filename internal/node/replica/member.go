package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Membership is who belongs to the group: the raft configuration, and where each
// node's clients find it.
type Membership struct {
	Conf      *raftpb.ConfState
	Endpoints []Endpoint // sorted by ID
	// Held is the cluster time until which nothing is granted, since those who
	// held something in the group that this one began from may not know yet; 0:
	// there is no such wait.
	Held int64
}

// Endpoint is a node's addresses.
type Endpoint struct {
	ID uint64
	// Peer is where other nodes find it, Client where clients do.
	Peer, Client string
}

// Address is where clients find a node; "" if it is not known.
func (m *Membership) Address(id uint64) string {
	for _, e := range m.Endpoints {
		if e.ID == id {
			return e.Client
		}
	}
	return ""
}

// alone reports whether a node is the only voter.
func (m *Membership) alone(id uint64) bool {
	v := m.Conf.GetVoters()
	return len(v) == 1 && v[0] == id && len(m.Conf.GetVotersOutgoing()) == 0
}

// solitary reports whether there is no other node at all, not even a learner.
func (m *Membership) solitary(id uint64) bool {
	return m.alone(id) && len(m.Conf.GetLearners()) == 0
}

// set notes a node's addresses; remove forgets nodes that are not in the
// configuration any more.
func (m *Membership) set(e Endpoint) {
	m.Endpoints = slices.Clone(m.Endpoints)
	i, found := slices.BinarySearchFunc(m.Endpoints, e.ID, func(x Endpoint, id uint64) int { return compare(x.ID, id) })
	if found {
		m.Endpoints[i] = e
		return
	}
	m.Endpoints = slices.Insert(m.Endpoints, i, e)
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (m *Membership) prune() {
	c := m.Conf
	known := slices.Concat(c.GetVoters(), c.GetVotersOutgoing(), c.GetLearners(), c.GetLearnersNext())
	m.Endpoints = slices.DeleteFunc(slices.Clone(m.Endpoints), func(e Endpoint) bool { return !slices.Contains(known, e.ID) })
}

// Encode gives the membership as it stands in a snapshot's header.
func (m *Membership) Encode() ([]byte, error) {
	conf, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.Conf)
	if err != nil {
		return nil, err
	}
	b := binary.LittleEndian.AppendUint64([]byte{formatVersion}, uint64(m.Held))
	b = appendString(b, string(conf))
	for _, e := range m.Endpoints {
		b = binary.LittleEndian.AppendUint64(b, e.ID)
		b = appendString(appendString(b, e.Peer), e.Client)
	}
	return b, nil
}

// DecodeMembership is the reverse of Encode.
func DecodeMembership(b []byte) (Membership, error) {
	m := Membership{Conf: &raftpb.ConfState{}}
	if len(b) == 0 || b[0] != formatVersion {
		return m, errors.New("replica: a membership of unknown form: this program is older than the one that wrote it")
	}
	if len(b) < 9 {
		return m, errors.New("replica: a membership that is cut off")
	}
	m.Held = int64(binary.LittleEndian.Uint64(b[1:]))
	conf, b, ok := cutString(b[9:])
	if !ok {
		return m, errors.New("replica: a membership that is cut off")
	}
	if err := proto.Unmarshal([]byte(conf), m.Conf); err != nil {
		return m, fmt.Errorf("replica: a membership that does not decode: %w", err)
	}
	for len(b) > 0 {
		e, rest, ok := cutEndpoint(b)
		if !ok {
			return m, errors.New("replica: a membership that is cut off")
		}
		m.Endpoints, b = append(m.Endpoints, e), rest
	}
	return m, nil
}

func cutEndpoint(b []byte) (e Endpoint, rest []byte, ok bool) {
	if len(b) < 8 {
		return e, nil, false
	}
	e.ID = binary.LittleEndian.Uint64(b)
	var ok1, ok2 bool
	e.Peer, b, ok1 = cutString(b[8:])
	e.Client, b, ok2 = cutString(b)
	return e, b, ok1 && ok2
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func cutString(b []byte) (s string, rest []byte, ok bool) {
	size, k := binary.Uvarint(b)
	if k <= 0 || size > uint64(len(b)-k) {
		return "", nil, false
	}
	b = b[k:]
	return string(b[:size]), b[size:], true
}

// Change is a wish to change the membership: one step, or several at once, which
// take effect together.
type Change struct {
	Add     []Endpoint // as learners, which do not vote
	Promote []uint64   // learners that have caught up become voters
	Remove  []uint64
}

// ChangeMembers asks for a change. The caller is answered Done when it is
// applied, NotDone if it was refused: there is no leader here, another change is
// under way, or it makes no sense; Unknown if a snapshot came instead of the
// entries that would tell.
func (n *Node) ChangeMembers(now int64, caller Caller, c Change) {
	if !n.begin(now) || !n.serving || !n.sensible(c) {
		n.answer(caller, NotDone, nil)
		return
	}
	n.number++
	if err := n.raft.ProposeConfChange(n.confChange(c)); err != nil {
		n.answer(caller, NotDone, nil)
		return
	}
	n.flying = append(n.flying, proposal{number: n.number, term: n.currentTerm(), conf: caller, change: true})
	n.process()
}

// sensible refuses what raft would take but the group would not survive: an ID
// that was used before, a promotion of a stranger, the end of the last voter.
func (n *Node) sensible(c Change) bool {
	conf := n.members.Conf
	for _, e := range c.Add {
		if e.ID == 0 || slices.Contains(conf.GetVoters(), e.ID) || slices.Contains(conf.GetLearners(), e.ID) {
			return false
		}
	}
	for _, id := range c.Promote {
		if !slices.Contains(conf.GetLearners(), id) {
			return false
		}
	}
	left := slices.DeleteFunc(slices.Concat(conf.GetVoters(), c.Promote), func(id uint64) bool { return slices.Contains(c.Remove, id) })
	return len(left) > 0 && len(c.Add)+len(c.Promote)+len(c.Remove) > 0
}

func (n *Node) confChange(c Change) *raftpb.ConfChangeV2 {
	cc := &raftpb.ConfChangeV2{Context: header{kindCore, n.cfg.ID, n.number}.append(nil)}
	one := func(t raftpb.ConfChangeType, id uint64) {
		cc.Changes = append(cc.Changes, &raftpb.ConfChangeSingle{Type: t.Enum(), NodeId: new(id)})
	}
	for _, id := range c.Remove {
		one(raftpb.ConfChangeRemoveNode, id)
	}
	for _, id := range c.Promote {
		one(raftpb.ConfChangeAddNode, id)
	}
	for _, e := range c.Add {
		one(raftpb.ConfChangeAddLearnerNode, e.ID)
		cc.Context = binary.LittleEndian.AppendUint64(cc.Context, e.ID)
		cc.Context = appendString(appendString(cc.Context, e.Peer), e.Client)
	}
	return cc
}

// applyChange applies a membership entry.
func (n *Node) applyChange(e *raftpb.Entry) {
	cc := &raftpb.ConfChangeV2{}
	if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		n.fail(fmt.Errorf("replica: entry %d: a membership change that does not decode: %w", e.GetIndex(), err))
		return
	}
	n.members.Conf = n.raft.ApplyConfChange(cc)
	n.members.prune()
	n.tellMembers()
	if len(cc.GetContext()) < headerSize {
		return
	}
	h, rest, err := splitEntry(cc.GetContext())
	if err != nil {
		n.fail(err)
		return
	}
	if len(rest) > 0 {
		n.snap.atLeast = e.GetIndex()
	}
	n.noteEndpoints(rest)
	n.tellMembers()
	if h.node == n.cfg.ID && len(n.flying) > 0 && n.flying[0].number == h.number && n.flying[0].term == e.GetTerm() {
		n.answer(n.flying[0].conf, Done, nil)
		n.flying = n.flying[1:]
	}
}

func (n *Node) tellMembers() {
	members := n.members
	n.out.Members = &members
}

func (n *Node) noteEndpoints(b []byte) {
	for len(b) > 0 {
		e, rest, ok := cutEndpoint(b)
		if !ok {
			n.fail(errors.New("replica: a membership change that is cut off"))
			return
		}
		n.members.set(e)
		b = rest
	}
}

// refusedChange meets an empty entry: the first of a term is its leader's own,
// every other one is a membership change that raft did not take.
func (n *Node) refusedChange(e *raftpb.Entry) {
	if len(n.flying) > 0 && n.flying[0].change && n.flying[0].term == e.GetTerm() {
		n.answer(n.flying[0].conf, NotDone, nil)
		n.flying = n.flying[1:]
	}
}

// Transfer hands leadership to another voter once nothing flies, after a last
// stamp so that no cluster time is lost. Nothing new is proposed meanwhile.
func (n *Node) Transfer(now int64, to uint64) {
	if !n.begin(now) || !n.serving || to == n.cfg.ID || !slices.Contains(n.members.Conf.GetVoters(), to) {
		return
	}
	n.proposeEntry(nil)
	n.transfer, n.handing = to, 0
	n.maybeTransfer()
	n.process()
}

// tickTransfer goes on as before if nobody took over within an election timeout:
// the other node may be gone.
func (n *Node) tickTransfer() {
	if n.handing++; n.handing > n.cfg.ElectionTicks {
		n.transfer = 0
	}
}

func (n *Node) maybeTransfer() {
	if n.transfer != 0 && n.serving && len(n.flying) == 0 {
		n.raft.TransferLeader(n.transfer)
	}
}

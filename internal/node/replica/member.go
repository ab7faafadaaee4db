package replica

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/address"
)

// Membership is the nodes of the group: the raft configuration, and where each
// node's clients find it.
type Membership struct {
	Conf      *raftpb.ConfState
	Endpoints []Endpoint // sorted by ID
	// Held is the cluster time until which nothing is granted, since those that
	// held something in the group that this one began from may not know yet; 0:
	// there is no such wait.
	Held int64
	// Used are the numbers of nodes that were removed, sorted: a number is given
	// once.
	Used []uint64
	// Founding is what the founders agreed on before the first of them voted; 0:
	// there was one founder, or it is of a time before they did.
	Founding uint64
}

// Endpoint is a node's addresses.
type Endpoint struct {
	ID uint64
	// Peer is where other nodes find it, Client where clients do.
	Peer, Client string
	// Dir tells its directory from every other: a node that lost its disk is not
	// the one that made the promises of before. 0: not known yet.
	Dir uint64
	// Voter: it is promoted as soon as it has caught up, without being asked.
	Voter bool
}

// Removed is what [Membership.Directory] says of a node that was removed.
const Removed = math.MaxUint64

// Directory is the directory that belongs to a number; 0: none is known.
func (m *Membership) Directory(id uint64) uint64 {
	if _, used := slices.BinarySearch(m.Used, id); used {
		return Removed
	}
	return m.endpoint(id).Dir
}

// Coming are the learners that have not shown their directory yet, so that they have nothing.
func (m *Membership) Coming() (ids []uint64) {
	for _, id := range m.Conf.GetLearners() {
		if m.endpoint(id).Dir == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// endpoint is what is known of a node; zeros if nothing is.
func (m *Membership) endpoint(id uint64) Endpoint {
	for _, e := range m.Endpoints {
		if e.ID == id {
			return e
		}
	}
	return Endpoint{}
}

// Address is where clients find a node; "" if it is not known.
func (m *Membership) Address(id uint64) string { return m.endpoint(id).Client }

// alone reports whether a node is the only voter.
func (m *Membership) alone(id uint64) bool {
	v := m.Conf.GetVoters()
	return len(v) == 1 && v[0] == id && len(m.Conf.GetVotersOutgoing()) == 0
}

// solitary reports whether there is no other node at all, not even a learner.
func (m *Membership) solitary(id uint64) bool {
	return m.alone(id) && len(m.Conf.GetLearners()) == 0
}

// set notes a node's addresses.
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

// prune forgets the endpoints of nodes that left.
func (m *Membership) prune() {
	m.Endpoints = slices.DeleteFunc(slices.Clone(m.Endpoints), func(e Endpoint) bool { return !m.has(e.ID) })
}

// has reports whether a node is in the configuration.
func (m *Membership) has(id uint64) bool { return slices.Contains(m.all(), id) }

// all are the numbers in the configuration, some of them twice while it changes.
func (m *Membership) all() []uint64 {
	c := m.Conf
	return slices.Concat(c.GetVoters(), c.GetVotersOutgoing(), c.GetLearners(), c.GetLearnersNext())
}

// Encode gives the membership as it stands in a snapshot's header.
func (m *Membership) Encode() ([]byte, error) {
	conf, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.Conf)
	if err != nil {
		return nil, err
	}
	b := binary.LittleEndian.AppendUint64([]byte{membersVersion}, uint64(m.Held))
	b = appendString(b, string(conf))
	b = binary.LittleEndian.AppendUint64(b, m.Founding)
	b = binary.AppendUvarint(b, uint64(len(m.Endpoints)))
	for i := range m.Endpoints {
		b = appendEndpoint(b, &m.Endpoints[i])
	}
	for i, id := range m.Used {
		b = binary.AppendUvarint(b, id-before(m.Used, i))
	}
	return b, nil
}

// before is the number in front of the one at i; 0 in front of the first.
func before(ids []uint64, i int) uint64 {
	if i == 0 {
		return 0
	}
	return ids[i-1]
}

// membersVersion is the form of an encoded membership. Version 1 had neither a
// founding, nor directories, nor numbers that were used, and as many endpoints as
// there are bytes.
const membersVersion = 2

// DecodeMembership is the reverse of Encode. It reads version 1, too.
func DecodeMembership(b []byte) (Membership, error) {
	m := Membership{Conf: &raftpb.ConfState{}}
	if len(b) > 0 && b[0] > membersVersion {
		return m, fmt.Errorf("replica: a membership of unknown form: this program is older than the one that wrote it: %w", ErrVersion)
	}
	if len(b) < 9 || b[0] == 0 {
		return m, errCutOff
	}
	m.Held = int64(binary.LittleEndian.Uint64(b[1:]))
	conf, rest, ok := cutString(b[9:])
	if !ok {
		return m, errCutOff
	}
	if err := proto.Unmarshal([]byte(conf), m.Conf); err != nil {
		return m, fmt.Errorf("replica: a membership that does not decode: %w", err)
	}
	if b[0] == 1 {
		return m, m.cutOld(rest)
	}
	return m, m.cutRest(rest)
}

var errCutOff = errors.New("replica: a membership that is cut off")

// cutOld reads endpoints without a directory to the end.
func (m *Membership) cutOld(b []byte) error {
	for len(b) > 0 {
		e, rest, ok := cutOldEndpoint(b)
		if !ok {
			return errCutOff
		}
		m.Endpoints, b = append(m.Endpoints, e), rest
	}
	return nil
}

// cutRest reads what follows the configuration since version 2.
func (m *Membership) cutRest(b []byte) error {
	if len(b) < 8 {
		return errCutOff
	}
	m.Founding, b = binary.LittleEndian.Uint64(b), b[8:]
	count, k := binary.Uvarint(b)
	if k <= 0 {
		return errCutOff
	}
	b = b[k:]
	for range count {
		e, rest, ok := cutEndpoint(b)
		if !ok {
			return errCutOff
		}
		m.Endpoints, b = append(m.Endpoints, e), rest
	}
	for id := uint64(0); len(b) > 0; {
		d, k := binary.Uvarint(b)
		if k <= 0 || d == 0 || id+d < id {
			return errCutOff
		}
		id += d
		m.Used, b = append(m.Used, id), b[k:]
	}
	return nil
}

func appendEndpoint(b []byte, e *Endpoint) []byte {
	b = binary.LittleEndian.AppendUint64(b, e.ID)
	b = appendString(appendString(b, e.Peer), e.Client)
	b = binary.LittleEndian.AppendUint64(b, e.Dir)
	if e.Voter {
		return append(b, 1)
	}
	return append(b, 0)
}

func cutEndpoint(b []byte) (e Endpoint, rest []byte, ok bool) {
	e, b, ok = cutOldEndpoint(b)
	if !ok || len(b) < 9 || b[8] > 1 {
		return e, nil, false
	}
	e.Dir, e.Voter = binary.LittleEndian.Uint64(b), b[8] == 1
	return e, b[9:], true
}

func cutOldEndpoint(b []byte) (e Endpoint, rest []byte, ok bool) {
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

// Change is a request to change the membership: one step, or several at once, which
// take effect together.
type Change struct {
	Add     []Endpoint // as learners, which do not vote
	Promote []uint64   // learners that have caught up become voters
	Remove  []uint64
	Update  []Endpoint // addresses of members
	// Seen are members that the leader has seen at the addresses of Update, with their
	// directories: without them a majority has to be left. If another member has the address in the group, the two
	// exchange theirs.
	Seen []uint64
	// Replace are members that lost their directory. Each is removed, and a node that
	// has a new number is added in its place, at these addresses or, if they are
	// "", at those of before; if the old one voted, the new one will when it has
	// caught up. The answer is the new number of the first, 8 bytes, little endian.
	Replace []Endpoint
	// Check and Unfreeze change no members: see [Node.Check] and [Node.Unfreeze]. They
	// are an operator's requests as well, and come alone. Ruler is the node that has what is
	// right, if Unfreeze is set; 0: the leader.
	Check, Unfreeze bool
	Ruler           uint64
}

func (c *Change) String() string {
	switch {
	case c.Check:
		return "check the states"
	case c.Unfreeze:
		return "unfreeze"
	}
	return "change members"
}

// ChangeMembers asks for a change. The caller is answered Done when it is
// applied; NotDone if it was refused, with a code and a text if the change is at
// fault, and without if this node does not lead, or hands over first because the
// change removes it; Unknown if a snapshot came instead of the entries that would
// tell.
func (n *Node) ChangeMembers(now int64, caller Caller, c Change) {
	switch {
	case c.Check:
		n.Check(now, caller)
		return
	case c.Unfreeze:
		n.Unfreeze(now, caller, c.Ruler)
		return
	}
	if !n.begin(now) || !n.serving {
		n.answer(caller, NotDone, nil)
		return
	}
	n.proposeChange(caller, c)
	n.process()
}

func (n *Node) proposeChange(caller Caller, c Change) {
	if code, text := n.standing().refuse(c); code != core.CodeOK {
		n.deny(caller, code, text)
		return
	}
	if slices.Contains(c.Remove, n.cfg.ID) {
		if to := n.standing().successor(c, n.handed); to != 0 && n.transfer == 0 {
			n.leaves(to)
			n.handOver(to)
		}
		n.answer(caller, NotDone, nil)
		return
	}
	n.askFirst(caller, c)
}

// proposeNow proposes a change that is not refused.
func (n *Node) proposeNow(caller Caller, c Change) {
	given := uint64(0)
	if len(c.Replace) > 0 {
		given = n.standing().free()
	}
	n.number++
	if err := n.raft.ProposeConfChange(n.confChange(n.standing().expand(c))); err != nil {
		n.answer(caller, NotDone, nil)
		return
	}
	n.flying = append(n.flying, proposal{number: n.number, term: n.currentTerm(), conf: caller, change: true, given: given})
}

// proposeVoter promotes a learner that is to vote, as soon as that is right.
func (n *Node) proposeVoter() {
	for _, e := range n.members.Endpoints {
		if !e.Voter || !slices.Contains(n.members.Conf.GetLearners(), e.ID) {
			continue
		}
		promote := Change{Promote: []uint64{e.ID}}
		if code, _ := n.standing().refuse(promote); code == core.CodeOK {
			n.proposeChange(nobody, promote)
			return
		}
	}
}

// Place asks for a number for a node with an empty directory, which the group knew
// at that peer address: the one that was given to it, or if anew is set a new one, in
// the place of the number that lost its directory. It is answered like
// [Node.ChangeMembers] with [Change.Replace].
func (n *Node) Place(now int64, caller Caller, at Endpoint, anew bool) {
	if !n.begin(now) || !n.serving {
		n.answer(caller, NotDone, nil)
		return
	}
	i := slices.IndexFunc(n.members.Endpoints, func(e Endpoint) bool { return address.Same(e.Peer, at.Peer) })
	switch {
	case i < 0:
		n.deny(caller, core.CodeNotExist, fmt.Sprintf("the group knows no node at %s: let it join there under a number that was never used, as %d is (holdfast serve --id %[2]d --join …, holdfast member add %[2]d %[1]s CLIENT)", at.Peer, n.standing().free()))
	case n.members.Endpoints[i].Dir == 0 && slices.Contains(n.members.Conf.GetLearners(), n.members.Endpoints[i].ID):
		n.answer(caller, Done, binary.LittleEndian.AppendUint64(nil, n.members.Endpoints[i].ID))
	case !anew:
		n.deny(caller, core.CodeConflict, fmt.Sprintf("node %d at %s has lost its directory: let it in again with holdfast member replace %d", n.members.Endpoints[i].ID, at.Peer, n.members.Endpoints[i].ID))
	default:
		at.ID = n.members.Endpoints[i].ID
		n.proposeChange(caller, Change{Replace: []Endpoint{at}})
	}
	n.process()
}

// changing reports whether a change of the members is not complete.
func (n *Node) changing() bool {
	return len(n.members.Conf.GetVotersOutgoing()) > 0 || slices.ContainsFunc(n.flying, func(p proposal) bool { return p.change })
}

// nobody is the caller of what a node asks of itself.
const nobody Caller = 0

func (n *Node) confChange(c Change) *raftpb.ConfChangeV2 {
	cc := &raftpb.ConfChangeV2{Context: header{kind: kindMembers, node: n.cfg.ID, number: n.number}.append(nil)}
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
		cc.Context = appendEndpoint(cc.Context, &e)
	}
	for _, e := range c.Update {
		if len(cc.Changes) == 0 { // raft knows no addresses: of several it would make a step that needs another to be complete
			one(raftpb.ConfChangeUpdateNode, e.ID)
		}
		e.Dir = cmp.Or(n.members.endpoint(e.ID).Dir, e.Dir) // known once, known for ever
		e.Voter = e.Voter || n.members.endpoint(e.ID).Voter
		cc.Context = appendEndpoint(cc.Context, &e)
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
	before := n.members.Conf
	n.members.Conf = n.raft.ApplyConfChange(cc)
	n.removed.changed = e.GetIndex()
	if n.members.retire(before) {
		n.removed.at = e.GetIndex()
	}
	n.members.prune()
	maps.DeleteFunc(n.heard, func(id uint64, _ int64) bool { return !n.members.has(id) })
	maps.DeleteFunc(n.unwell.said, func(id uint64, _ complaint) bool { return !n.members.has(id) })
	maps.DeleteFunc(n.met, func(id uint64, _ meeting) bool { return !n.members.has(id) })
	n.tellMembers()
	if n.serving && !n.members.has(n.cfg.ID) {
		n.stepDown()
	}
	if len(cc.GetContext()) < headerSize {
		return
	}
	h, rest, err := splitEntry(cc.GetContext())
	if err != nil {
		n.fail(err)
		return
	}
	if adds(cc) {
		n.snap.atLeast = e.GetIndex()
	}
	n.noteEndpoints(rest, h.kind == kindMembers)
	n.tellMembers()
	if h.node == n.cfg.ID && len(n.flying) > 0 && n.flying[0].number == h.number && n.flying[0].term == e.GetTerm() {
		n.answer(n.flying[0].conf, Done, binary.LittleEndian.AppendUint64(nil, n.flying[0].given))
		n.flying = n.flying[1:]
	}
}

// retire remembers the numbers of nodes that were members before a change: not while
// one still votes, in a change that is not complete. It reports whether there are
// any.
func (m *Membership) retire(before *raftpb.ConfState) (any bool) {
	was := Membership{Conf: before}
	for _, id := range was.all() {
		if i, used := slices.BinarySearch(m.Used, id); !used && !m.has(id) {
			m.Used, any = slices.Insert(slices.Clone(m.Used), i, id), true
		}
	}
	return any
}

// removals is when nodes that were removed may be refused. Not before their
// removal is known to be committed on this very disk: a node that crashes forgets
// what it only knew, and may need the vote of the node that it had sent away.
type removals struct {
	at      uint64 // the index of the last
	changed uint64 // the index of the last change of any kind
	told    uint64 // of the last that Output.Removed has told
	written uint64 // the commit index in what was written last
	durable uint64 // and in what is durable
}

func (n *Node) tellRemoved() {
	r := &n.removed
	if r.durable >= r.at && (r.told < r.at || r.told == 0) {
		r.told = max(r.at, 1)
		n.out.Removed = n.members.Used
	}
}

// proposeAfterChange writes something after a change of the members, so that all disks know that it is
// committed: nodes that crash go by the members of before otherwise, and may need the vote of one that is
// lost by then. And it does while a change is not complete, which raft completes when something is applied.
func (n *Node) proposeAfterChange() {
	if n.serving && n.transfer == 0 && len(n.flying) == 0 && (n.forgetful() || n.joint()) {
		n.proposeEntry(nil)
	}
}

// forgetful: after a crash this node would not know of the last change of the members.
func (n *Node) forgetful() bool { return n.removed.durable < n.removed.changed }

func adds(cc *raftpb.ConfChangeV2) bool {
	return slices.ContainsFunc(cc.GetChanges(), func(c *raftpb.ConfChangeSingle) bool { return c.GetType() == raftpb.ConfChangeAddLearnerNode })
}

func (n *Node) tellMembers() {
	members := n.members
	n.out.Members = &members
}

// noteEndpoints takes the endpoints of a change; those of an older one have no
// directories.
func (n *Node) noteEndpoints(b []byte, dirs bool) {
	cut := cutOldEndpoint
	if dirs {
		cut = cutEndpoint
	}
	for len(b) > 0 {
		e, rest, ok := cut(b)
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
	n.handOver(to)
	n.process()
}

func (n *Node) handOver(to uint64) {
	n.proposeEntry(nil)
	n.transfer, n.handing, n.handed = to, 0, to
	n.maybeTransfer()
}

// tickTransfer goes on as before if nobody took over within an election timeout:
// the other node may be gone.
func (n *Node) tickTransfer() {
	if n.handing++; n.handing > n.cfg.ElectionTicks {
		n.transfer = 0
	}
}

// tickRemoved has a leader that is no member any more hand over. It does not just step
// down: nobody else may know that the change which removed it is complete, and need its
// vote, which it would have to refuse to a node with a shorter log.
func (n *Node) tickRemoved() {
	if !n.leading || n.members.has(n.cfg.ID) {
		return
	}
	if n.handing++; n.handing < n.cfg.ElectionTicks && n.handed != 0 {
		return
	}
	s := n.standing()
	if to := s.takesOver(n.handed); to != 0 {
		n.handing, n.handed = 0, to
		n.raft.TransferLeader(to)
	}
}

func (n *Node) maybeTransfer() {
	if n.transfer != 0 && n.serving && len(n.flying) == 0 {
		n.raft.TransferLeader(n.transfer)
	}
}

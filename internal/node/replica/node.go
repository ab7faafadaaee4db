package replica

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Recovered is what the shell found on disk: a node always begins with a
// snapshot, the first one being made by [Bootstrap].
type Recovered struct {
	Snapshot  SnapshotMeta
	Machine   *core.Machine // restored from it
	HardState *raftpb.HardState
	Entries   []*raftpb.Entry // after the snapshot
	// Doubted: a state check has found the machine to be wrong, see [Write.Doubt].
	Doubted bool
}

// Alone reports whether node id needs nobody's vote but its own, and knows of no other node, as far
// as the snapshot and the log tell.
func (r *Recovered) Alone(id uint64) bool {
	grows := func(e *raftpb.Entry) bool {
		cc := &raftpb.ConfChangeV2{}
		return e.GetType() != raftpb.EntryNormal && (proto.Unmarshal(e.GetData(), cc) != nil || adds(cc))
	}
	return r.Snapshot.Conf.solitary(id) && !slices.ContainsFunc(r.Entries, grows)
}

// Node is one member of a group.
type Node struct {
	cfg     Config
	raft    *raft.RawNode
	log     *raft.MemoryStorage
	machine *core.Machine
	members Membership
	err     error

	applied  uint64
	term     uint64 // of the entry at applied
	now      int64  // elapsed time of the current input
	leader   uint64 // the node that this one follows; 0: none
	leading  bool   // raft says so
	serving  bool   // and an entry of our own term is applied
	clock    clock
	stamped  int64 // elapsed time of the last entry proposed
	ended    bool  // an entry was applied that left a rest of ends
	resume   int64 // elapsed time before which that rest is left
	waiting  queue
	flying   []proposal
	frames   [][]byte // of the entry being made
	entry    []byte   // and its encoding
	number   uint64
	date     int64  // Unix time, as last told
	transfer uint64 // hand leadership to this node when nothing flies; 0: no
	handed   uint64 // the node that was last asked to take over
	handing  int    // ticks since that was asked for
	thawed   uint64 // the term in which this node proposed to end the wait

	elsewhere map[uint64]string // where clients find members that are not where the group has them

	heard   map[uint64]int64 // when a member last sent something
	asked   *askedChange     // of the members, that waits for those that stay; nil: none
	removed removals
	check   check
	holders waitForHolders
	hashing []byte // room for what is hashed
	healing *healing
	sending map[uint64]bool    // the nodes that a machine is on its way to
	began   int64              // elapsed time of the beginning of this leader's service
	met     map[uint64]meeting // how a member showed itself
	unwell  unwell
	raised  raise
	bounded raise     // when this leader proposed its quotas
	told    uint8     // the version that the shell knows
	goal    [2]uint64 // what was applied an election timeout ago at least, and since
	aimed   int       // ticks since the goal moved

	writes  []Write
	writeID uint64
	quiet   int // ticks since anything was to be written
	reads   reads
	streams streams
	snap    snapshots
	full    bool
	// mostSessions is how many there may be as long as the disk is full; 0: none was to be opened
	// since it is, or since this node leads.
	mostSessions int

	applying core.Output
	out      Output
	spare    []core.Event
}

// New starts a node on what was found on disk.
func New(cfg Config, rec Recovered) (*Node, error) {
	cfg, err := cfg.filled()
	if err != nil {
		return nil, err
	}
	if err := cfg.supported("the snapshot of this directory", rec.Machine.Version()); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, date: cfg.Seconds, machine: rec.Machine, members: rec.Snapshot.Conf, applied: rec.Snapshot.Index, term: rec.Snapshot.Term, heard: map[uint64]int64{}, met: map[uint64]meeting{}, unwell: unwell{said: map[uint64]complaint{}}, sending: map[uint64]bool{}}
	n.clock.limit = 3 * int64(cfg.Tick)
	n.streams.init()
	n.snap.index, n.snap.freed = rec.Snapshot.Index, rec.Snapshot.Index
	n.tellMembers()
	if err := n.load(rec); err != nil {
		return nil, err
	}
	n.raft, err = raft.NewRawNode(n.raftConfig())
	if err != nil {
		return nil, fmt.Errorf("replica: start raft: %w", err)
	}
	if rec.Doubted {
		n.heals(&healing{least: rec.Snapshot.Index, ticks: cfg.ElectionTicks})
	}
	n.process() // what is known to be committed: nobody may lead before its changes of members are applied
	if n.members.alone(cfg.ID) {
		if n.healing != nil {
			n.trust()
		}
		if err := n.raft.Campaign(); err != nil {
			return nil, fmt.Errorf("replica: lead a group of one: %w", err)
		}
	}
	n.process()
	n.tellRemoved()
	return n, n.err
}

// load fills raft's view of the log.
func (n *Node) load(rec Recovered) error {
	n.log = raft.NewMemoryStorage()
	if rec.Snapshot.Index > 0 {
		if err := n.loadSnapshot(&rec.Snapshot); err != nil {
			return err
		}
	}
	n.removed.durable = rec.Snapshot.Index
	if rec.HardState != nil {
		n.removed.durable = max(n.removed.durable, rec.HardState.GetCommit())
		if err := n.log.SetHardState(rec.HardState); err != nil {
			return err
		}
	}
	return n.log.Append(rec.Entries)
}

func (n *Node) raftConfig() *raft.Config {
	return &raft.Config{
		ID:                        n.cfg.ID,
		ElectionTick:              n.cfg.ElectionTicks,
		HeartbeatTick:             1,
		Storage:                   history{n.log, &n.snap},
		Applied:                   n.applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             1 << 20,
		MaxCommittedSizePerReady:  64 << 20,
		MaxUncommittedEntriesSize: 64 << 20,
		MaxInflightMsgs:           256,
		MaxInflightBytes:          16 << 20,
		CheckQuorum:               true,
		PreVote:                   true,
		DisableProposalForwarding: true,
		Logger:                    quiet{},
	}
}

// Err is why the node has stopped for ever; nil while it works. A node that has
// stopped ignores every input.
func (n *Node) Err() error { return n.err }

// fail stops the node: what it does not understand it must not apply.
func (n *Node) fail(err error) {
	if n.err == nil {
		n.err = err
	}
}

// Date tells the Unix time in seconds, for limiters that go by the calendar: nothing
// else is decided by it. A node that leads writes it beside the commands.
func (n *Node) Date(seconds int64) { n.date = core.Seconds(seconds) }

// Tick tells that another [Config.Tick] has passed.
func (n *Node) Tick(now int64) {
	if n.begin(now) {
		if n.stands() {
			n.raft.Tick()
		}
		n.process()
		n.tickCheck()
		n.tickHeal()
		n.tickMark()
		n.tickReads()
		n.tickTransfer()
		n.tickRemoved()
		n.tickDisk()
		n.tickAiling()
		n.tickFull()
		n.tickRoom()
		n.tickWanted()
		n.tickGoal()
		n.proposeThaw()
		n.proposeAsked()
		n.proposeNews()
		n.proposeAfterChange()
		n.proposeRaise()
		n.proposeQuota()
		n.proposeCheck()
		n.proposeStamp()
		n.propose(true)
		n.process()
	}
}

// Step takes a message from a peer.
func (n *Node) Step(now int64, data []byte) error {
	if !n.begin(now) {
		return n.err
	}
	if isNote(data) {
		defer n.process()
		return n.hearNote(data)
	}
	m := &raftpb.Message{}
	if err := proto.Unmarshal(data, m); err != nil {
		return fmt.Errorf("replica: a peer's message does not decode: %w", err)
	}
	if m.GetTo() != n.cfg.ID || m.GetType() == raftpb.MsgSnap || raft.IsLocalMsg(m.GetType()) {
		return fmt.Errorf("replica: a %s for node %d came to node %d", m.GetType(), m.GetTo(), n.cfg.ID)
	}
	if !n.may(m) {
		return n.err
	}
	n.hear(m.GetFrom())
	n.step(m)
	n.proposeAsked()
	n.process()
	return nil
}

// step gives raft a message; what it refuses (from a node that was removed, for
// instance) is as good as lost on the way.
func (n *Node) step(m *raftpb.Message) {
	if err := n.raft.Step(m); errors.Is(err, raft.ErrStepLocalMsg) {
		n.fail(fmt.Errorf("replica: %w", err))
	}
}

// Written tells that the write with this ID, and all before it, are durable.
func (n *Node) Written(now int64, id uint64) {
	if !n.begin(now) {
		return
	}
	for len(n.writes) > 0 && n.writes[0].ID <= id {
		w := n.writes[0]
		n.writes = n.writes[1:]
		n.settle(w)
	}
	n.process()
	n.tellRemoved()
}

// settle brings raft's view of the log up to a write that is done, and only then
// passes on the answers that waited for it.
func (n *Node) settle(w Write) {
	if w.Install != nil {
		n.install(w.Install)
	}
	if w.HardState != nil {
		n.removed.written = w.HardState.GetCommit()
		n.ensure(n.log.SetHardState(w.HardState))
	}
	if w.Sync && (len(w.Entries) > 0 || w.Install != nil) { // a commit index alone is not written
		n.removed.durable = max(n.removed.durable, n.removed.written)
	}
	n.ensure(n.log.Append(w.Entries))
	for _, m := range w.responses {
		if m.GetTo() == n.cfg.ID {
			n.step(m)
		} else {
			n.send(m)
		}
	}
}

func (n *Node) ensure(err error) {
	if err != nil {
		n.fail(fmt.Errorf("replica: raft's view of the log: %w", err))
	}
}

// begin notes the time of an input; false: the node has stopped.
func (n *Node) begin(now int64) bool {
	n.now = max(n.now, now)
	if n.serving {
		n.clock.sample(n.now)
	}
	return n.err == nil
}

// process does what raft asks for, until it asks for nothing more.
func (n *Node) process() {
	for n.err == nil {
		n.propose(false)
		if !n.raft.HasReady() {
			return
		}
		rd := n.raft.Ready()
		n.follow(rd.SoftState)
		for _, rs := range rd.ReadStates {
			n.reads.confirm(rs)
		}
		for _, m := range rd.Messages {
			n.dispatch(m)
		}
		n.wakeReads()
	}
}

func (n *Node) dispatch(m *raftpb.Message) {
	switch m.GetType() {
	case raftpb.MsgStorageAppend:
		n.append(m)
	case raftpb.MsgStorageApply:
		n.apply(m.GetEntries())
		for _, r := range m.GetResponses() {
			n.step(r)
		}
	default:
		n.send(m)
	}
}

// tickMark has the disk vouch for its last record once nothing was written for an
// election timeout: until then one flipped bit there looks like a write that was
// cut short, and would take back what was acknowledged.
func (n *Node) tickMark() {
	n.quiet++
	if n.quiet == n.cfg.ElectionTicks && n.writeID > 0 {
		n.out.Mark = true
	}
}

// writeDoubt has the next start know that the machine is wrong.
func (n *Node) writeDoubt() {
	n.writeID++
	n.quiet = 0
	w := Write{asked: n.now, ID: n.writeID, Doubt: true, Sync: true}
	n.writes = append(n.writes, w)
	n.out.Writes = append(n.out.Writes, w)
}

// append turns what raft asks for into a write. One that has nothing to write still
// keeps its place behind those that have.
func (n *Node) append(m *raftpb.Message) {
	n.writeID++
	n.quiet = 0
	w := Write{asked: n.now, ID: n.writeID, Entries: m.GetEntries(), Sync: len(m.GetResponses()) > 0, responses: m.GetResponses()}
	if m.Term != nil {
		w.HardState = &raftpb.HardState{Term: new(m.GetTerm()), Vote: new(m.GetVote()), Commit: new(m.GetCommit())}
	}
	if s := m.GetSnapshot(); !raft.IsEmptySnap(s) {
		meta, err := metaOf(s)
		if err != nil {
			n.fail(err)
			return
		}
		w.Install = &meta
	}
	n.writes = append(n.writes, w)
	n.out.Writes = append(n.out.Writes, w)
}

// send puts a message on its way. A snapshot goes by another road, since it must
// not hold up heartbeats.
func (n *Node) send(m *raftpb.Message) {
	data, err := proto.Marshal(m)
	if err != nil {
		n.fail(fmt.Errorf("replica: encode a message: %w", err))
		return
	}
	if m.GetType() == raftpb.MsgSnap {
		n.out.SendSnapshots = append(n.out.SendSnapshots, SendSnapshot{To: m.GetTo(), Index: m.GetSnapshot().GetMetadata().GetIndex(), Message: data})
		return
	}
	n.out.Messages = append(n.out.Messages, Message{To: m.GetTo(), Data: data})
}

// follow takes note of the leader.
func (n *Node) follow(s *raft.SoftState) {
	if s == nil {
		return
	}
	n.leader = s.Lead
	leading := s.RaftState == raft.StateLeader
	if n.leading && !leading {
		n.stepDown()
	}
	if leading && !n.leading && n.healing != nil {
		n.healing.ticks = n.cfg.ElectionTicks // it hands over at once
	}
	n.leading = leading
	n.callBack()
}

// stepDown gives up everything that only a leader may do. What flies may still
// be applied; what waits will not.
func (n *Node) stepDown() {
	n.serving, n.transfer = false, 0
	n.mostSessions = 0
	refused := n.waiting.take()
	for i := range refused {
		n.refuse(&refused[i])
	}
	n.refuseReads()
	n.closeStreams()
}

// Status tells where the node stands.
type Status struct {
	ID, Leader, Term uint64
	Dir              uint64 // as Config has it
	Applied          uint64
	Leading, Serving bool
	// Current: it has applied an entry of the leader's term, and with that all that was decided before it, such as
	// where the leader is.
	Current                bool
	Members                Membership
	Waiting, Flying        int
	Revision, Hash         uint64
	ClusterTime            int64
	SnapshotIndex, Streams uint64
	// Version is that of the group, Versions are those that each member supports, as
	// far as this node has met it.
	Version  uint8
	Versions map[uint64]Versions
	// Checked is the last state check. Healing: this node differs from the others, and
	// serves nobody until it has got their state. Frozen: nothing is granted until an
	// operator ends that.
	Checked         Checked
	Healing, Frozen bool
	// Held is how long grants are held back by a group that began anew; it ends by itself.
	Held time.Duration
	// Full: its disk is nearly full, as SetFull told.
	Full bool
	// Changing: a change of the members is not complete, or not known on this disk to be decided, or this node leads and has one in its log
	// of which it does not know that yet.
	Changing bool
}

// Status tells where the node stands.
func (n *Node) Status() Status {
	versions := map[uint64]Versions{n.cfg.ID: n.Versions()}
	for id, m := range n.met {
		versions[id] = m.versions
	}
	term := n.raft.BasicStatus().HardState.GetTerm()
	return Status{
		Current: n.leader != 0 && n.term == term, Version: n.version(), Versions: versions, Checked: n.checked(), Healing: n.healing != nil, Frozen: n.machine.Frozen(), Held: n.held(), Full: n.full, Changing: n.changing() || n.forgetful(),
		ID: n.cfg.ID, Dir: n.cfg.Dir, Leader: n.leader, Term: term, Applied: n.applied,
		Leading: n.leading, Serving: n.serving, Members: n.members, Waiting: n.waiting.len(), Flying: len(n.flying),
		Revision: n.machine.Revision(), Hash: n.machine.Hash(), ClusterTime: n.machine.Now(),
		SnapshotIndex: n.rightSnapshot(), Streams: uint64(len(n.streams.attached)),
	}
}

// ID is the node's number.
func (n *Node) ID() uint64 { return n.cfg.ID }

// Leads tells whether this node leads, and its term. Unlike Status it gathers
// nothing: it may be asked after every step.
func (n *Node) Leads() (term uint64, leads bool) {
	return n.raft.BasicStatus().HardState.GetTerm(), n.leading
}

// Leader is the leader, as far as this node knows, and where clients find it; 0: it
// knows of nobody.
func (n *Node) Leader() (id uint64, client string) { return n.leader, n.leaderAt() }

// Elsewhere tells where clients find the members that are not at the addresses that the group has, as
// long as it has not been told that they moved.
func (n *Node) Elsewhere(clients map[uint64]string) { n.elsewhere = clients }

func (n *Node) leaderAt() string { return cmp.Or(n.elsewhere[n.leader], n.members.Address(n.leader)) }

// Machine is the state as applied. Only look at it between two inputs, and for a
// linearizable answer only when [Output.Reads] says so.
func (n *Node) Machine() *core.Machine { return n.machine }

// ClusterTime is cluster time as this node knows it at the time now: while it
// leads that of its clock, else that of what it applied last.
func (n *Node) ClusterTime(now int64) int64 {
	if n.serving {
		return max(n.clock.sample(now), n.machine.Now())
	}
	return n.machine.Now()
}

// PeerUnreachable tells that a message to a peer was lost.
func (n *Node) PeerUnreachable(now int64, peer uint64) {
	if n.begin(now) {
		n.raft.ReportUnreachable(peer)
		n.process()
	}
}

// quiet drops the raft library's log lines; a broken invariant of its own still
// stops the node.
type quiet struct{}

func (quiet) Debug(...any)              {}
func (quiet) Debugf(string, ...any)     {}
func (quiet) Error(...any)              {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Info(...any)               {}
func (quiet) Infof(string, ...any)      {}
func (quiet) Warning(...any)            {}
func (quiet) Warningf(string, ...any)   {}
func (quiet) Fatal(v ...any)            { panic(fmt.Sprint(v...)) }
func (quiet) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
func (quiet) Panic(v ...any)            { panic(fmt.Sprint(v...)) }
func (quiet) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }

package replica

import (
	"fmt"
	"math"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/internal/core"
)

// Anew is what a group of one begins with that goes on from the state of
// another group, of which it may have forgotten the newest part: all sessions
// are ended, and the revision jumps to what the clock says, Unix seconds·2²⁰, or by
// 2⁴⁰ if it is beyond that, so that no token comes again. For wait of cluster
// time nothing is granted: as long as the longest TTL of the other group, and
// nobody of there believes to hold anything any more.
//
// What the clock says then is not the last word: see [Recovered.Begin].
//
// Danger: without a wait only fencing protects from those holders. And tokens depend on
// the clock: one that is between the old state and what the other group did after it
// lets them come again.
func Anew(machine *core.Machine, self Endpoint, clock time.Time, wait time.Duration) (Recovered, error) {
	grants := core.Entry{Kind: core.EntryUnfreeze, Version: machine.Version(), Now: machine.Now()}
	conf := Membership{Conf: &raftpb.ConfState{Voters: []uint64{self.ID}}, Endpoints: []Endpoint{self}}
	if wait > 0 {
		grants.Kind, conf.Held = core.EntryFreeze, machine.Now()+min(int64(wait), math.MaxInt64-machine.Now())
	}
	machine.Forget(units(clock))
	if err := machine.Apply(core.AppendEntry(nil, &grants), nil); err != nil {
		return Recovered{}, fmt.Errorf("replica: forget the sessions of another group: %w", err)
	}
	if machine.Revision() >= core.MaxRevision {
		return Recovered{}, fmt.Errorf("replica: revision %d: tokens end at 2⁵³; set the wall clock right, or begin with an empty state", machine.Revision())
	}
	return Recovered{Snapshot: SnapshotMeta{Index: 1, Term: 1, Conf: conf}, Machine: machine}, nil
}

// units is a time as revisions count it, Unix time in units of 2⁻²⁰ seconds.
func units(clock time.Time) uint64 {
	if clock.Unix() < 0 {
		return 0
	}
	return uint64(min(clock.Unix(), core.MaxRevision>>20))<<20 | uint64(clock.Nanosecond())<<20/uint64(time.Second)
}

// New reports whether this is what [Anew] made for node id, or [Bootstrap] for it alone, and no
// node has run on it yet: the first thing that a node writes is a term of its own.
func (r *Recovered) New(id uint64) bool {
	began := r.HardState != nil && (r.HardState.GetTerm() != r.Snapshot.Term || r.HardState.GetVote() != 0)
	return r.Snapshot.Index == 1 && len(r.Entries) == 0 && !began && r.Snapshot.Conf.alone(id)
}

// Begin moves the revision of a group that is [Recovered.New] on to the clock of its first
// start: of two groups that go on from the same state, or that are founded by one node in the
// place of the other, the one that starts later has the
// greater tokens, whichever was made first. A clock that is behind changes nothing. Call it before anything is proposed, and keep the machine.
func (r *Recovered) Begin(clock time.Time) error {
	if units(clock) >= core.MaxRevision {
		return fmt.Errorf("replica: the clock says %s, when tokens have come to their end at 2⁵³: set it right, and start again", clock)
	}
	r.Machine.Raise(units(clock))
	return nil
}

// Fork is an entry behind the log of a node alone that runs on a copy: it raises the revision to
// the clock, so that what it grants has greater tokens than all that the other goes on to give, or has given. It is of the
// newest version that the node supports, if that can say it; nil: it cannot.
func (r *Recovered) Fork(id uint64, newest uint8, clock time.Time) *raftpb.Entry {
	if newest < raiseVersion {
		return nil
	}
	to := units(clock)
	if now := r.Machine.Revision(); to <= now {
		to = now + raiseBy
	}
	index, term := r.Snapshot.Index+1, max(r.Snapshot.Term, r.HardState.GetTerm())
	if n := len(r.Entries); n > 0 {
		index = r.Entries[n-1].GetIndex() + 1
	}
	e := core.Entry{Kind: core.EntryRaise, Version: newest, Now: r.Machine.Now(), Revision: min(to, core.MaxRevision-1)}
	return &raftpb.Entry{Index: new(index), Term: new(term), Type: raftpb.EntryNormal.Enum(), Data: core.AppendEntry(header{kind: kindCore, node: id}.append(nil), &e)}
}

// Told is the revision after which watchers can be told everything: what follows it is applied
// by [New]. It is 0 for a machine that has not put out anything, where nothing can be missing.
func (r *Recovered) Told() uint64 {
	if r.Machine.Hash() == core.New(core.Config{}).Hash() {
		return 0
	}
	return r.Machine.Revision()
}

// Replay applies an entry of a log to a machine, outside of any node. Changes of
// the membership say nothing to a machine.
func Replay(machine *core.Machine, e *raftpb.Entry) error {
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
		return nil
	}
	_, entry, err := splitEntry(e.GetData())
	if err != nil {
		return err
	}
	return machine.Apply(entry, nil)
}

// Date is the Unix time that the leader wrote into an entry of its log, in seconds; 0: it
// wrote none, as into what is no command, and into all of a group before version 3. Now is the
// cluster time of the entry; 0: it has none.
func Date(e *raftpb.Entry) (seconds, now int64) {
	var c core.Entry
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
		return 0, 0
	}
	_, entry, err := splitEntry(e.GetData())
	if err != nil || core.DecodeEntry(entry, &c) != nil {
		return 0, 0
	}
	return c.Seconds, c.Now
}

// proposeFirst lets a new group of several founders begin at a revision that the wall clock
// gives, before anything else is proposed, and in the newest version that all founders have
// shown to support. The second of the start will do: with the default Tick they need longer than
// that to elect the first leader, and one that is made in the place of this group starts later.
func (n *Node) proposeFirst() {
	if n.machine.Revision() != 0 || n.cfg.Seconds <= 0 {
		return
	}
	n.number++
	first := core.Entry{Kind: core.EntryForget, Version: max(n.common(), n.machine.Version()), Now: n.clock.now, Seconds: min(n.cfg.Seconds, core.MaxRevision>>21)}
	if n.fly(proposal{number: n.number, term: n.currentTerm()}, kindCore, 64, &first) {
		n.raised = raise{n.currentTerm(), first.Version}
	}
}

// proposeThaw ends the wait of a group that began anew, once it is over, unless a state
// check finds another reason to grant nothing, no majority. The last check may have been
// forgotten with a restart, so that there is a new one then.
func (n *Node) proposeThaw() {
	held, term := n.members.Held, n.currentTerm()
	if !n.serving || n.transfer != 0 || held == 0 || n.clock.now < held || n.thawed == term {
		return
	}
	switch {
	case n.check.index == 0 && n.compares():
		n.askCheck(nobody)
		return
	case n.joint() || n.check.index != 0 && n.check.rule != ruled:
		return
	}
	n.number++
	if n.fly(proposal{number: n.number, term: term}, kindThaw, 64, &core.Entry{Kind: core.EntryUnfreeze, Now: n.clock.sample(n.now)}) {
		n.thawed = term
	}
}

// held is how long the wait of a group that began anew goes on; 0: there is none. Where
// it is over, and only waits for a state check, that is a second.
func (n *Node) held() time.Duration {
	if n.members.Held == 0 || !n.machine.Frozen() {
		return 0
	}
	return max(time.Duration(n.members.Held-max(n.clock.now, n.machine.Now())), time.Second)
}

// tellHeld says in refusals until when nothing is granted, which the machine does not
// know.
func (n *Node) tellHeld(replies []core.Reply) {
	left := n.held()
	if left == 0 {
		return
	}
	for i := range replies {
		for j := range replies[i].Results {
			if r := &replies[i].Results[j]; r.Code == core.CodeUnavailable && strings.HasPrefix(r.Text, core.TextFrozen) { // others are only busy
				r.Deadline = replies[i].Now + int64(left)
				r.Text = fmt.Sprintf("the group began anew from another (snapshot restore --wait) and grants nothing for another %s: try again then, or wait for it", left.Round(time.Second))
			}
		}
	}
}

// proposeQuota puts this leader's quotas into the log unless they are in force, and
// again when the group is of a version that knows more of them.
func (n *Node) proposeQuota() {
	now, at := n.machine.Quota(), raise{n.currentTerm(), n.machine.Version()}
	want := now.With(n.cfg.Quota)
	if at.version < 3 {
		want.LimitKeys = now.LimitKeys
	}
	if !n.serving || n.transfer != 0 || want == now || n.bounded == at {
		return
	}
	n.number++
	if n.fly(proposal{number: n.number, term: at.term}, kindCore, 64, &core.Entry{Kind: core.EntryQuota, Now: n.clock.now, Quota: want}) {
		n.bounded = at
	}
}

package replica

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfast-io/holdfast/internal/core"
)

// apply applies committed entries in order.
func (n *Node) apply(entries []*raftpb.Entry) {
	for _, e := range entries {
		if n.err != nil {
			return
		}
		n.applyOne(e)
		n.snap.bytes += len(e.GetData())
		n.snap.loose += len(e.GetData()) + entryCost
		n.begunTerm(e.GetTerm())
	}
	n.maybeSnapshot()
	n.letGo()
	n.maybeTransfer()
}

func (n *Node) applyOne(e *raftpb.Entry) {
	n.applied, n.term = e.GetIndex(), e.GetTerm()
	n.giveUpBefore(e.GetTerm())
	switch {
	case e.GetType() != raftpb.EntryNormal:
		n.applyChange(e)
	case len(e.GetData()) == 0:
		n.refusedChange(e)
	default:
		n.applyEntry(e)
	}
}

// begunTerm begins to serve once an entry of the leader's own term is applied:
// everything that was ever acknowledged is in the machine then, and cluster time
// goes on from where it stood.
func (n *Node) begunTerm(applied uint64) {
	if n.leading && !n.serving && n.healing == nil && applied == n.currentTerm() && n.members.has(n.cfg.ID) {
		n.serving, n.began = true, n.now
		n.clock.begin(n.machine.Now(), n.now)
		n.stamped = n.now
		n.aimed, n.goal = 0, [2]uint64{n.applied, n.applied}
		n.proposeFirst()
		n.proposeRaise()
		n.proposeQuota()
		n.ask()
	}
}

// giveUpBefore settles the proposals of earlier terms: terms never go back in a
// log, so what has not been applied by now never will be. That is known only
// while every entry was applied here, one by one: see loseTrack.
func (n *Node) giveUpBefore(term uint64) {
	for len(n.flying) > 0 && n.flying[0].term < term {
		n.giveUp(&n.flying[0], NotDone)
		n.flying = n.flying[1:]
	}
}

// loseTrack settles all proposals when a snapshot takes the place of entries: it
// may hold what they asked for, and does not tell.
func (n *Node) loseTrack() {
	for i := range n.flying {
		n.giveUp(&n.flying[i], Unknown)
	}
	n.flying = nil
}

// giveUp answers all callers of a proposal. Those with a stream ask the next
// leader, which knows what it has applied of them.
func (n *Node) giveUp(p *proposal, o Outcome) {
	for i := range p.items {
		if it := &p.items[i]; it.at == nil {
			n.answer(it.caller, o, nil)
		} else if o == NotDone { // a refusal says that nothing was done
			n.refuseStream(it)
		}
	}
	n.answer(p.conf, o, nil)
}

// Unapplied is why a node stops that cannot apply an entry of its log: from there on its
// state would not be that of the others.
type Unapplied struct {
	Index    uint64 // of the entry
	Revision uint64 // of the state before it
	Err      error
}

func (u *Unapplied) Error() string {
	return fmt.Sprintf("log entry %d, after revision %d, cannot be applied: %v", u.Index, u.Revision, u.Err)
}

// Unwrap is the reason.
func (u *Unapplied) Unwrap() error { return u.Err }

func (n *Node) applyEntry(e *raftpb.Entry) {
	h, entry, err := splitEntry(e.GetData())
	if err != nil {
		n.fail(&Unapplied{e.GetIndex(), n.machine.Revision(), err})
		return
	}
	if err := n.cfg.supported(fmt.Sprintf("entry %d", e.GetIndex()), core.VersionOf(entry)); err != nil {
		n.fail(err)
		return
	}
	out, version := &n.applying, n.machine.Version()
	out.Reset()
	if err := n.machine.Apply(entry, out); err != nil {
		n.fail(&Unapplied{e.GetIndex(), n.machine.Revision(), err})
		return
	}
	n.ended = n.ended || n.machine.Behind()
	switch h.kind {
	case kindThaw:
		n.members.Held = 0
	case kindCheck, kindRule:
		n.beginCheck(e, h.ruler)
	}
	if n.machine.Version() > version {
		n.proposeQuota() // before anything that only this version knows
	}
	if n.healing != nil {
		return // what the machine says is not to be told
	}
	n.noteEnded(out.Events)
	n.keepEvents(out)
	n.out.Applied = append(n.out.Applied, Applied{Index: e.GetIndex(), Hash: n.machine.Hash()})
	n.pushAll(out.Pushes, true)
	if h.node == n.cfg.ID {
		n.tellHeld(out.Replies)
		n.replyAll(h.number, e.GetTerm(), out)
	}
	n.pushAll(out.Pushes, false)
	n.tellEnded()
}

// maxEvents bounds what one Output tells of: a node that starts applies its whole
// log at once, which nobody watches.
const maxEvents = 1 << 16

// keepEvents notes events for the watchers. More than they could read need a
// resync instead.
func (n *Node) keepEvents(out *core.Output) {
	if len(n.out.Events) > maxEvents {
		n.out.Events, n.out.Jumped = n.out.Events[:0], true
	}
	if len(n.out.Events) == 0 { // mostly: they are large, and need not be copied
		n.out.Events, out.Events = out.Events, n.out.Events
		return
	}
	n.out.Events = append(n.out.Events, out.Events...)
}

// replyAll answers the callers of an entry that this node proposed. The first
// proposal that flies is the one: they are applied in order, and an entry of an
// earlier life of this node has none.
func (n *Node) replyAll(number, term uint64, out *core.Output) {
	if len(n.flying) == 0 || n.flying[0].number != number || n.flying[0].term != term {
		return
	}
	p := n.flying[0]
	n.flying = n.flying[1:]
	renewed, replies := out.Renewed, out.Replies
	for i := range p.items {
		if it := &p.items[i]; it.frame == nil {
			n.renewed(it, &renewed[0])
			renewed = renewed[1:]
		} else {
			n.reply(it, &replies[0])
			replies = replies[1:]
		}
	}
	n.answer(p.conf, Done, nil)
	n.waiting.reuse(p.items)
}

func (n *Node) reply(i *item, r *core.Reply) {
	if i.at != nil {
		n.replyStream(i.at, r)
		return
	}
	n.answer(i.caller, Done, core.AppendReply(nil, r))
}

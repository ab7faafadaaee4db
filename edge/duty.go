package edge

import (
	"time"
	"unique"

	"github.com/holdfast-io/holdfast/crdt"
)

// To a Keeper a node tells, with every state, its own part of all it counts. The parts of
// nodes that are gone, and what is of nobody (sets, registers, debts), are told whole: by
// every node, but for those that are relieved. What relieves a node of a counter, a key, a
// set or a register is a kept message of a node earlier in the order of actors that tells
// no less of it than this node knows, as long as that node runs and keeps messages, and tells it
// with every state: one that has nothing to tell of it any more relieves nobody.
//
// Relief only leads to earlier nodes that run, so at its end is one that is not relieved
// and tells the whole every time. A node that hears less from an earlier one than it knows
// is not relieved any more, and tells it in turn. So all come to know what any node that
// runs knows; and a message that told something is only replaced by one that tells it
// still, by one that tells it in the next part, which is kept right after it, or after an
// earlier node's was kept. None of this depends on which node knows more.

// relief is the earlier node that tells the whole of something; the zero value: none does.
type relief struct {
	by  unique.Handle[crdt.Actor]
	seq uint64 // of the message that told it last
}

// view is which nodes run, as one node sees it at one moment.
type view struct {
	self   unique.Handle[crdt.Actor]
	sender unique.Handle[crdt.Actor] // of the message that is judged
	seq    uint64                    // of that message
	runs   map[unique.Handle[crdt.Actor]]telling
}

// telling is what another that was heard lately is known to tell.
type telling struct {
	keeps bool   // it was heard to keep messages
	after uint64 // its last whole state began after the message of that number
}

// tells reports that the parts of an actor are told with a whole: those of others that run
// are told by themselves.
func (v *view) tells(a unique.Handle[crdt.Actor]) bool {
	if v == nil || a == v.self {
		return true
	}
	_, runs := v.runs[a]
	return !runs
}

// missing reports that an actor's part is one that a whole of the sender has to tell to
// relieve this node.
func (v *view) missing(a unique.Handle[crdt.Actor]) bool { return a != v.self && v.tells(a) }

// relieves reports that somebody else tells the whole.
func (v *view) relieves(r relief) bool {
	if v == nil {
		return false
	}
	by := v.runs[r.by]
	return by.keeps && r.seq > by.after
}

// judge notes whether a whole of the sender tells all that is known here.
func (v *view) judge(r *relief, all bool) {
	*r = relief{}
	if all {
		*r = relief{v.sender, v.seq}
	}
}

// of is the view for a section, nil if it is no whole.
func (v *view) of(whole bool) *view {
	if !whole {
		return nil
	}
	return v
}

// view is that of this moment.
func (p *peers) view(me crdt.Actor, now time.Time, within time.Duration) *view {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := &view{self: unique.Make(me), runs: map[unique.Handle[crdt.Actor]]telling{}}
	for a, s := range p.known {
		if p.runs(a, s, now, within) {
			v.runs[unique.Make(a)] = telling{now.Sub(s.kept) <= within, s.ends[0]}
		}
	}
	return v
}

// judging is the view for a message that can relieve this node; nil: it cannot.
func (n *Node) judging(m *message) *view {
	if !m.kept || n.me.Compare(m.sender) <= 0 {
		return nil
	}
	v := n.view()
	v.sender, v.seq = unique.Make(m.sender), m.seq
	return v
}

func (n *Node) view() *view {
	return n.peers.view(n.me, n.config.Now(), absence*n.config.State)
}

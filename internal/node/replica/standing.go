package replica

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/node/address"
)

// standing is what a leader knows of its group when a change is asked for. Raft
// takes every change that it can carry out; this decides which of them the group
// would survive.
type standing struct {
	members  *Membership
	self     uint64
	solo     bool // this node has no way to others
	changing bool // an earlier change is not complete
	hidden   bool // the group has yet to note this node's address
	answers  map[uint64]bool
	heard    map[uint64]int64
	since    int64             // if it is not 0, only what was heard after it counts for a majority
	match    map[uint64]uint64 // up to where it has the log
	current  map[uint64]bool   // has what was applied an election timeout ago
	ails     map[uint64]ailment
	silence  time.Duration // after it a node does not answer any more
}

func (n *Node) standing() *standing {
	s := &standing{members: &n.members, self: n.cfg.ID, solo: n.cfg.Solo, heard: n.heard, answers: map[uint64]bool{}, match: map[uint64]uint64{}, current: map[uint64]bool{}, ails: map[uint64]ailment{}, silence: n.cfg.electionTimeout()}
	s.changing = n.changing() || n.asked != nil
	s.hidden = n.cfg.Peer != "" && n.members.endpoint(n.cfg.ID).Peer == ""
	n.raft.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		s.answers[id] = n.answering(id)
		s.ails[id] = n.ailing(id)
		s.match[id] = pr.Match
		s.current[id] = pr.Match >= n.goal[0]
	})
	return s
}

// answering reports whether a node has been heard within an election timeout.
func (n *Node) answering(id uint64) bool {
	at, heard := n.heard[id]
	return id == n.cfg.ID || heard && n.now-at <= int64(n.cfg.electionTimeout())
}

// Unfit says why a voter could not take over from this node, which leads and would stand still for
// an election timeout if it was asked, or should not; "": it can.
func (n *Node) Unfit(id uint64) string { return n.standing().unfit(id) }

// TakesOver is the voter to which this node, which leads, hands over when it stops, another one than at the last time if there
// is one; 0: there is none.
func (n *Node) TakesOver() uint64 { return n.standing().takesOver(n.handed) }

func (s *standing) unfit(id uint64) string {
	switch {
	case !s.answers[id]:
		return fmt.Sprintf("node %d does not answer, so that it cannot take over: start it, or name another", id)
	case s.ails[id] != 0:
		return s.ails[id].text(id, s.silence)
	case !s.current[id]:
		return fmt.Sprintf("node %d has not caught up, so that it cannot take over yet: try again when it has, or name another", id)
	}
	return ""
}

// hear notes that a member has sent something.
func (n *Node) hear(id uint64) {
	if n.members.has(id) {
		n.heard[id] = n.now
	}
}

// tickGoal moves the goal that a learner has to reach before it may vote: what was
// applied one to two election timeouts ago. Under load nobody has all of now.
func (n *Node) tickGoal() {
	if n.aimed++; n.aimed >= n.cfg.ElectionTicks {
		n.aimed, n.goal = 0, [2]uint64{n.goal[1], n.applied}
	}
}

// refuse says what would be wrong with a change. CodeInvalid: always; CodeConflict:
// as the group stands now.
func (s *standing) refuse(c Change) (core.Code, string) {
	for _, e := range c.Replace {
		if !s.members.has(e.ID) {
			return core.CodeInvalid, fmt.Sprintf("node %d is no member, so that it cannot be replaced: the members are %s", e.ID, numbers(s.members.all()))
		}
	}
	if text := s.living(c); text != "" {
		return core.CodeConflict, text
	}
	c = s.expand(c)
	for _, check := range []func(Change) string{s.unnamed, s.badAdds, s.strangers, s.nowhere, s.sameAddress, s.sameClients, s.crossed} {
		if text := check(c); text != "" {
			return core.CodeInvalid, text
		}
	}
	if s.changing {
		return core.CodeConflict, "another change of the members is under way: two at once could leave two majorities that do not know of each other; try again when it is complete"
	}
	if s.hidden && len(c.Add) > 0 {
		return core.CodeConflict, "the group has yet to note the address of this node, without which a new one could not answer it: try again in a moment"
	}
	for _, check := range []func(Change) string{s.unready, s.leftover, s.headless} {
		if text := check(c); text != "" {
			return core.CodeConflict, text
		}
	}
	return core.CodeOK, ""
}

// living refuses to replace a node that answers: its directory is not lost.
func (s *standing) living(c Change) string {
	for _, e := range c.Replace {
		if s.answers[e.ID] {
			return fmt.Sprintf("node %d has answered within %s, so that its directory is not lost: it would be sent away; stop it first, or remove it", e.ID, s.silence)
		}
	}
	return ""
}

// expand says what replacing nodes means: each leaves, and another comes; and what it means that one was seen where
// another was.
func (s *standing) expand(c Change) Change {
	var given []uint64
	for _, r := range c.Replace {
		old := s.members.endpoint(r.ID)
		given = append(given, s.free(given...))
		c.Remove = append(slices.Clone(c.Remove), r.ID)
		c.Add = append(slices.Clone(c.Add), Endpoint{
			ID: given[len(given)-1], Peer: cmp.Or(r.Peer, old.Peer), Client: cmp.Or(r.Client, old.Client),
			Voter: old.Voter || slices.Contains(s.members.Conf.GetVoters(), r.ID),
		})
	}
	c.Replace = nil
	return s.exchange(c)
}

// exchange gives a member the addresses that another has left, if that other one is to be found, and was seen, at the member's
// address. It is not where it was in any case; so no two members ever have one address, and after two have changed places
// one update is enough, whichever is told.
func (s *standing) exchange(c Change) Change {
	for _, e := range c.Update {
		was, others := s.members.endpoint(e.ID), s.unchanged(c)
		i := slices.IndexFunc(others, func(o Endpoint) bool { return address.Same(o.Peer, e.Peer) })
		if i < 0 || was.Peer == "" || !slices.Contains(c.Seen, e.ID) {
			continue
		}
		o := others[i]
		o.Peer = was.Peer
		if address.Same(o.Client, e.Client) {
			o.Client = was.Client
		}
		c.Update = append(slices.Clone(c.Update), o)
	}
	return c
}

// unnamed refuses a change of nothing, and of one node in two ways.
func (s *standing) unnamed(c Change) string {
	ids := slices.Concat(c.Promote, c.Remove)
	for _, e := range slices.Concat(c.Add, c.Update) {
		ids = append(ids, e.ID)
	}
	if len(ids) == 0 {
		return "nothing is to change: name a node"
	}
	slices.Sort(ids)
	for i, id := range ids {
		if i > 0 && ids[i-1] == id {
			return fmt.Sprintf("node %d is named twice: name it once", id)
		}
	}
	return ""
}

// badAdds refuses numbers that are not new, and nodes that this one could not reach.
func (s *standing) badAdds(c Change) string {
	for _, e := range c.Add {
		_, used := slices.BinarySearch(s.members.Used, e.ID)
		switch {
		case e.ID == 0 || e.ID > MaxNumber:
			return fmt.Sprintf("a node's number is from 1 to %d, not %d", MaxNumber, e.ID)
		case s.members.has(e.ID):
			return fmt.Sprintf("node %d is a member already", e.ID)
		case used:
			return fmt.Sprintf("number %d was given to a node that was removed: the group would take the new node for the old one, and believe promises that it never made; use a number that is new, such as %d", e.ID, s.free())
		case s.solo:
			return fmt.Sprintf("this node has no address for other nodes, so that node %d could never hear from it: start it with an address for them (holdfast serve --peer HOST:PORT), then add node %d", e.ID, e.ID)
		}
	}
	return ""
}

// nowhere refuses an address that stands for all of a machine: the others would look for the
// node at their own.
func (s *standing) nowhere(c Change) string {
	for _, e := range slices.Concat(c.Add, c.Update) {
		if address.Anywhere(e.Peer) && e.Peer != s.members.endpoint(e.ID).Peer {
			return fmt.Sprintf("at %s no other node could find node %d: name one of its addresses", e.Peer, e.ID)
		}
	}
	return ""
}

// sameAddress refuses an address at which another member is: what is meant for one would
// go to the other, and a node that lost its directory would be taken for the wrong one.
func (s *standing) sameAddress(c Change) string {
	at := map[string]uint64{}
	for _, e := range s.unchanged(c) {
		if e.Peer != "" {
			at[address.Canonical(e.Peer)] = e.ID
		}
	}
	for _, e := range slices.Concat(c.Add, c.Update) {
		if id := at[address.Canonical(e.Peer)]; id != 0 {
			return fmt.Sprintf("node %d is at %s already: give node %d the peer address of its own", id, e.Peer, e.ID)
		}
		if e.Peer != "" {
			at[address.Canonical(e.Peer)] = e.ID
		}
	}
	return ""
}

// sameClients refuses an address at which clients find another member: a call that is passed on
// to the leader there would reach the wrong node, which passes it on again. What a member has
// already is not refused: a group of an earlier version may have such a pair, and goes on.
func (s *standing) sameClients(c Change) string {
	at := map[string]uint64{}
	for _, e := range s.unchanged(c) {
		if e.Client != "" {
			at[address.Canonical(e.Client)] = e.ID
		}
	}
	for _, e := range slices.Concat(c.Add, c.Update) {
		if id := at[address.Canonical(e.Client)]; id != 0 && !s.hadClients(c, e) {
			return fmt.Sprintf("clients find node %d at %s already: give node %d the client address of its own", id, e.Client, e.ID)
		}
		if e.Client != "" {
			at[address.Canonical(e.Client)] = e.ID
		}
	}
	return ""
}

// hadClients: the address was that of the member, or of one in the place of which it comes.
func (s *standing) hadClients(c Change, e Endpoint) bool {
	had := func(id uint64) bool { return address.Same(s.members.endpoint(id).Client, e.Client) }
	return had(e.ID) || slices.ContainsFunc(c.Remove, had)
}

// hadPeer is hadClients for the address for other nodes.
func (s *standing) hadPeer(c Change, e Endpoint) bool {
	had := func(id uint64) bool { return address.Same(s.members.endpoint(id).Peer, e.Peer) }
	return had(e.ID) || slices.ContainsFunc(c.Remove, had)
}

// unchanged are the members that stay where they are.
func (s *standing) unchanged(c Change) []Endpoint {
	return slices.DeleteFunc(slices.Clone(s.members.Endpoints), func(e Endpoint) bool {
		return slices.Contains(c.Remove, e.ID) || slices.ContainsFunc(c.Update, func(u Endpoint) bool { return u.ID == e.ID })
	})
}

// crossed refuses an address at which clients would find one member and other nodes one, be it
// the same: what is passed on to a leader there would not be understood. As with sameClients what
// a member has already is not refused.
func (s *standing) crossed(c Change) string {
	changed := slices.Concat(c.Add, c.Update)
	text := func(at string, clients, nodes uint64) string {
		return fmt.Sprintf("at %s clients would find node %d, and other nodes node %d: a node has two addresses, one for each", at, clients, nodes)
	}
	for _, e := range changed {
		for _, other := range slices.Concat(s.unchanged(c), changed) {
			switch {
			case address.Same(e.Client, other.Peer) && !s.hadClients(c, e):
				return text(e.Client, e.ID, other.ID)
			case address.Same(e.Peer, other.Client) && !s.hadPeer(c, e):
				return text(e.Peer, other.ID, e.ID)
			}
		}
	}
	return ""
}

// MaxNumber is the greatest number of a node.
const MaxNumber uint64 = 1<<32 - 1

// free is the least number above all that were ever used, or are given now; if there is
// none, the least that was not.
func (s *standing) free(given ...uint64) uint64 {
	used := slices.Concat(s.members.Used, s.members.all(), given, []uint64{0})
	free := 1 + slices.Max(used)
	if free > MaxNumber {
		for free = 1; slices.Contains(used, free); free++ {
		}
	}
	return free
}

// strangers refuses what needs a member, or a learner, and has none.
func (s *standing) strangers(c Change) string {
	for _, id := range c.Promote {
		switch {
		case slices.Contains(s.members.Conf.GetVoters(), id):
			return fmt.Sprintf("node %d votes already", id)
		case !s.members.has(id):
			return fmt.Sprintf("node %d is no member: add it first", id)
		}
	}
	for _, id := range c.Remove {
		if !s.members.has(id) {
			return fmt.Sprintf("node %d is no member, so that it cannot be removed: the members are %s", id, numbers(s.members.all()))
		}
	}
	for _, e := range c.Update {
		if !s.members.has(e.ID) {
			return fmt.Sprintf("node %d is no member: add it first", e.ID)
		}
	}
	if len(s.voters(c)) == 0 {
		return fmt.Sprintf("no voter would be left (now: %s): nothing could be decided any more, not even to add a node; add and promote a successor first", numbers(s.members.Conf.GetVoters()))
	}
	return ""
}

// unready refuses to promote a node that would not vote.
func (s *standing) unready(c Change) string {
	for _, id := range c.Promote {
		switch {
		case !s.answers[id]:
			return fmt.Sprintf("node %d has not answered for %s: as a voter it would count without ever voting, and the group would stand still when one node more is away; start it with --join, or look why it cannot be reached at its peer address", id, s.silence)
		case s.members.endpoint(id).Dir == 0 && s.members.endpoint(s.self).Dir != 0:
			return fmt.Sprintf("the group has yet to note the directory of node %d, by which it would know that the node was not wiped: try again in a moment", id)
		case !s.current[id]:
			return fmt.Sprintf("node %d has not caught up: as a voter it would keep the group waiting until it has; try again when it has", id)
		}
	}
	return ""
}

// leftover refuses a change after which the voters that answer now are no majority (quorum):
// the group could commit nothing any more, and not even take the change back.
func (s *standing) leftover(c Change) string {
	voters := s.voters(c)
	moved := slices.DeleteFunc(slices.Clone(voters), func(id uint64) bool { return !s.moves(c, id, len(voters)) })
	if len(c.Promote)+len(c.Remove)+len(moved) == 0 {
		return ""
	}
	silent := slices.DeleteFunc(slices.Clone(voters), func(id uint64) bool { return s.stays(id) && !slices.Contains(moved, id) })
	need := len(voters)/2 + 1
	switch {
	case len(voters)-len(silent) >= need:
		return ""
	case len(moved) > 0:
		return fmt.Sprintf("nothing of this group answers as node %s at its new address, and without %s those that answer now are no majority: the group would stand still at once if the address is wrong. Let the node listen at both addresses first, or add one there under a new number and remove this one; else bring back the silent ones",
			numbers(moved), numbers(silent))
	}
	return fmt.Sprintf("the voters would be %s, and %s did not answer within %s: a majority needs %d of them, so that the group would stand still at once; bring back the silent ones, or remove them first",
		numbers(voters), numbers(silent), s.silence, need)
}

// stays reports whether a voter counts for the majority that has to be left.
func (s *standing) stays(id uint64) bool {
	return s.answers[id] && (id == s.self || s.heard[id] >= s.since)
}

// moves reports whether the others would look for one of so many voters at an address at
// which nobody has seen it. Where another was seen none is lost.
func (s *standing) moves(c Change, id uint64, voters int) bool {
	was := s.members.endpoint(id).Peer
	seen := slices.ContainsFunc(c.Update, func(e Endpoint) bool {
		return slices.Contains(c.Seen, e.ID) && (e.ID == id || address.Same(e.Peer, was))
	})
	return (id != s.self || voters > 1) && was != "" && !seen &&
		slices.ContainsFunc(c.Update, func(e Endpoint) bool { return e.ID == id && !address.Same(e.Peer, was) })
}

// headless refuses to remove the leader if nobody can take over from it first. A
// leader that removes itself is the only one that knows when the change is complete:
// the others would need its vote to learn of it, which it might refuse to them.
func (s *standing) headless(c Change) string {
	if slices.Contains(c.Remove, s.self) && s.successor(c, 0) == 0 {
		return fmt.Sprintf("node %d leads, and no voter stays that could take over from it: %s", s.self, cmp.Or(s.reasons(c), "promote another one first, then remove it"))
	}
	return ""
}

// reasons says why the voters that stay after a change cannot take over.
func (s *standing) reasons(c Change) string {
	var all []string
	for _, id := range s.voters(c) {
		if why := s.unfit(id); why != "" {
			all = append(all, why)
		}
	}
	return strings.Join(all, "; ")
}

// successor is the voter that can take over from a leader that a change removes; 0: there is none.
func (s *standing) successor(c Change, asked uint64) (best uint64) {
	return s.best(c, asked, func(id uint64) bool { return s.unfit(id) == "" })
}

// takesOver is the voter that takes over from a leader that goes in any case: one that can, else one that will do it badly; 0:
// there is none.
func (s *standing) takesOver(asked uint64) uint64 {
	able := func(id uint64) bool { return s.answers[id] && !s.ails[id].bars() }
	return cmp.Or(s.successor(Change{}, asked), s.best(Change{}, asked, able))
}

// best is the voter that stays after a change, is one of some, and has the most of the log, and if
// there are several another one than asked; 0: there is none.
func (s *standing) best(c Change, asked uint64, of func(id uint64) bool) (best uint64) {
	for _, id := range s.members.Conf.GetVoters() {
		if id == s.self || slices.Contains(c.Remove, id) || !of(id) {
			continue
		}
		if best == 0 || best == asked || id != asked && s.match[id] > s.match[best] {
			best = id
		}
	}
	return best
}

// voters are those that vote after a change.
func (s *standing) voters(c Change) []uint64 {
	return slices.DeleteFunc(slices.Concat(s.members.Conf.GetVoters(), c.Promote), func(id uint64) bool { return slices.Contains(c.Remove, id) })
}

// numbers lists nodes for a reader: 1, 2 and 3.
func numbers(ids []uint64) string {
	var text []string
	for _, id := range slices.Sorted(slices.Values(ids)) {
		text = append(text, fmt.Sprint(id))
	}
	if n := len(text); n > 1 {
		return strings.Join(text[:n-1], ", ") + " and " + text[n-1]
	}
	return strings.Join(text, "")
}

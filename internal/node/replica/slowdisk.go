package replica

import "cmp"

// tickDisk hands leadership over if this node's disk has not written for an election
// timeout what that of another voter has: everything that is asked of a leader waits for
// its disk, also where the others could have gone on long ago. If all disks are slow,
// nobody is better, and nothing changes hands.
func (n *Node) tickDisk() {
	if !n.serving || n.transfer != 0 || !n.slow() {
		return
	}
	well := func(id uint64) bool { return n.ailing(id) == 0 }
	able := func(id uint64) bool { return !n.ailing(id).bars() }
	if to := cmp.Or(n.quicker(well), n.quicker(able)); to != 0 {
		n.transfer, n.handing = to, 0
		n.raft.TransferLeader(to) // what flies stays so: this node cannot apply what it has not written
	}
}

// slow reports whether the disk has not written for an election timeout.
func (n *Node) slow() bool {
	return len(n.writes) > 0 && n.now-n.writes[0].asked > int64(n.cfg.electionTimeout())
}

// quicker is the voter of some that answers and has the most of the log on its disk, more than
// this node; 0: there is none.
func (n *Node) quicker(of func(id uint64) bool) (best uint64) {
	progress := n.raft.Status().Progress
	most := progress[n.cfg.ID].Match
	for _, id := range n.members.Conf.GetVoters() {
		if p, ok := progress[id]; ok && id != n.cfg.ID && n.answering(id) && of(id) && p.Match > most {
			best, most = id, p.Match
		}
	}
	return best
}

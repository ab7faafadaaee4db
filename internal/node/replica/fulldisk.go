package replica

// fullSnapshots is how many election timeouts lie between two snapshots that are made
// because the disk is full: only then is what was freed on it again.
const fullSnapshots = 5

// tickFull has a full disk freed of what is not needed any more.
func (n *Node) tickFull() {
	s := &n.snap
	if n.full && n.applied > s.index && n.now-s.begun >= fullSnapshots*int64(n.cfg.electionTimeout()) {
		s.wanted = n.applied
		n.maybeSnapshot()
	}
}

// tickRoom hands leadership over if this node has served with a full disk for as long as a snapshot
// takes to be tried: growth goes on where there is room. If the other does not take over, this node
// serves as long again before it asks another, since nothing is proposed meanwhile.
func (n *Node) tickRoom() {
	if !n.serving || !n.full {
		n.unwell.cramped = n.now
		return
	}
	if n.transfer != 0 || n.now-n.unwell.cramped < fullSnapshots*int64(n.cfg.electionTimeout()) {
		return
	}
	if to := n.roomy(); to != 0 {
		n.unwell.cramped = n.now
		n.handOver(to)
	}
}

// roomy is a voter that can take over and has room, if the voters of that kind are a majority: a leader with
// room takes growth, which must not wait for a full log. Nodes that are all full hand over to nobody. 0: there is none.
func (n *Node) roomy() uint64 {
	s, count := n.standing(), 0
	roomy := func(id uint64) bool { return s.unfit(id) == "" && n.complains(id) == 0 }
	voters := n.members.Conf.GetVoters()
	for _, id := range voters {
		if id != n.cfg.ID && roomy(id) {
			count++
		}
	}
	if count <= len(voters)/2 {
		return 0
	}
	return s.best(Change{}, n.handed, roomy)
}

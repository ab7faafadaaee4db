package sim

import (
	"bytes"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/node/replica"
	"github.com/holdfast-io/holdfast/internal/node/storage"
)

// nemesis does something bad now and then, until the healing begins.
func (c *cluster) nemesis() {
	c.after(c.between(100*millisecond, 2*second), func() {
		if c.healing {
			return
		}
		c.somethingBad()
		c.nemesis()
	})
}

func (c *cluster) somethingBad() {
	n := c.nodes[c.rng.IntN(len(c.nodes))]
	switch c.rng.IntN(17) {
	case 0, 1, 2:
		c.crash(n)
	case 3:
		if l := c.leader(); l != nil {
			c.crash(l)
		}
	case 4, 5:
		c.cutPair()
	case 6, 7:
		c.isolate(n)
	case 8, 9:
		c.cutClient()
	case 10:
		c.res.Pauses++
		n.pause(c.between(millisecond, 6*second))
	case 11:
		c.res.Pauses++
		c.clients[c.rng.IntN(len(c.clients))].pause(c.between(millisecond, 6*second))
	case 12:
		c.slowDisk(n)
	case 13:
		c.rareFault(n)
	case 14:
		c.changeMembers()
	case 15:
		if l := c.leader(); l != nil {
			l.input(func() { l.replica.Transfer(l.now(), n.id) })
		}
	case 16:
		c.deafen()
	}
}

func (c *cluster) crash(n *node) {
	if !n.up {
		return
	}
	c.res.Crashes++
	n.crash()
	c.checkIdle(n)
	c.maybeFlip(n)
	c.after(c.between(10*millisecond, 4*second), n.restart)
}

// cutPair cuts one direction between two nodes.
func (c *cluster) cutPair() {
	a, b := c.nodes[c.rng.IntN(len(c.nodes))], c.nodes[c.rng.IntN(len(c.nodes))]
	if a != b {
		c.res.Partitions++
		c.net.sever(simLink{a.id, b.id}, c.between(10*millisecond, 5*second))
	}
}

// deafen cuts the way to the leader, so long that the others may elect another,
// take what it had sent to them, make a snapshot of that and free their logs: the
// old leader never sees what became of its proposals.
func (c *cluster) deafen() {
	l := c.leader()
	if l == nil {
		return
	}
	c.res.Partitions++
	d := c.between(second, 20*second)
	for _, o := range c.nodes {
		if o != l {
			c.net.sever(simLink{o.id, l.id}, d)
		}
	}
	if c.chance(0.3) {
		c.changeMembers()
	}
}

// isolate cuts a node off from the others, and sometimes from the clients.
func (c *cluster) isolate(n *node) {
	c.res.Partitions++
	d := c.between(10*millisecond, 5*second)
	for _, o := range c.nodes {
		if o != n {
			c.net.sever(simLink{n.id, o.id}, d)
			c.net.sever(simLink{o.id, n.id}, d)
		}
	}
	if c.chance(0.3) {
		for _, k := range c.clients {
			c.net.sever(simLink{n.id, k.party()}, d)
			c.net.sever(simLink{k.party(), n.id}, d)
		}
	}
}

// cutClient cuts a client off in one direction or both.
func (c *cluster) cutClient() {
	c.res.Partitions++
	k := c.clients[c.rng.IntN(len(c.clients))]
	d := c.between(10*millisecond, 8*second)
	there, back := c.chance(0.8), c.chance(0.8)
	for _, n := range c.nodes {
		if there {
			c.net.sever(simLink{k.party(), n.id}, d)
		}
		if back {
			c.net.sever(simLink{n.id, k.party()}, d)
		}
	}
}

func (c *cluster) slowDisk(n *node) {
	n.slow = c.between(millisecond, 100*millisecond)
	c.after(c.between(second, 5*second), func() { n.slow = 0 })
}

// rareFault is what happens once a year: all nodes lose power, a disk is full,
// the wall clock is set, or all is lost but a backup.
func (c *cluster) rareFault(n *node) {
	switch c.rng.IntN(8) {
	case 0, 1, 2:
		for _, x := range c.nodes {
			c.crash(x)
		}
	case 3, 4, 5:
		c.res.FullDisks++
		n.full = true
		c.after(c.between(second, 5*second), func() { n.full = false })
	case 6:
		c.stepWall()
	case 7:
		c.restore()
	}
}

// maybeFlip flips a bit of a node that is down, if others can do without it. In
// the very last record of a log a flip cannot be told from a torn write, which
// is the honest limit of the storage; such a flip is taken back.
func (c *cluster) maybeFlip(n *node) {
	often := 0.05
	if c.opts.Operators { // there damage is mended
		often = 0.2
	}
	if !c.chance(often) || c.spare() < 1 {
		return
	}
	files, _ := n.files.List("data")
	if len(files) == 0 {
		return
	}
	file := "data/" + files[c.rng.IntN(len(files))]
	size := n.files.Bytes(file)
	if size == 0 {
		return
	}
	bit := c.rng.IntN(size * 8)
	if n.dropsSilently(file, bit) {
		return
	}
	n.files.Flip(file, bit)
	n.flipped = true
	c.res.Flips++
}

// dropsSilently reports whether a start with this bit flipped would find less than
// there is, and not tell.
func (n *node) dropsSilently(file string, bit int) bool {
	before, err := n.recovered()
	if err != nil {
		return false
	}
	n.files.Flip(file, bit)
	defer n.files.Flip(file, bit)
	after, err := n.recovered()
	return err == nil && after != before
}

// checkIdle: a node that had been idle does not drop its last record silently,
// since its disk has vouched for it.
func (c *cluster) checkIdle(n *node) {
	files, _ := n.files.List("data")
	files = slices.DeleteFunc(files, func(name string) bool { return !strings.HasPrefix(name, "log-") })
	if !n.idle() || len(files) == 0 {
		return
	}
	file := "data/" + files[len(files)-1]
	size := 8 * len(bytes.TrimRight(n.files.Read(file), "\x00"))
	bit := size - 1 - c.rng.IntN(min(size, 8*200))
	if n.dropsSilently(file, bit) {
		c.violate("node %d, idle, loses what it has written by a flipped bit in %s, and does not tell", n.id, file)
	}
}

// recovered is how much a start would find.
func (n *node) recovered() (point, error) {
	s, rec, err := storage.Open(n.files.Clone(), "data", diskOptions(n.cluster, n.id, n.wipes))
	if err != nil {
		return point{}, err
	}
	defer s.Close()
	return point{rec.Last, rec.HardState.Term, rec.HardState.Vote, rec.Snapshot.Index}, nil
}

type point struct{ last, term, vote, snapshot uint64 }

// spare is how many voters the group can lose and still decide. One with files that
// have a flipped bit counts as lost, whether or not that was found yet. Where operators change the members, it is what
// both halves of a change can lose, and nothing as long as nodes that run know of different ones.
func (c *cluster) spare() int {
	l := c.leader()
	if l == nil || c.opts.Operators && c.changing(l) {
		return 0
	}
	conf := l.replica.Status().Members.Conf
	spare := c.spareOf(conf.GetVoters())
	if out := conf.GetVotersOutgoing(); c.opts.Operators && len(out) > 0 {
		spare = min(spare, c.spareOf(out))
	}
	return spare
}

// changing: a change is not complete, or nodes that run, and vote by what the leader or they themselves know, know of
// different members, or would after a crash. A removal that is asked for leaves fewer nodes to lose, from when it is in the log.
func (c *cluster) changing(l *node) bool {
	conf := l.replica.Word().Members.Conf
	return slices.ContainsFunc(c.nodes, func(n *node) bool {
		if !n.up || n.asking {
			return false
		}
		s := n.replica.Status()
		votes := slices.Contains(conf.GetVoters(), n.id) || slices.Contains(s.Members.Conf.GetVoters(), n.id)
		return votes && (s.Changing || s.Members.Conf.String() != conf.String())
	})
}

func (c *cluster) spareOf(voters []uint64) int {
	well := 0
	for _, id := range voters {
		if n := c.node(id); n != nil && !n.gone && !n.flipped && !n.wiped && !n.swapped && !n.behind() {
			well++
		}
	}
	return well - (len(voters)/2 + 1)
}

// changeMembers replaces a node that is lost, or brings in a new one for an old
// one: first as a learner, then as a voter.
func (c *cluster) changeMembers() {
	l := c.leader()
	if l == nil || c.opts.Nodes == 1 {
		return
	}
	conf := l.replica.Status().Members.Conf
	if learners := conf.GetLearners(); len(learners) > 0 {
		c.promote(l, learners[0], conf.GetVoters())
		return
	}
	id := c.nextID
	c.nextID++
	n := c.addNode(id, replica.Joining(c.machine))
	n.start()
	add := replica.Change{Add: []replica.Endpoint{{ID: id, Peer: peersAt(endpoint(id)), Client: endpoint(id)}}}
	c.change(l, add)
}

// promote makes a learner that has caught up a voter, in the place of a lost one
// or of any.
func (c *cluster) promote(l *node, id uint64, voters []uint64) {
	n := c.node(id)
	if n == nil || !n.up || n.gone {
		c.change(l, replica.Change{Remove: []uint64{id}})
		return
	}
	if l.replica.Status().Applied-n.replica.Status().Applied > 50 {
		return
	}
	out := slices.IndexFunc(voters, func(v uint64) bool { return c.node(v) == nil || c.node(v).gone })
	if out < 0 && len(voters) < c.opts.Nodes {
		c.change(l, replica.Change{Promote: []uint64{id}})
		return
	}
	if out < 0 {
		out = c.rng.IntN(len(voters))
	}
	if voters[out] == l.id && c.chance(0.5) {
		return
	}
	c.change(l, replica.Change{Promote: []uint64{id}, Remove: []uint64{voters[out]}})
}

func (c *cluster) change(l *node, ch replica.Change) {
	id := c.newCaller()
	c.asks[id] = func(a replica.Answer) {
		if a.Outcome == replica.NotDone {
			c.check.notAdded(ch)
		}
	}
	l.input(func() { l.replica.ChangeMembers(l.now(), id, ch) })
	c.res.Changes++
}

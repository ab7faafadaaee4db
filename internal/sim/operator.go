package sim

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// operate has an operator do something now and then that may make no sense.
func (c *cluster) operate() {
	c.after(c.between(500*millisecond, 4*second), func() {
		if c.healing {
			return
		}
		if l := c.leader(); l != nil {
			c.meddle(l)
		}
		c.operate()
	})
}

// meddle does something to a disk, or gives a command.
func (c *cluster) meddle(l *node) {
	c.copyDisk()
	switch p := c.rng.IntN(100); {
	case p < 15:
		c.loseDisk(l)
	case p < 18:
		c.second()
	case p < 22:
		c.swapDisks()
	case p < 25:
		c.swapAddresses()
	case p < 35:
		c.putBack(l)
	default:
		c.command(l)
	}
}

// command gives any member command, for any number and at any time. What the group refuses has no
// effect; what it takes must not end it, even if a disk was lost just before.
func (c *cluster) command(l *node) {
	c.res.Commands++
	switch c.rng.IntN(10) {
	case 0:
		to := c.anyNumber(l)
		l.input(func() { l.replica.Transfer(l.now(), to) })
	case 1:
		c.order(l, replica.Change{Check: true})
	case 2:
		c.order(l, replica.Change{Unfreeze: true, Ruler: c.anyNumber(l)})
	case 3:
		c.replace(l, c.anyNumber(l))
	default:
		c.order(l, c.anyChange(l))
	}
}

func (c *cluster) order(l *node, ch replica.Change) {
	l.input(func() { l.replica.ChangeMembers(l.now(), c.newCaller(), ch) })
}

// replace has the group give the place of any number to another. The node that had it
// will never be heard again: its operator empties its disk, as the group says.
func (c *cluster) replace(l *node, id uint64) {
	caller, n := c.newCaller(), c.node(id)
	c.asks[caller] = func(a replica.Answer) {
		if a.Outcome != replica.Done {
			return
		}
		c.res.Ordered++
		c.nextID = max(c.nextID, binary.LittleEndian.Uint64(a.Data)+1)
		c.after(c.between(0, 5*second), func() { c.empty(n, id) })
	}
	l.input(func() {
		l.replica.ChangeMembers(l.now(), caller, replica.Change{Replace: []replica.Endpoint{{ID: id}}})
	})
}

// empty takes the disk of the node that had a number, which is not that of another by mistake.
func (c *cluster) empty(n *node, id uint64) {
	switch {
	case n == nil || n.id != id || n.gone:
	case n.swapped:
		c.after(second, func() { c.empty(n, id) })
	default:
		c.wipe(n)
	}
}

// anyChange is a change of one or two nodes, which may be members, removed or
// unheard of. Those that are added were never started.
func (c *cluster) anyChange(l *node) (ch replica.Change) {
	for range 1 + c.rng.IntN(2) {
		id := c.anyNumber(l)
		switch c.rng.IntN(4) {
		case 0:
			ch.Add = append(ch.Add, replica.Endpoint{ID: id, Peer: peersAt(endpoint(id)), Client: endpoint(id)})
		case 1:
			ch.Promote = append(ch.Promote, id)
		case 2:
			ch.Remove = append(ch.Remove, id)
		case 3:
			members := l.replica.Status().Members
			addr := cmp.Or(members.Address(id), endpoint(id))
			if n := c.node(id); n != nil && members.Address(id) == "" {
				addr = n.addr
			}
			ch.Update = append(ch.Update, replica.Endpoint{ID: id, Peer: peersAt(addr), Client: addr})
		}
	}
	return ch
}

func (c *cluster) anyNumber(l *node) uint64 {
	conf := l.replica.Status().Members.Conf
	if learners := conf.GetLearners(); len(learners) > 0 && c.chance(0.3) {
		return learners[c.rng.IntN(len(learners))]
	}
	if c.chance(0.2) {
		c.nextID++
		return c.nextID - 1
	}
	return c.rng.Uint64N(c.nextID)
}

// roll is every node that was ever a member of the group, as the newest membership has it.
type roll struct {
	cluster, index uint64
	now, left      map[uint64]bool
}

// given: a number that has left the group never comes back.
func (r *roll) given(n *node) {
	s := n.replica.Status()
	if r.cluster != n.cluster {
		*r = roll{cluster: n.cluster, now: map[uint64]bool{}, left: map[uint64]bool{}}
	}
	if s.Applied <= r.index {
		return
	}
	r.index = s.Applied
	conf := s.Members.Conf
	now := slices.Concat(conf.GetVoters(), conf.GetVotersOutgoing(), conf.GetLearners(), conf.GetLearnersNext())
	for id := range r.now {
		r.left[id] = r.left[id] || !slices.Contains(now, id)
	}
	clear(r.now)
	for _, id := range now {
		if r.now[id] = true; r.left[id] {
			n.c.violate("number %d was removed, and is a member again", id)
		}
	}
}

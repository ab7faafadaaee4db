package sim

import (
	"cmp"
	"slices"

	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// operate has an operator give a command now and then that may make no sense: any
// member command, for any number. What the group refuses has no effect; what it
// takes must not end it.
func (c *cluster) operate() {
	c.after(c.between(500*millisecond, 4*second), func() {
		if c.healing {
			return
		}
		if l := c.leader(); l != nil && c.chance(0.15) {
			c.loseDisk(l)
		} else if l != nil {
			c.res.Commands++
			l.input(func() { l.replica.ChangeMembers(l.now(), c.newCaller(), c.anyChange(l)) })
		}
		c.operate()
	})
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

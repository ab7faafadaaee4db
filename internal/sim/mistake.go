package sim

import (
	"fmt"

	"github.com/holdfast-io/holdfast/internal/node/replica"
)

// mistaken: the node runs under a number that is another's.
func (n *node) mistaken() bool { return n.flag != 0 && n.id == n.flag }

// mistake takes the disk of a node away and starts it by the command line of another, until
// its operator sees that. With the members of the founding, or with the word of its
// operator, it says that it is where that one is.
func (c *cluster) mistake(n, other *node) {
	c.res.Mistakes++
	c.wipe(n)
	n.id, n.flag = other.home, other.home
	if n.founders != nil || c.chance(0.5) {
		n.claim = other.addr
	}
	c.after(c.between(2*second, 12*second), func() {
		if n.mistaken() && !n.gone {
			c.wipe(n)
		}
	})
}

// second starts another node under a number that is taken, on an empty disk, while the one
// that has it runs, too.
func (c *cluster) second() {
	other := c.nodes[c.rng.IntN(len(c.nodes))]
	if c.opts.Nodes == 1 || other.mistaken() {
		return
	}
	c.res.Mistakes++
	n := c.addNode(other.id, replica.Joining(c.machine))
	n.flag, n.addr, n.wiped, n.wipes = n.id, fmt.Sprintf("second-%d", c.res.Mistakes), true, c.newDisk()
	if c.chance(0.5) {
		n.founders, n.claim = other.founders, other.addr
	}
	n.start()
	c.after(c.between(2*second, 15*second), n.retire)
}

// retire stops a node for good that should not have been started.
func (n *node) retire() {
	if n.crash(); n.mistaken() {
		n.gone = true
	}
}

// correct ends all mistakes.
func (c *cluster) correct() {
	for _, n := range c.nodes {
		switch {
		case !n.mistaken() || n.gone:
		case n.flag == n.home:
			n.retire()
		default:
			c.wipe(n)
		}
	}
}

// sits: what is at an address is this very node.
func (c *cluster) sits(n *node, addr string) bool {
	for _, o := range c.nodes {
		if o.up && o.addr == addr && o.dir == n.dir {
			return true
		}
	}
	return false
}

// visit has a node that waits for its state, and knows nobody's address by it, come to the
// others by itself: it may have been refused for good, or not be looked for at all.
func (n *node) visit() {
	if n.dir == 0 || len(n.replica.Word().Members.Conf.GetVoters()) > 0 {
		return
	}
	life := n.life
	n.c.after(n.c.between(300*millisecond, 2*second), func() {
		if n.life != life || !n.up {
			return
		}
		if o := n.c.nodes[n.c.rng.IntN(len(n.c.nodes))]; o != n && !n.asking && !n.paused {
			h := n.greet(o.id)
			n.c.net.once(n.id, o.id, func() { o.hears(h) })
		}
		n.visit()
	})
}

// dials: the node has a connection of its own to the one that says h, which knows it by its
// directory.
func (n *node) dials(h hello) bool {
	return h.known != 0 && h.known == n.dir && n.address(h.id) == h.from.addr
}

// alone: a node without an address for others has none beside it.
func (k *checker) alone(n *node) {
	if all := n.replica.Status().Members.Endpoints; k.c.solo() && len(all) > 1 {
		k.c.violate("node %d, which no other could find, has others in its group: %+v", n.id, all)
	}
}

// solo: the one node of the group has no address for others.
func (c *cluster) solo() bool { return c.opts.Operators && c.opts.Nodes == 1 && c.opts.Seed%2 == 0 }

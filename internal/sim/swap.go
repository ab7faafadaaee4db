package sim

// twoWell are two nodes that run and that no mistake has befallen yet; nil: there are none.
func (c *cluster) twoWell() (a, b *node) {
	a, b = c.nodes[c.rng.IntN(len(c.nodes))], c.nodes[c.rng.IntN(len(c.nodes))]
	for _, n := range []*node{a, b} {
		if !n.up || n.asking || n.wiped || n.flipped || n.swapped || n.moved() || n.mistaken() {
			return nil, nil
		}
	}
	if a == b {
		return nil, nil
	}
	return a, b
}

// swapDisks starts two nodes with the disks exchanged, each by its own command line: neither
// may start. Then they get their own back.
func (c *cluster) swapDisks() {
	a, b := c.twoWell()
	if a == nil {
		return
	}
	c.exchange(a, b, true)
	c.after(c.between(second, 5*second), func() {
		if !a.gone && !b.gone {
			c.exchange(a, b, false)
		}
	})
}

func (c *cluster) exchange(a, b *node, swapped bool) {
	for _, n := range []*node{a, b} {
		n.crash()
		n.swapped = swapped
		c.after(c.between(10*millisecond, second), n.restart)
	}
	a.files, b.files = b.files, a.files
}

// swapAddresses starts two nodes with the disks exchanged, by command lines without a number:
// each disk says which node it is, and that is at the address of the other now.
func (c *cluster) swapAddresses() {
	a, b := c.twoWell()
	if a == nil {
		return
	}
	c.exchangeAddresses(a, b)
	c.after(c.between(second, 10*second), func() {
		if !a.gone && !b.gone {
			c.exchangeAddresses(a, b)
		}
	})
}

func (c *cluster) exchangeAddresses(a, b *node) {
	for _, n := range []*node{a, b} {
		n.crash()
		c.after(c.between(10*millisecond, second), n.restart)
	}
	a.addr, b.addr = b.addr, a.addr
}

// moved: the node is at the address of another.
func (n *node) moved() bool { return n.addr != endpoint(n.home) }

package core

// A claim on several names keeps one place by arrival in all their queues, but
// stands only in the queue of the first name that it has not reserved: so it
// blocks a name only when it has all names before it, and claims that take in name
// order cannot deadlock.

// reserve sets the name of p, the head of its queue, aside for its claim and
// grants that when it was the last.
func (m *Machine) reserve(p *part) {
	c := p.c
	if c.many == nil {
		m.grant(c, VerbAcquired)
		return
	}
	m.touchClaim(c)
	p.unlist()
	m.list(p, inSet)
	if c.many.at++; c.many.at == len(c.many.parts) {
		m.grant(c, VerbAcquired)
		return
	}
	m.move(&c.many.parts[c.many.at], inQueue)
}

func (m *Machine) move(p *part, to queuePlace) {
	p.unlist()
	m.list(p, to)
	m.markDirty(p.r)
}

// giveWay puts the claim of p back to its place in the queue of p.
func (m *Machine) giveWay(p *part) {
	c := p.c
	m.touchClaim(c)
	for i := c.many.at; &c.many.parts[i] != p; i-- {
		m.move(&c.many.parts[i], inLater)
		c.many.at = i - 1
	}
	m.move(p, inQueue)
}

package core

// partList is a doubly linked list of parts.
type partList struct {
	head, tail *part
	n          int
}

func (l *partList) push(p *part) { l.after(l.tail, p) }

// after puts p behind at; nil: at the head.
func (l *partList) after(at, p *part) {
	p.prev = at
	if at == nil {
		p.next, l.head = l.head, p
	} else {
		p.next, at.next = at.next, p
	}
	if p.next == nil {
		l.tail = p
	} else {
		p.next.prev = p
	}
	l.n++
}

func (l *partList) remove(p *part) {
	if p.prev == nil {
		l.head = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		l.tail = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
	l.n--
}

// waitList is a list in order of arrival.
type waitList struct {
	partList
	near *part // where one was last put before others
}

// insert puts p at its place by arrival: behind all, or else near the last one that
// had a place before others, because those come in order.
func (l *waitList) insert(p *part) {
	at := l.tail
	if at != nil && at.c.arrival > p.c.arrival && l.near != nil {
		at = l.near
	}
	for at != nil && at.c.arrival > p.c.arrival {
		at = at.prev
	}
	for at != nil && at.next != nil && at.next.c.arrival < p.c.arrival {
		at = at.next
	}
	l.after(at, p)
	if p.next != nil {
		l.near = p
	}
}

func (l *waitList) remove(p *part) {
	if l.near == p {
		l.near = p.prev
	}
	l.partList.remove(p)
}

// spareQueues is how many queues without a waiter are kept for the next.
const spareQueues = 1024

// queueOf returns the queue of r, made if need be.
func (m *Machine) queueOf(r *resource) *queue {
	if r.queue == nil {
		if k := len(m.queues); k > 0 {
			r.queue, m.queues = m.queues[k-1], m.queues[:k-1]
		} else {
			r.queue = &queue{}
		}
	}
	return r.queue
}

// list enqueues p, a part of a claim that waits, where at says.
func (m *Machine) list(p *part, at queuePlace) {
	p.place = at
	l := m.queueOf(p.r)
	l.weigh(p, 1)
	switch at {
	case inQueue:
		l.order.insert(p)
	case inLater:
		l.later.insert(p)
	case inSet:
		l.set.insert(p)
		l.reserved += p.takes()
	case inUpgrade:
		l.upgrade = p.c
	}
}

// weigh counts p, or does so no more.
func (l *queue) weigh(p *part, by int) {
	if p.weight == 1 {
		return
	}
	if l.weights == nil {
		l.weights = map[int64]int{}
	}
	if l.weights[p.weight] += by; l.weights[p.weight] == 0 {
		delete(l.weights, p.weight)
	}
	if len(l.weights) == 0 {
		l.weights = nil
	}
}

// above is how many wait for more than limit.
func (l *queue) above(limit int64) (n int) {
	for weight, count := range l.weights {
		if weight > limit {
			n += count
		}
	}
	return n
}

// unlist takes a waiting part from where it is listed.
func (p *part) unlist() {
	l := p.r.queue
	if p.place == nowhere || p.place == inHolders {
		return
	}
	l.weigh(p, -1)
	switch p.place {
	case inQueue:
		l.order.remove(p)
	case inLater:
		l.later.remove(p)
	case inSet:
		l.set.remove(p)
		l.reserved -= p.takes()
	case inUpgrade:
		l.upgrade = nil
	}
	p.place = nowhere
}

// unqueue takes all parts of a waiting claim from their queues; the waiters behind it
// may now be served.
func (m *Machine) unqueue(c *claim) {
	parts := c.parts()
	for i := range parts {
		parts[i].unlist()
		m.changed(parts[i].r)
	}
}

// changed has r served before the command or pass is over, or lets it rest if
// nobody waits for it.
func (m *Machine) changed(r *resource) {
	m.trim(r)
	if r.queue != nil {
		m.markDirty(r)
		return
	}
	if r.holders.n == 0 && r.kind.transient() && !r.idle {
		m.rest(r)
		if m.frozen && m.version >= 4 {
			m.cleaned(r) // else it could be taken up again as one to serve; a snapshot knows nothing of it
		}
	}
}

// trim drops the queue of r if nobody waits any more.
func (m *Machine) trim(r *resource) {
	if l := r.queue; l != nil && l.waiting() == 0 {
		r.queue = nil
		if len(m.queues) < spareQueues {
			m.queues = append(m.queues, l)
		}
	}
}

// transient kinds exist only as long as somebody holds or waits.
func (k Kind) transient() bool { return k == Mutex || k == RWMutex || k == Election }

// maxBehind is how many of those behind it a claim looks at to tell its place.
const maxBehind = 1000

// position is the place of a waiting claim in the queue that it stands in, 1 being
// next. Of one that more than maxBehind stand behind, which only those find out that
// ask again, it is the place that it had if there were no more.
func (m *Machine) position(c *claim) uint64 {
	p := c.standing()
	if p.place == inUpgrade {
		return 1
	}
	n := uint64(p.r.queue.order.n)
	for q, behind := p.next, 0; q != nil && (behind < maxBehind || m.early); q, behind = q.next, behind+1 {
		n--
	}
	if p.r.queue.upgrade != nil {
		n++
	}
	return n
}

// standing is the part at which a waiting claim waits.
func (c *claim) standing() *part {
	if c.many == nil {
		return &c.one[0]
	}
	return &c.many.parts[c.many.at]
}

// markDirty notes that r is to be served. Names are served in their order, so that
// equal machines serve in the same.
func (m *Machine) markDirty(r *resource) {
	if !r.dirty() {
		m.touchResource(r)
		m.dirty.set(r, 0)
	}
}

// cleaned notes that r is not to be served any more.
func (m *Machine) cleaned(r *resource) {
	m.touchResource(r)
	m.dirty.remove(r)
}

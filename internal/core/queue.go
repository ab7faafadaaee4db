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

// insert puts p at its place by arrival.
func (l *partList) insert(p *part) {
	at := l.tail
	for at != nil && at.c.arrival > p.c.arrival {
		at = at.prev
	}
	l.after(at, p)
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

// spareLines is how many lines that nobody waits in are kept for the next.
const spareLines = 1024

// lineOf returns what waits for r, made if need be.
func (m *Machine) lineOf(r *resource) *line {
	if r.line == nil {
		if k := len(m.lines); k > 0 {
			r.line, m.lines = m.lines[k-1], m.lines[:k-1]
		} else {
			r.line = &line{}
		}
	}
	return r.line
}

// list puts p where at says.
func (m *Machine) list(p *part, at place) {
	p.place = at
	l := m.lineOf(p.r)
	switch at {
	case inQueue:
		l.enqueue(p)
	case inLater:
		l.later.push(p)
	case inSet:
		l.set.insert(p)
		l.reserved += p.takes()
	case inUpgrade:
		l.upgrade = p.c
	}
}

// enqueue puts p into the queue at its place by arrival: behind all, or else near the
// last one that had a place before others, because those come in order.
func (l *line) enqueue(p *part) {
	at := l.queue.tail
	if at != nil && at.c.arrival > p.c.arrival && l.near != nil {
		at = l.near
	}
	for at != nil && at.c.arrival > p.c.arrival {
		at = at.prev
	}
	for at != nil && at.next != nil && at.next.c.arrival < p.c.arrival {
		at = at.next
	}
	l.queue.after(at, p)
	if p.next != nil {
		l.near = p
	}
}

// unlist takes a waiting part from where it is listed.
func (p *part) unlist() {
	l := p.r.line
	switch p.place {
	case inQueue:
		if l.near == p {
			l.near = p.prev
		}
		l.queue.remove(p)
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

// unqueue takes all parts of a waiting claim from their lines; who is behind it
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
	if r.line != nil {
		m.soil(r)
		return
	}
	if r.holders.n == 0 && r.kind.transient() && !r.idle {
		m.rest(r)
	}
}

// trim drops the line of r if nobody waits any more.
func (m *Machine) trim(r *resource) {
	if l := r.line; l != nil && l.waiting() == 0 {
		r.line = nil
		if len(m.lines) < spareLines {
			m.lines = append(m.lines, l)
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
	n := uint64(p.r.line.queue.n)
	for q, behind := p.next, 0; q != nil && (behind < maxBehind || m.early); q, behind = q.next, behind+1 {
		n--
	}
	if p.r.line.upgrade != nil {
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

// soil notes that r is to be served. Names are served in their order, so that
// equal machines serve in the same.
func (m *Machine) soil(r *resource) {
	if r.dirty {
		return
	}
	m.touchResource(r)
	r.dirty = true
	m.dirty = append(m.dirty, r)
	i := len(m.dirty) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !r.comesBefore(m.dirty[up]) {
			break
		}
		m.dirty[i] = m.dirty[up]
		i = up
	}
	m.dirty[i] = r
}

func (r *resource) comesBefore(o *resource) bool {
	if r.ns != o.ns {
		return r.ns.name < o.ns.name
	}
	return r.name < o.name
}

// cleaned takes the first to be served from the heap.
func (m *Machine) cleaned() {
	m.touchResource(m.dirty[0])
	m.dirty[0].dirty = false
	last := len(m.dirty) - 1
	r := m.dirty[last]
	m.dirty[last] = nil
	m.dirty = m.dirty[:last]
	if last == 0 {
		return
	}
	i := 0
	for {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && m.dirty[c+1].comesBefore(m.dirty[c]) {
			c++
		}
		if !m.dirty[c].comesBefore(r) {
			break
		}
		m.dirty[i] = m.dirty[c]
		i = c
	}
	m.dirty[i] = r
}

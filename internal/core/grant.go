package core

import "math"

// settle grants everything that can be granted, name by name in their order, as far
// as the steps of this entry go; the next goes on with the rest.
func (m *Machine) settle() {
	if m.frozen {
		return
	}
	for m.dirty.len() > 0 && (m.serves > 0 || m.early) {
		if _, r, _ := m.dirty.top(); m.serve(r) {
			m.serves--
		} else {
			m.cleaned(r)
		}
	}
}

// serve does one thing at r: it takes a reservation back that has no room any more,
// drops a dead waiter, grants an upgrade, opens a barrier, or reserves r for the claim
// at the head of its queue.
func (m *Machine) serve(r *resource) bool {
	l := r.queue
	if l == nil {
		return false
	}
	if l.upgrade != nil {
		return m.serveUpgrade(r, l.upgrade)
	}
	if l.set.tail != nil && r.free() < 0 {
		m.giveWay(l.set.tail)
		return true
	}
	p := l.order.head
	switch {
	case p == nil:
		return false
	case p.c.s.life == ending:
		m.drop(p.c, CodeNoSession)
		return true
	case r.kind == Barrier:
		return m.serveBarrier(r)
	case r.kind == Latch && r.number != 0:
		return false
	case p.takes() > r.free():
		return m.reclaimFor(p)
	}
	m.reserve(p)
	return true
}

// free is the room beside all that hold or have reserved.
func (r *resource) free() int64 {
	free := r.limit - r.used
	if r.queue != nil {
		free -= r.queue.reserved
	}
	return free
}

// grant makes c a hold with a token of its own.
func (m *Machine) grant(c *claim, v Verb) {
	if c.rare != nil && c.rare.maxHold > 0 {
		m.grantUntil(c, v, m.now+c.rare.maxHold, endMaxHold)
	} else {
		m.grantUntil(c, v, 0, noDeadline)
	}
}

func (m *Machine) grantUntil(c *claim, v Verb, at int64, why reason) {
	m.touchClaim(c)
	c.token = m.next()
	c.state, c.since, c.modified = granted, m.now, c.token
	c.version++
	if c.created == 0 {
		c.created = c.token
	}
	c.s.has.held++
	m.setDeadline(c, at, why)
	m.hold(c)
	m.tell(c, v, CodeOK)
	if c != m.current {
		m.push(c, ClaimGranted, CodeOK)
	}
}

// hold gives c its room.
func (m *Machine) hold(c *claim) {
	parts := c.parts()
	for i := range parts {
		p := &parts[i]
		m.touchResource(p.r)
		p.unlist()
		p.r.addHolder(p)
		m.stamp(p.r)
		m.trim(p.r)
		if c.s.life == lapsed {
			m.offerPart(p) // the waiter behind may take it at once
		}
	}
}

// unhold takes the room from c; its waiters are served before the command
// or pass is over.
func (m *Machine) unhold(c *claim) {
	m.touchClaim(c)
	parts := c.parts()
	for i := range parts {
		p := &parts[i]
		m.touchResource(p.r)
		p.r.dropHolder(p)
		m.stamp(p.r)
		m.changed(p.r)
	}
}

// setDeadline gives c its one deadline; 0: none.
func (m *Machine) setDeadline(c *claim, at int64, why reason) {
	c.deadline, c.reason = at, why
	if at == 0 {
		m.claimDue.remove(c)
	} else {
		m.claimDue.set(c, at)
	}
}

// drop ends a wait without a grant.
func (m *Machine) drop(c *claim, why Code) {
	m.touchClaim(c)
	m.tell(c, VerbDenied, why)
	m.unqueue(c)
	if c.twin != nil {
		m.touchClaim(c.twin)
		c.twin.twin = nil
	}
	m.retire(c, why)
}

// deny is drop, and its session is told.
func (m *Machine) deny(c *claim, why Code) {
	m.push(c, ClaimGone, why)
	m.drop(c, why)
}

// leave takes a hold from its session. Its names stay taken, nobody's, while
// min-hold or, after a loss, delay lasts.
func (m *Machine) leave(c *claim, gone Code, lost bool) {
	m.endTwin(c)
	until := int64(0)
	if c.s != nil && c.rare != nil {
		if c.rare.minHold > 0 {
			until = c.since + c.rare.minHold
		}
		if lost && c.rare.delay > 0 {
			until = max(until, m.now+c.rare.delay)
		}
	}
	if until <= m.now {
		m.unhold(c)
		m.retire(c, gone)
		return
	}
	m.detach(c, gone)
	m.setDeadline(c, until, endLinger)
}

// detach parts c from its session; to that it is gone.
func (m *Machine) detach(c *claim, gone Code) {
	m.touchClaim(c)
	s := c.s
	m.unlink(c)
	if s.life != ending && c.seq >= s.mark {
		d := m.newDone(s, c.seq, gone)
		d.gone, d.token = true, c.token
	}
	c.s, c.state = nil, granted
	parts := c.parts()
	for i := range parts {
		p := &parts[i]
		p.r.orphaned(p)
		if p.r.queue != nil && m.version >= 3 {
			m.markDirty(p.r) // with what goes by itself stale claims beside it may do for the first waiter
		}
	}
}

// busy is the first of the wants that a try could not have at once: in this entry,
// too, which has only so many steps left to make room for it.
func (m *Machine) busy(s *session, wants []Want) *Want {
	steps := 0
	for i := range wants {
		taken, n := m.taken(s, m.found[i], &wants[i])
		steps += n
		if taken || n > 0 && !m.early && (steps+len(wants) > m.serves || m.dirty.len() > 0) {
			return &wants[i]
		}
	}
	return nil
}

// taken says whether r cannot be had at once, or how many others have to go before.
func (m *Machine) taken(s *session, r *resource, w *Want) (_ bool, steps int) {
	switch {
	case r == nil:
		return w.Kind == Latch || w.Kind == Barrier && w.Limit > 1, 0
	case r.kind == Latch:
		return r.number != 0, 0
	case r.queue != nil:
		first, dead := r.queue.firstLive(m.early)
		if r.queue.upgrade != nil || first != nil {
			return true, 0
		}
		steps = dead + 1
	}
	if r.kind == Barrier {
		return r.limit > 1, steps
	}
	takes := r.takes(w.Mode, max(1, w.Weight))
	if takes <= r.free() {
		return false, steps
	}
	most := max(m.serves, 0) // a try for which more have to go is refused, whether or not they would do
	if m.early {
		most = math.MaxInt
	}
	n := len(m.victims(r, s, takes-r.free(), true, most))
	return n == 0, steps + n
}

// maxEnded is how many waiters of ended sessions are looked past. A queue that begins
// with more is taken until they are gone, as they soon are.
const maxEnded = 1000

// firstLive is the first in the queue with a session that lives, and how many are before.
func (l *queue) firstLive(anyway bool) (p *part, n int) {
	p = l.order.head
	for p != nil && p.c.s.life == ending && (n < maxEnded || anyway) {
		p = p.next
		n++
	}
	return p, n
}

// maxHolders is how many holders a refusal lists.
const maxHolders = 16

// held refuses a try and tells the holders in the way.
func (m *Machine) held(s *session, c *Command, w *Want, r *Result) {
	r.Code = CodeHeld
	m.tellTry(s, c, w)
	res := s.ns.lookup(w.Name)
	if res == nil {
		return
	}
	for p := res.holders.head; p != nil && len(r.Holders) < maxHolders; p = p.next {
		r.Holders = append(r.Holders, p.holder())
	}
	if res.queue != nil {
		r.Waiting = m.waiters(res.queue)
	}
}

// waiters is how many stand in the queue, and before it. Those with a session that has
// ended count until they are gone: to leave them out is to look at all.
func (m *Machine) waiters(l *queue) uint64 {
	n := uint64(l.order.n)
	for p := l.order.head; p != nil && m.early; p = p.next {
		if p.c.s.life == ending {
			n--
		}
	}
	if l.upgrade != nil {
		n++
	}
	return n
}

func (p *part) holder() Holder {
	c := p.c
	h := Holder{Mode: p.mode, Weight: p.weight, Token: c.token, Since: c.since, Deadline: c.deadline, Revoked: c.state == revoked}
	if s := c.s; s != nil {
		h.Session, h.Owner, h.Meta = s.id, c.owner(), s.meta
		if h.Deadline == 0 || h.Deadline > s.deadline {
			h.Deadline = s.deadline
		}
	}
	return h
}

package core

import (
	"math"
	"slices"
)

// job is a session for which there is work; another order means that it was
// given other work since.
type job struct {
	s     *session
	order uint64
}

// assign gives s work, which is done as far as the budget of each entry goes.
func (m *Machine) assign(s *session, w work) {
	m.touchSession(s)
	s.work, s.order = w, m.arrival()
	m.backlog = append(m.backlog, job{s, s.order})
}

// drain does the work of sessions in the order in which it came up, until the
// budget is used up.
func (m *Machine) drain() {
	m.expectEvents()
	for m.behind < len(m.backlog) {
		j := m.backlog[m.behind]
		if j.s.order != j.order || j.s.work == noWork {
			m.behind++
		} else if !m.step(j.s) {
			return
		}
	}
	m.backlog, m.behind = m.backlog[:0], 0
}

// step does the next piece of work for s; false: the budget is used up.
func (m *Machine) step(s *session) bool {
	switch s.work {
	case freeing:
		return m.free(s)
	case yielding:
		return m.offer(s)
	}
	m.touchSession(s)
	c := s.has.at()
	if c == nil {
		s.work = noWork
		if s.revoked && s.has.holds() == 0 {
			m.beginEnd(s, VerbEnded)
		}
		return true
	}
	if c.state == over { // under a granted upgrade, with which it ends
		s.has.cursor = c.next
		return true
	}
	if m.budget <= 0 {
		return false
	}
	m.budget--
	s.has.cursor = c.next
	if s.work == revoking {
		m.revokeOne(c, s.atOnce)
	} else {
		m.tellLate(c)
	}
	return true
}

// free ends one of the claims or keys of a session that ends, and the session itself
// when it has nothing left.
func (m *Machine) free(s *session) bool {
	switch c := s.has.head(); {
	case c != nil && c.state == over:
		m.endTwin(c.twin)
	case c == nil && s.has.boundKeys() == nil:
		m.vanish(s)
	case m.budget <= 0:
		return false
	case c != nil:
		m.budget--
		m.freeClaim(c)
	default:
		m.budget--
		m.next()
		m.dropKey(s.has.keys.least(), CodeNoSession)
	}
	return true
}

// freeClaim ends a claim because its session has ended.
func (m *Machine) freeClaim(c *claim) {
	switch {
	case c.state == waiting:
		m.drop(c, CodeNoSession)
	case c.s.asked:
		m.next()
		m.tell(c, VerbReleased, CodeOK)
		m.leave(c, CodeLost, false)
	default:
		if !c.s.told {
			m.tell(c, VerbStale, CodeOK)
		}
		m.next()
		m.tell(c, VerbExpired, CodeNoSession)
		m.leave(c, CodeNoSession, true)
	}
}

// tellLate tells that the holder of c is late; a late holder waits for nothing.
func (m *Machine) tellLate(c *claim) {
	switch c.state {
	case waiting:
		m.deny(c, CodeNoSession)
	case granted, revoked:
		m.tell(c, VerbStale, CodeOK)
	}
}

// offer has names that s holds served: their waiters may take them now.
func (m *Machine) offer(s *session) bool {
	m.touchSession(s)
	c := s.has.at()
	if c == nil {
		s.work = noWork
		return true
	}
	if m.walks <= 0 {
		return false
	}
	m.walks--
	s.has.cursor = c.next
	m.offerClaim(c)
	return true
}

func (m *Machine) offerClaim(c *claim) {
	parts := c.parts()
	for i := range parts {
		if parts[i].place == inHolders {
			m.offerPart(&parts[i])
		}
	}
}

// offerPart lets others take what p holds, if its session is so late.
func (m *Machine) offerPart(p *part) {
	if !p.reclaimable(nil) {
		return
	}
	p.r.nowLate(p)
	if p.r.queue != nil {
		m.markDirty(p.r)
	}
}

// pass ends what is past its deadline, oldest first and within the budget, and
// only then grants what that frees: nothing is granted to a session that is to end too.
func (m *Machine) pass() {
	m.drain()
	for m.behind == len(m.backlog) && m.budget > 0 && m.endFirst() {
		m.drain()
	}
	m.settle()
	m.sweep()
	m.dropKeys()
}

// endFirst ends the first of what is due. At the same time sessions come first,
// then claims, then keys.
func (m *Machine) endFirst() bool {
	const never = math.MaxInt64
	at, s, ok := m.sessionDue.top()
	if !ok {
		at = never
	}
	claimAt, c, ok := m.claimDue.top()
	if !ok {
		claimAt = never
	}
	keyAt, k, ok := m.keyDue.top()
	if !ok {
		keyAt = never
	}
	switch first := min(at, claimAt, keyAt); {
	case first > m.now:
		return false
	case at == first:
		m.sessionDue.remove(s)
		m.endSession(s)
	case claimAt == first:
		m.endClaim(c)
	default:
		m.next()
		m.dropKey(k, CodeTimeout)
	}
	m.budget--
	return true
}

// endSession ends a session past its deadline, or makes it stale if its policy
// keeps what it holds.
func (m *Machine) endSession(s *session) {
	m.touchSession(s)
	s.due = 0
	switch keeps := s.policy != AtDeadline && !s.revoked && s.has.holds() > 0; {
	case !keeps:
		m.beginEnd(s, VerbExpired)
	case s.life == alive:
		m.turnStale(s)
	case s.life == stale && s.policy == OnNextAcquire:
		s.life = lapsed
		s.has.point(s.has.head())
		m.assign(s, yielding)
	}
}

func (m *Machine) turnStale(s *session) {
	s.life = stale
	s.told = true
	s.has.point(s.has.head())
	m.assign(s, telling)
	if s.policy == OnNextAcquire {
		s.due = s.deadline + s.grace
		m.sessionDue.set(s, s.due)
	}
}

// emptied lets a session end in a while that only its claims kept.
func (m *Machine) emptied(s *session) {
	kept := s.life == lapsed || s.life == stale && s.policy == Never
	if kept && s.heapPos == 0 {
		m.touchSession(s)
		s.due = m.now + m.cfg.EndedFor
		m.sessionDue.set(s, s.due)
	}
}

// endClaim ends a claim by its own deadline.
func (m *Machine) endClaim(c *claim) {
	why := CodeOK
	switch c.reason {
	case endWait:
		m.deny(c, CodeTimeout)
		return
	case endMaxHold:
		why = CodeMaxHold
	case endRevoked:
		why = CodeRevoked
	}
	m.next()
	m.tell(c, VerbExpired, why)
	m.push(c, ClaimGone, why)
	m.leave(c, why, c.s != nil)
}

// Behind reports whether a rest of ends remains, with which every entry goes on before
// anything else is done, up to its budget: each of them takes long.
func (m *Machine) Behind() bool { return len(m.backlog) > 0 }

// expectEvents makes room for what the next of the sessions that end will tell: to grow by
// and by would copy it several times.
func (m *Machine) expectEvents() {
	if m.behind == len(m.backlog) {
		return
	}
	s := m.backlog[m.behind].s
	if keys := s.has.boundKeys(); s.work == freeing && keys != nil {
		m.out.Events = slices.Grow(m.out.Events, min(keys.n, max(m.budget, 0))) // an end takes from a budget that is used up, too
	}
}

// Due says when the next entry has something to end, in cluster time: at once
// (or earlier) while a rest remains, for which bare entries must go on.
func (m *Machine) Due() (at int64, ok bool) {
	if len(m.backlog) > 0 || m.dirty.len() > 0 && !m.frozen {
		return m.now, true
	}
	at = math.MaxInt64
	if t, _, ok := m.sessionDue.top(); ok {
		at = t
	}
	if t, _, ok := m.claimDue.top(); ok {
		at = min(at, t)
	}
	if t, _, ok := m.keyDue.top(); ok {
		at = min(at, t)
	}
	at = min(at, m.keysDue())
	if at == math.MaxInt64 {
		return 0, false
	}
	return at, true
}

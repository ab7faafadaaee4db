package core

import "math"

// reclaimable says whether p may be taken for a claim of s: its session is past
// its deadline and its grace, and lets others take, whether or not it is revoked. A
// session with very many claims offers them one after the other.
func (p *part) reclaimable(s *session) bool {
	o := p.c.s
	return o != nil && o != s && o.life == lapsed && o.policy == OnNextAcquire && o.offered(p.c)
}

// offered says whether the walk of s over its claims has come past c.
func (s *session) offered(c *claim) bool {
	at := s.has.at()
	return s.work != yielding && s.work != revoking || at == nil || c.seq < at.seq
}

// lingers says whether c keeps its names for a while after it is lost.
func (m *Machine) lingers(c *claim) bool {
	return c.rare != nil && (c.rare.delay > 0 || c.since+c.rare.minHold > m.now)
}

// victims are the oldest reclaimable holders that must go for a claim of s to get
// what it still needs; none: even all of them would not do, or nobody has to go. At
// once, only those count that leave nothing behind; else what is nobody's counts as
// gone, because it goes by itself. With more than most it looks no further: they may not do.
func (m *Machine) victims(r *resource, s *session, need int64, atOnce bool, most int) (found []*part) {
	if r.crowd == nil {
		return nil
	}
	if !atOnce {
		need -= r.crowd.ownerless
	}
	if need <= 0 || need > r.crowd.takes {
		return nil
	}
	var renewed []*part
	r.crowd.late.from(0, func(p *part) bool {
		switch {
		case p.c.s.life != lapsed:
			renewed = append(renewed, p)
		case p.reclaimable(s) && !(atOnce && m.lingers(p.c)):
			found = append(found, p)
			need -= p.takes()
		}
		return need > 0 && len(found) <= most
	})
	for _, p := range renewed {
		r.notLate(p)
	}
	if need > 0 && len(found) <= most {
		return nil
	}
	return found
}

// reclaimFor takes stale claims for p, oldest first, until p fits, or will when
// min-hold and delay are over, or this entry has no steps left; those that leave
// nothing behind, if they do.
func (m *Machine) reclaimFor(p *part) bool {
	need := p.takes() - p.r.free()
	if p.place == inUpgrade {
		need -= p.c.twin.one[0].takes()
	}
	found := m.victims(p.r, p.c.s, need, true, math.MaxInt)
	if found == nil {
		found = m.victims(p.r, p.c.s, need, false, math.MaxInt)
	}
	if found == nil {
		return false
	}
	if !m.early {
		found = found[:min(len(found), max(1, m.serves))]
	}
	m.serves -= len(found) - 1
	for _, victim := range found {
		m.reclaim(victim.c)
	}
	return true
}

func (m *Machine) reclaim(c *claim) {
	m.next()
	m.tell(c, VerbReclaimed, CodeOK)
	m.push(c, ClaimGone, CodeLost)
	m.leave(c, CodeLost, true)
}

package core

// reclaimable says whether p may be taken for a claim of s: its session is past
// its deadline and its grace, and lets others take.
func (p *part) reclaimable(s *session) bool {
	o := p.c.s
	return o != nil && o != s && o.life == lapsed && o.policy == OnNextAcquire
}

// lingers says whether c keeps its names for a while after it is lost.
func (m *Machine) lingers(c *claim) bool {
	return c.rare != nil && (c.rare.delay > 0 || c.since+c.rare.minHold > m.now)
}

// victims are how many of the oldest reclaimable holders must go for a claim of
// s to get what it still needs; 0: even all of them would not do, or nobody has
// to go. At once, only those count that leave nothing behind; else what is
// nobody's counts as gone, because it goes by itself.
func (m *Machine) victims(r *resource, s *session, need int64, atOnce bool) (n int) {
	if m.lapsed == 0 {
		return 0
	}
	for h := r.holders.head; h != nil && !atOnce; h = h.next {
		if h.c.s == nil {
			need -= h.takes()
		}
	}
	if need <= 0 {
		return 0
	}
	for h := r.holders.head; h != nil; h = h.next {
		if !h.reclaimable(s) || atOnce && m.lingers(h.c) {
			continue
		}
		n++
		if need -= h.takes(); need <= 0 {
			return n
		}
	}
	return 0
}

// reclaimFor takes stale claims for p, oldest first, until p fits, or will when
// min-hold and delay are over, or this entry has no steps left; those that leave
// nothing behind, if they do.
func (m *Machine) reclaimFor(p *part) bool {
	need := p.takes() - p.r.free()
	if p.place == inUpgrade {
		need -= p.c.twin.one[0].takes()
	}
	atOnce := true
	n := m.victims(p.r, p.c.s, need, true)
	if n == 0 {
		atOnce = false
		n = m.victims(p.r, p.c.s, need, false)
	}
	if n == 0 {
		return false
	}
	if !m.early {
		n = min(n, max(1, m.serves))
	}
	m.serves -= n - 1
	for h := p.r.holders.head; n > 0; {
		victim := h
		h = h.next
		if victim.reclaimable(p.c.s) && !(atOnce && m.lingers(victim.c)) {
			m.reclaim(victim.c)
			n--
		}
	}
	return true
}

func (m *Machine) reclaim(c *claim) {
	m.next()
	m.tell(c, VerbReclaimed, CodeOK)
	m.push(c, ClaimGone, CodeLost)
	m.leave(c, CodeLost, true)
}

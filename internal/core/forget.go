package core

// Forget does what an EntryForget does, with a clock that is finer than its Seconds: Unix time in
// units of 2⁻²⁰ seconds. It is for a state that a log will begin with, not for one that follows a log.
func (m *Machine) Forget(clock uint64) { m.forget(clock) }

// forget ends all sessions with all that hangs on them, untold, and jumps to a
// revision beyond every one that the forgotten past may have used. Their ids stay
// refused for a while: a client sends an Open that was never answered again, with
// commands that have been done.
func (m *Machine) forget(clock uint64) {
	m.claims.each(m.touchClaim) // all first: records refer to each other
	m.sessions.each(m.touchSession)
	m.claims.each(m.forgetClaim)
	m.keys.each(func(k *key) {
		if k.session != nil {
			m.touchKey(k)
			m.keyDue.remove(k)
			k.ns.keys = without(k.ns.keys, k.name, &k.ns.mostKeys)
			k.ns.keyOrder.remove(k.name)
			m.keys.release(k)
		}
	})
	m.sessions.each(func(s *session) {
		m.sessionDue.remove(s)
		if s.life != ending && !s.fleeting {
			m.refuseID(s.id, s.ns)
		}
		m.vanish(s)
	})
	m.backlog, m.behind = m.backlog[:0], 0
	m.resources.each(func(r *resource) {
		if r.queue != nil {
			*r.queue = queue{}
		}
		r.holders, r.used, r.crowd = partList{}, 0, nil
		if !r.idle {
			m.changed(r)
		}
	})
	m.revision = beyond(m.revision, clock)
	m.ordinal = 0
}

// beyond is the revision from which tokens go on after a past of which the end may be
// forgotten: what the clock says, as a new group begins, so that of two groups that
// go on from the same state the later one has the greater tokens. A clock that is
// behind that state is not trusted, and the jump is 2⁴⁰.
func beyond(revision, clock uint64) uint64 {
	if clock > revision && clock >= 1<<40 {
		return clock
	}
	return revision + 1<<40
}

func (m *Machine) forgetClaim(c *claim) {
	m.claimDue.remove(c)
	m.claims.release(c)
}

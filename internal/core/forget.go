package core

// forget ends all sessions with all that hangs on them, untold, and jumps to a
// revision beyond every one that the forgotten past may have used. Their ids stay
// refused for a while: a client sends an Open that was never answered again, with
// commands that have been done.
func (m *Machine) forget(seconds int64) {
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
	m.revision = max(m.revision+1<<40, uint64(max(seconds, 0))<<20)
	m.ordinal = 0
}

func (m *Machine) forgetClaim(c *claim) {
	m.claimDue.remove(c)
	m.claims.release(c)
}

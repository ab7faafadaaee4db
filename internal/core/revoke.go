package core

// force revokes one hold, of any session.
func (m *Machine) force(s *session, c *Command, r *Result) {
	if !m.validName(c.Name, r) {
		return
	}
	if c.Token == 0 {
		r.refuse(CodeInvalid, "force needs the token of the hold, so that the next holder is never hit: inspect %q", c.Name)
		return
	}
	cl := s.ns.byToken(c.Name, c.Token)
	if cl == nil {
		r.refuse(CodeNotExist, "%q is not held with token %d: inspect it and force by the token it has", c.Name, c.Token)
		return
	}
	r.Token = c.Token
	r.Deadline = m.revokeClaim(cl, c.Flags&Now != 0)
	r.Revision = m.revision
}

// revokeClaim decides the end of a hold: when its holder confirms, or at the
// earlier of the deadlines that it and its session have now; no renewal counts
// for it any more. At once means without waiting: only fencing protects then.
func (m *Machine) revokeClaim(c *claim, atOnce bool) (until int64) {
	if c.state == revoked && !atOnce {
		return c.deadline
	}
	m.next()
	m.tell(c, VerbRevoked, CodeRevoked)
	if atOnce || c.s == nil || c.s.life == ending {
		m.tell(c, VerbExpired, CodeRevoked) // a watcher must not wait for an end that has come
		m.push(c, ClaimGone, CodeRevoked)
		m.endTwin(c)
		m.unhold(c)
		m.retire(c, CodeRevoked)
		return 0
	}
	m.touchClaim(c)
	until = c.s.deadline
	if c.deadline != 0 {
		until = min(until, c.deadline)
	}
	c.state, c.modified = revoked, m.revision
	c.version++
	m.setDeadline(c, until, endRevoked)
	if c.twin != nil && c.twin.state == waiting {
		m.endTwin(c)
	}
	m.push(c, ClaimRevoked, CodeRevoked)
	return until
}

// revoke ends another session by revoking all that it has.
func (m *Machine) revoke(by *session, c *Command, r *Result) {
	s := m.session(c.Session)
	if s == nil || s.ns != by.ns {
		r.refuse(CodeNotExist, "namespace %q has no such session, or it has ended", by.ns.name)
		return
	}
	repeated := c.repeats(s)
	if !repeated {
		r.Revision = m.revokeSession(s, c.Flags&Now != 0)
	}
	if s.has.holds() > 0 && !s.atOnce {
		r.Deadline = s.deadline
	}
	if !repeated {
		m.drain()
	}
}

// repeats reports a revocation without a number, which may be one that comes again, of a session that is
// revoked already, and as soon.
func (c *Command) repeats(s *session) bool {
	return c.Seq == 0 && s.revoked && (s.atOnce || c.Flags&Now == 0)
}

func (m *Machine) revokeSession(s *session, atOnce bool) (revision uint64) {
	m.touchSession(s)
	revision = m.next()
	m.tellSession(s, VerbRevoked)
	s.revoked, s.atOnce, s.due = true, atOnce, s.deadline
	m.sessionDue.set(s, s.due) // its end is decided: no policy keeps it
	s.has.point(s.has.head())
	m.assign(s, revoking)
	return revision
}

// revokeOne revokes a claim of a session that another ends.
func (m *Machine) revokeOne(c *claim, atOnce bool) {
	switch c.state {
	case waiting:
		m.deny(c, CodeRevoked)
	case granted, revoked:
		if m.revokeClaim(c, atOnce); !atOnce {
			m.offerClaim(c) // if its holder is so late, others need not wait for the end
		}
	}
}

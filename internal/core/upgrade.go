package core

// upgrade asks to hold exclusively what is held shared. It goes before the
// queue, the one exception to first come, first served, and only one can.
func (m *Machine) upgrade(s *session, c *Command, r *Result) {
	base := m.upgradable(s, c, r)
	if base == nil {
		return
	}
	res := base.one[0].r
	u := m.bareClaim(s, c.Seq)
	u.one[0] = part{r: res, c: u, weight: 1, mode: Exclusive}
	if c.Wait > 0 {
		u.deadline, u.reason = m.now+c.Wait, endWait
	}
	if base.rare != nil {
		u.rare = &claimOptions{minHold: base.rare.minHold, delay: base.rare.delay, value: base.rare.value, owner: base.rare.owner}
	}
	m.touchClaim(base)
	u.twin, base.twin = base, u
	m.current, m.made = u, true
	m.list(&u.one[0], inUpgrade)
	m.markDirty(res)
	m.settle()
	if u.state == waiting {
		m.queued(u)
	}
	m.claimResult(u, r)
}

// upgradable is the shared claim that c wants to hold exclusively, or refuses.
func (m *Machine) upgradable(s *session, c *Command, r *Result) *claim {
	if !validSpan("a wait", c.Wait, r) {
		return nil
	}
	base := s.goodHoldOf(c, r)
	switch {
	case base == nil:
	case base.many != nil || base.one[0].r.kind != RWMutex || base.one[0].mode != Shared:
		r.refuse(CodeInvalid, "the claim %d is not a reader alone: only such a claim can be upgraded", c.Target)
	case !m.inTime(s, r):
	case m.frozen:
		r.refuse(CodeUnavailable, TextFrozen+": nothing is granted until an operator ends that")
	case base.one[0].r.upgrading():
		r.refuse(CodeConflict, "another reader of %q waits to become its writer, and both would wait for ever: release the read lock, then take the write lock", base.one[0].r.name)
	case m.version >= 5 && !m.roomForClaim(s, r):
	default:
		return base
	}
	return nil
}

func (r *resource) upgrading() bool { return r.queue != nil && r.queue.upgrade != nil }

// serveUpgrade takes r, and every name after it, from the claims that only have it reserved,
// one after the other, and grants an upgrade when its shared claim is the only holder.
func (m *Machine) serveUpgrade(r *resource, u *claim) bool {
	switch {
	case u.s.life == ending:
		m.drop(u, CodeNoSession)
		return true
	case r.queue.set.head != nil:
		m.giveWay(r.queue.set.head)
		return true
	case r.holders.n > 1:
		return m.reclaimFor(&u.one[0])
	}
	m.touchClaim(u)
	base := u.twin
	at, why := base.deadline, base.reason
	m.suspend(base)
	m.grantUntil(u, VerbUpgraded, at, why)
	return true
}

// suspend takes the room from a shared claim that its upgrade replaces. It is
// over, unless the upgrade is cancelled.
func (m *Machine) suspend(base *claim) {
	m.touchClaim(base)
	p := &base.one[0]
	m.touchResource(p.r)
	p.r.dropHolder(p)
	m.claimDue.remove(base)
	base.state, base.modified = over, m.revision
	base.s.has.held--
	base.s.has.over++
}

// fallBack turns a granted upgrade into the shared claim that it was. One that was revoked makes it revoked: the
// cancel of an upgrade does not say that its holder knows of that.
func (m *Machine) fallBack(u *claim, r *Result) {
	base := u.twin
	at, why := u.deadline, u.reason
	m.touchClaim(u)
	m.touchClaim(base)
	u.twin, base.twin = nil, nil
	r.Revision = m.next()
	base.state, base.modified = u.state, m.revision
	base.version++
	base.s.has.held++
	base.s.has.over--
	m.setDeadline(base, at, why)
	m.hold(base)
	m.unhold(u)
	m.retire(u, CodeCanceled)
	m.tell(base, VerbDowngraded, CodeCanceled)
	if base.state == revoked {
		m.push(base, ClaimRevoked, CodeRevoked)
	}
}

// downgrade makes an exclusive hold shared and lets the readers in.
func (m *Machine) downgrade(s *session, c *Command, r *Result) {
	cl := s.goodHoldOf(c, r)
	switch {
	case cl == nil:
		return
	case cl.many != nil || cl.one[0].r.kind != RWMutex || cl.one[0].mode != Exclusive:
		r.refuse(CodeInvalid, "the claim %d is not a writer alone: only such a claim can be downgraded", c.Target)
		return
	}
	m.endTwin(cl)
	m.touchClaim(cl)
	p := &cl.one[0]
	m.touchResource(p.r)
	p.r.notLate(p)
	p.r.used -= p.takes()
	p.mode = Shared
	p.r.used += p.takes()
	m.offerPart(p)
	r.Revision, r.Token, r.Deadline = m.next(), cl.token, cl.deadline
	cl.modified = r.Revision
	cl.version++
	m.stamp(p.r)
	m.tell(cl, VerbDowngraded, CodeOK)
	m.changed(p.r)
}

// endTwin ends what cannot be without c: the upgrade that waits to replace it,
// or the shared claim that it replaced.
func (m *Machine) endTwin(c *claim) {
	t := c.twin
	if t == nil {
		return
	}
	m.touchClaim(c)
	m.touchClaim(t)
	c.twin, t.twin = nil, nil
	if t.state == over {
		m.retire(t, CodeLost)
		return
	}
	if t.s.life != ending {
		m.push(t, ClaimGone, CodeLost)
	}
	m.drop(t, CodeLost)
}

package core

import "slices"

// target finds the claim that a command is about, or refuses.
func (s *session) target(c *Command, r *Result) *claim {
	cl := s.has.find(c.Target)
	if cl != nil && cl.state != over {
		return cl
	}
	if d := s.has.result(c.Target); cl != nil || d != nil && d.gone {
		r.refuse(CodeLost, "the claim %d has ended: what it held may be another's by now", c.Target)
		return nil
	}
	r.refuse(CodeNotExist, "the session has no claim %d", c.Target)
	return nil
}

// holdOf is target for commands that need a hold.
func (s *session) holdOf(c *Command, r *Result) *claim {
	cl := s.target(c, r)
	if cl != nil && cl.state == waiting {
		r.refuse(CodeInvalid, "the claim %d is not granted yet: wait for it, or cancel it", c.Target)
		return nil
	}
	return cl
}

// goodHoldOf is holdOf for commands that a revoked claim refuses.
func (s *session) goodHoldOf(c *Command, r *Result) *claim {
	cl := s.holdOf(c, r)
	if cl != nil && cl.state == revoked {
		r.refuse(CodeRevoked, "the claim %d is revoked: release it", c.Target)
		return nil
	}
	return cl
}

// byToken finds the hold on a name with a token, of any session.
func (ns *namespace) byToken(name string, token uint64) *claim {
	r := ns.lookup(name)
	if r == nil || token == 0 {
		return nil
	}
	if p := r.holderWith(token); p != nil {
		return p.c
	}
	return nil
}

// release gives a hold back; for a revoked one it is the confirmation.
func (m *Machine) release(s *session, c *Command, r *Result) {
	if cl := s.toRelease(c, r); cl != nil {
		m.giveBack(cl, CodeLost, CodeOK, r)
	}
}

func (s *session) toRelease(c *Command, r *Result) *claim {
	if c.Target != 0 {
		return s.holdOf(c, r)
	}
	switch cl := s.ns.byToken(c.Name, c.Token); {
	case cl == nil || cl.s == nil:
		r.refuse(CodeLost, "%q is not held with token %d (any more): it may be another's by now", c.Name, c.Token)
	case cl.s != s:
		r.refuse(CodePermission, "%q is held with token %d by another session: only that, or force, can release it", c.Name, c.Token)
	default:
		return cl
	}
	return nil
}

// giveBack ends a hold that its session gives back.
func (m *Machine) giveBack(c *claim, gone, why Code, r *Result) {
	r.Revision = m.next()
	m.tell(c, VerbReleased, why)
	m.leave(c, gone, false)
}

// cancel settles a number, seen or not.
func (m *Machine) cancel(s *session, c *Command, r *Result) {
	switch {
	case c.Target == 0 || c.Target == c.Seq:
		r.refuse(CodeInvalid, "a command cannot cancel number %d: give the number of another", c.Target)
		return
	case c.Target >= s.mark && c.Target-s.mark >= s.window:
		r.refuse(CodeWindow, "number %d is beyond the window: nothing was ever accepted with it", c.Target)
		return
	}
	cl := s.has.find(c.Target)
	switch {
	case cl == nil:
		if c.Target >= s.mark && s.has.result(c.Target) == nil {
			m.newDone(s, c.Target, CodeCanceled)
		}
	case cl.state == over:
	case cl.state == waiting:
		m.drop(cl, CodeCanceled)
	case (cl.state == granted || cl.state == revoked && m.version >= 6) && cl.twin != nil && cl.twin.state == over:
		m.fallBack(cl, r)
	default:
		m.giveBack(cl, CodeCanceled, CodeCanceled, r)
	}
}

// extend moves a max-hold deadline, only forward.
func (m *Machine) extend(s *session, c *Command, r *Result) {
	if c.MaxHold <= 0 || c.MaxHold > maxSpan {
		r.refuse(CodeInvalid, "a max-hold of %d ns is out of range", c.MaxHold)
		return
	}
	cl := s.goodHoldOf(c, r)
	switch {
	case cl == nil:
		return
	case cl.reason != endMaxHold:
		r.refuse(CodeInvalid, "the claim %d has no max-hold: there is nothing to extend", c.Target)
		return
	}
	if at := m.now + c.MaxHold; at > cl.deadline {
		m.touchClaim(cl)
		m.setDeadline(cl, at, endMaxHold)
		cl.modified = m.next()
		cl.version++
		m.tell(cl, VerbExtended, CodeOK)
	}
	r.Token, r.Deadline = cl.token, cl.deadline
}

// election finds the hold that proclaim and handOver are about.
func (s *session) election(c *Command, r *Result) *claim {
	cl := s.goodHoldOf(c, r)
	if cl != nil && (cl.many != nil || cl.one[0].r.kind != Election) {
		r.refuse(CodeInvalid, "the claim %d is not one of an election alone", c.Target)
		return nil
	}
	return cl
}

func (m *Machine) proclaim(s *session, c *Command, r *Result) {
	cl := s.election(c, r)
	if cl == nil {
		return
	}
	m.touchClaim(cl)
	m.touchResource(cl.one[0].r)
	with := claimOptions{}
	if cl.rare != nil {
		with = *cl.rare
	}
	with.value = slices.Clone(c.Value)
	cl.rare = &with
	r.Revision, r.Token = m.next(), cl.token
	cl.modified = r.Revision
	cl.version++
	m.stamp(cl.one[0].r)
	m.tell(cl, VerbProclaimed, CodeOK)
}

// handOver gives an election to the first candidate with an owner, past the
// queue.
func (m *Machine) handOver(s *session, c *Command, r *Result) {
	cl := s.election(c, r)
	if cl == nil {
		return
	}
	successor, ok := m.successorOf(cl.one[0].r, c.Owner)
	switch {
	case m.frozen:
		r.refuse(CodeUnavailable, TextFrozen+": nothing is granted until an operator ends that")
		return
	case !ok && cl.one[0].r.queue.order.n > m.mostWalk():
		r.refuse(CodeExhausted, "no candidate of owner %q is among the first of the %d that wait, and not all can be looked at at once: release instead", c.Owner, cl.one[0].r.queue.order.n)
		return
	case !ok:
		r.walkBusy()
		return
	case successor == nil:
		r.refuse(CodeNotExist, "no candidate of owner %q waits: hand over to another, or release", c.Owner)
		return
	}
	r.Revision = m.next()
	m.tell(cl, VerbReleased, CodeOK)
	m.unhold(cl)
	m.retire(cl, CodeLost)
	m.grant(successor, VerbAcquired)
}

// successorOf is the first candidate with an owner; false: it is not among those that this
// entry can look at.
func (m *Machine) successorOf(r *resource, owner string) (successor *claim, ok bool) {
	if r.queue == nil {
		return nil, true
	}
	n := 0
	for p := r.queue.order.head; p != nil; p = p.next {
		if p.c.many == nil && p.c.s.life != ending && p.c.owner() == owner {
			return p.c, true
		}
		if n++; !m.walkTo(n) {
			return nil, false
		}
	}
	return nil, true
}

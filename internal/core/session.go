package core

// session returns a session that has not ended.
func (m *Machine) session(id SessionID) *session {
	if s := m.byID[id]; s != nil && s.life != ending {
		return s
	}
	return nil
}

// renew moves a deadline forward. It neither makes a session nor brings back
// one after its end was applied.
func (m *Machine) renew(n *Renewal) {
	deadline := int64(0)
	if s := m.session(n.Session); s != nil {
		ttl := n.TTL
		if ttl == 0 {
			ttl = s.ttl
		}
		m.refresh(s, min(ttl, m.cfg.MaxTTL))
		deadline = s.deadline
	}
	m.out.Renewed = append(m.out.Renewed, Renewed{Session: n.Session, Attempt: n.Attempt, Now: m.now, Deadline: deadline})
}

// refresh applies E := max(E, n + ttl). A session that was late is so no more.
func (m *Machine) refresh(s *session, ttl int64) {
	if s.revoked {
		return
	}
	m.touchSession(s)
	s.deadline = max(s.deadline, m.now+ttl)
	s.due = s.deadline
	if s.has != nil && s.has.empty() {
		m.spare.take(s)
	}
	m.sessionDue.set(s, s.due)
	if s.life == alive {
		return
	}
	s.life = alive
	s.told, s.work = false, noWork
	s.has.point(nil)
}

// open makes the session or refreshes it.
func (m *Machine) open(f *Frame, c *Command, r *Result) {
	if !m.validOpen(f, c, r) {
		return
	}
	if s := m.session(f.Session); s != nil {
		m.reopen(s, c, r)
		return
	}
	if m.hasEnded(f.Session) {
		r.refuse(CodeNoSession, "the session has ended and its id is refused for a while: open one with another id")
		return
	}
	ns := m.space(c.Namespace)
	if ns.sessions >= m.cfg.Sessions {
		r.refuse(CodeExhausted, "namespace %q has %d sessions, its quota: end some, or raise it (serve --max-sessions); those of idempotency keys, which are not listed, end by themselves ten minutes after the last use of the key", ns.name, ns.sessions)
		return
	}
	s := m.newSession(f.Session, ns, c)
	s.mark = max(1, f.Mark)
	r.Revision, r.Window = m.next(), s.window
	s.opened = r.Revision
	m.tellSession(s, VerbOpened)
}

func (m *Machine) newSession(id SessionID, ns *namespace, c *Command) *session {
	t := terms{
		ns: ns, identity: c.Identity, owner: c.Owner, meta: c.Meta,
		ttl: c.TTL, grace: c.Grace, window: m.cfg.Window, policy: c.Policy, fleeting: c.Flags&Fleeting != 0,
	}
	if c.Window != 0 {
		t.window = min(c.Window, m.cfg.Window)
	}
	s := m.sessions.alloc(m.epoch)
	s.id, s.terms = id, m.recent.share(&t)
	s.openedAt, s.deadline = m.now, m.now+c.TTL
	s.due = s.deadline
	m.byID[id] = s
	ns.sessions++
	m.sessionDue.set(s, s.due)
	return s
}

func (m *Machine) reopen(s *session, c *Command, r *Result) {
	switch {
	case c.Flags&Fresh != 0:
		r.refuse(CodeExists, "the session is there already: choose another id, or renew it")
	case s.identity != c.Identity:
		r.refuse(CodePermission, "the session belongs to another identity: open one with another id")
	case s.ns != m.known(c.Namespace):
		r.refuse(CodeConflict, "the session belongs to namespace %q: open one with another id", s.ns.name)
	default:
		m.refresh(s, c.TTL)
		r.Window = s.window
	}
}

// end ends the session as it asks. An id that was never seen is refused
// from now on, so that an Open that was overtaken cannot make it later.
func (m *Machine) end(f *Frame, c *Command, r *Result) {
	s := m.session(f.Session)
	switch {
	case c.Seq != 0:
		r.refuse(CodeInvalid, "End has no number: it may be sent as often as need be")
	case s != nil:
		m.touchSession(s)
		s.asked = true
		m.beginEnd(s, VerbEnded)
		m.budget--
		r.Revision = m.revision
		m.drain()
	case m.byID[f.Session] == nil && !m.hasEnded(f.Session):
		m.refuseID(f.Session, m.space(c.Namespace))
	}
}

// beginEnd applies the end of a session: it is over at once, and what it has is
// freed as far as the budget goes.
func (m *Machine) beginEnd(s *session, v Verb) {
	m.touchSession(s)
	s.life = ending
	m.sessionDue.remove(s)
	if !s.fleeting {
		m.refuseID(s.id, s.ns)
	}
	m.next()
	m.tellSession(s, v)
	m.assign(s, freeing)
}

// vanish removes a session that has nothing left.
func (m *Machine) vanish(s *session) {
	m.touchSession(s)
	for _, d := range s.has.table() {
		if d != nil {
			m.touchDone(d)
			m.dones.release(d)
		}
	}
	m.spare.take(s)
	s.ns.sessions--
	m.byID = without(m.byID, s.id, &m.mostSessions)
	m.sessions.release(s)
}

// hasEnded says whether the id is refused.
func (m *Machine) hasEnded(id SessionID) bool {
	if m.byID[id] != nil {
		return true
	}
	e := m.endedIDs[id]
	return e != nil && m.now < e.at+m.cfg.EndedFor
}

// mostAllowed is how many ids are forgotten when one is remembered: more than one, so
// that they become fewer, and few, because all may be old at once.
const mostAllowed = 4

// refuseID remembers that the id must not come back, and forgets those that
// nobody can be waiting to send any more.
func (m *Machine) refuseID(id SessionID, ns *namespace) {
	l := &ns.ended
	for n := 0; n < mostAllowed && l.first != nil && (l.n >= m.cfg.Ended || l.first.at+m.cfg.EndedFor <= m.now); n++ {
		m.allowID(l)
	}
	e := m.endeds.alloc(m.epoch)
	e.id, e.ns, e.at, e.order = id, ns, m.now, m.arrival()
	m.endedIDs[id] = e
	l.push(e)
}

func (m *Machine) allowID(l *endedList) {
	e := l.first
	m.touchEnded(e)
	if l.first = e.next; l.first == nil {
		l.last = nil
	}
	l.n--
	if m.endedIDs[e.id] == e {
		m.endedIDs = without(m.endedIDs, e.id, &m.mostEnded)
	}
	m.endeds.release(e)
}

func (l *endedList) push(e *ended) {
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
	l.n++
}

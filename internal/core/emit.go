package core

// emit tells e at the last revision. Kinds and verbs that leave a field zero
// are listed in docs/events.md.
func (m *Machine) emit() *Event {
	m.out.Events = grow(m.out.Events)
	e := &m.out.Events[len(m.out.Events)-1]
	*e = Event{}
	e.Revision, e.Ordinal = m.revision, m.ordinal
	m.ordinal++
	return e
}

var kindOfEvent = [...]EventKind{
	Mutex: EventLock, RWMutex: EventRWLock, Semaphore: EventSemaphore, Election: EventElection,
	Latch: EventLatch, Barrier: EventBarrier, Counter: EventCounter, Sequence: EventSequence, Limiter: EventLimit,
}

// tell emits one event for each name of c; how the hold stands is told too.
func (m *Machine) tell(c *claim, v Verb, why Code) {
	parts := c.parts()
	for i := range parts {
		p := &parts[i]
		e := m.emit()
		e.Kind, e.Verb, e.Namespace, e.Name = kindOfEvent[p.r.kind], v, p.r.ns.name, p.r.name
		e.Token, e.Mode, e.Weight, e.Reason = c.token, p.mode, p.weight, why
		if c.s != nil {
			e.Session, e.Owner = c.s.id, c.owner()
		}
		if c.token == 0 {
			continue
		}
		e.Modified, e.Version = c.modified, c.version
		if c.created != c.token { // it was queued, which is no change of the hold
			e.Version--
		}
		if c.rare != nil {
			e.Value = c.rare.value
		}
	}
}

// tellTry tells of a try that failed.
func (m *Machine) tellTry(s *session, c *Command, w *Want) {
	e := m.emit()
	e.Kind, e.Verb, e.Namespace, e.Name = kindOfEvent[w.Kind], VerbDenied, s.ns.name, clone(w.Name)
	e.Session, e.Owner, e.Mode, e.Weight, e.Reason = s.id, s.owner, w.Mode, max(1, w.Weight), CodeHeld
	if c.Owner != "" {
		e.Owner = clone(c.Owner)
	}
}

// tellName tells what happened to r itself.
func (m *Machine) tellName(r *resource, v Verb, number uint64) {
	e := m.emit()
	e.Kind, e.Verb, e.Namespace, e.Name, e.Number = kindOfEvent[r.kind], v, r.ns.name, r.name, number
}

func (m *Machine) tellSession(s *session, v Verb) {
	e := m.emit()
	e.Kind, e.Verb, e.Namespace, e.Session, e.Owner = EventSession, v, s.ns.name, s.id, s.owner
}

// push tells the session of c what became of it.
func (m *Machine) push(c *claim, state ClaimState, why Code) {
	if c.s == nil {
		return
	}
	m.out.Pushes = append(m.out.Pushes, Push{
		Session: c.s.id, Seq: c.seq, State: state, Code: why, Token: c.token, Deadline: c.ownDeadline(),
	})
}

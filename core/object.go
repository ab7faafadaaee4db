package core

// object finds the name of a command, which must be of that kind, or refuses.
func (m *Machine) object(ns *namespace, c *Command, kind Kind, r *Result) *resource {
	if !m.validName(c.Name, r) {
		return nil
	}
	res := ns.lookup(c.Name)
	switch {
	case res == nil:
		r.refuse(CodeNotExist, "there is no %q", c.Name)
		return nil
	case res.kind != kind:
		r.refuse(CodeConflict, "%q is of kind %s, not %s: use another name", c.Name, res.kind, kind)
		return nil
	}
	return res
}

// resize sets a semaphore's limit at once. Nothing is granted until it fits,
// reservations that do not fit any more are undone, and who can never fit is
// denied.
func (m *Machine) resize(s *session, c *Command, r *Result) {
	if c.Limit < 1 {
		r.refuse(CodeInvalid, "a limit of %d makes no sense: give at least 1", c.Limit)
		return
	}
	res := m.object(s.ns, c, Semaphore, r)
	if res == nil || res.limit == c.Limit {
		return
	}
	m.touchResource(res)
	res.limit = c.Limit
	r.Revision = m.next()
	m.stamp(res)
	m.tellName(res, VerbResized, uint64(c.Limit))
	for _, cl := range m.tooHeavy(res) {
		m.deny(cl, CodeInvalid)
	}
	for res.line != nil && res.line.set.tail != nil && res.free() < 0 {
		m.giveWay(res.line.set.tail)
	}
	m.changed(res)
}

// tooHeavy lists who waits for more than there is, in order of arrival.
func (m *Machine) tooHeavy(r *resource) (heavy []*claim) {
	if r.line == nil {
		return nil
	}
	r.line.each(func(p *part) {
		if p.weight > r.limit {
			heavy = append(heavy, p.c)
		}
	})
	return heavy
}

// remove deletes an idle object.
func (m *Machine) remove(s *session, c *Command, r *Result) {
	if c.Kind.transient() || c.Kind < Mutex || c.Kind > Sequence {
		r.refuse(CodeInvalid, "names of kind %s cannot be deleted: they are gone when nobody holds or awaits them", c.Kind)
		return
	}
	res := m.object(s.ns, c, c.Kind, r)
	switch {
	case res == nil:
		return
	case res.holders.n > 0 || res.line != nil:
		r.refuse(CodeConflict, "%q is in use: wait until nobody holds or awaits it", c.Name)
		return
	}
	m.touchResource(res)
	r.Revision = m.next()
	m.tellName(res, VerbDeleted, 0)
	res.ns.inUse--
	m.discard(res)
}

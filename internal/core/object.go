package core

import "slices"

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
	heavy := res.tooHeavy(c.Limit)
	if len(heavy) > m.cfg.Budget && !m.early {
		r.refuse(CodeExhausted, "%d claims wait for more than %d of %q and would have to be denied, more than %d at once: let some end first", len(heavy), c.Limit, c.Name, m.cfg.Budget)
		return
	}
	m.touchResource(res)
	res.limit = c.Limit
	r.Revision = m.next()
	m.stamp(res)
	m.tellName(res, VerbResized, uint64(c.Limit))
	for _, cl := range heavy {
		m.deny(cl, CodeInvalid)
	}
	for res.line != nil && res.line.set.tail != nil && res.free() < 0 {
		m.giveWay(res.line.set.tail)
	}
	m.changed(res)
}

// tooHeavy lists who waits for more than limit, in order of arrival.
func (r *resource) tooHeavy(limit int64) (heavy []*claim) {
	if r.line == nil {
		return nil
	}
	for _, list := range [...]*partList{&r.line.queue, &r.line.later, &r.line.set} {
		for p := list.head; p != nil; p = p.next {
			if p.weight > limit {
				heavy = append(heavy, p.c)
			}
		}
	}
	slices.SortFunc(heavy, func(a, b *claim) int { return order(a.arrival, b.arrival) })
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

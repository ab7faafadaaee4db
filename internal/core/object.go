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
// reservations that do not fit any more are undone, and a claim that can never fit is
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
	if !m.validResize(res, c, r) {
		return
	}
	heavy := res.tooHeavy(c.Limit)
	m.touchResource(res)
	res.limit = c.Limit
	r.Revision = m.next()
	m.stamp(res)
	m.tellName(res, VerbResized, uint64(c.Limit))
	for _, cl := range heavy {
		m.deny(cl, CodeInvalid)
	}
	m.changed(res)
}

// validResize refuses to make a semaphore smaller if that denies more claims than one
// entry can end, or if they have to be found among more than it can look at.
func (m *Machine) validResize(res *resource, c *Command, r *Result) bool {
	if res.queue == nil || m.early {
		return true
	}
	heavy, all := res.queue.above(c.Limit), res.queue.waiting()
	switch {
	case heavy > m.cfg.Budget || heavy > 0 && all > m.mostWalk():
		r.refuse(CodeExhausted, "%d of the %d claims that wait for %q want more than %d and would have to be denied, which cannot be done at once among more than %d: let some end first", heavy, all, c.Name, c.Limit, m.cfg.Budget)
	case heavy > 0 && !m.walk(all):
		r.walkBusy()
	default:
		return true
	}
	return false
}

// tooHeavy lists the claims that wait for more than limit, in order of arrival.
func (r *resource) tooHeavy(limit int64) (heavy []*claim) {
	if r.queue == nil || r.queue.above(limit) == 0 {
		return nil
	}
	for _, list := range [...]*waitList{&r.queue.order, &r.queue.later, &r.queue.set} {
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
	if c.Kind.transient() || c.Kind < Mutex || c.Kind > Limiter {
		r.refuse(CodeInvalid, "names of kind %s cannot be deleted: they are gone when nobody holds or awaits them", c.Kind)
		return
	}
	res := m.object(s.ns, c, c.Kind, r)
	switch {
	case res == nil:
		return
	case res.holders.n > 0 || res.queue != nil:
		r.refuse(CodeConflict, "%q is in use: wait until nobody holds or awaits it", c.Name)
		return
	}
	m.touchResource(res)
	r.Revision = m.next()
	if res.kind == Limiter {
		m.giveUp(res.limiter)
		m.tellName(res, VerbChanged, 0)
	} else {
		m.tellName(res, VerbDeleted, 0)
	}
	res.ns.inUse--
	m.discard(res)
}

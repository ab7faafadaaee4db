package core

// countDown takes from a latch, and opens it at zero. Nothing is taken: it only
// tells what is left.
func (m *Machine) countDown(ns *namespace, c *Command, r *Result) {
	res, left := m.latch(ns, c, r)
	switch {
	case r.Code != CodeOK:
		return
	case c.A == 0 || left == 0:
		r.Number = left
		return
	case res == nil:
		if !m.quota(ns, 1, r) {
			return
		}
		res = m.name(ns, c.Name, Latch, c.Limit)
	}
	m.touchResource(res)
	res.number = left - min(c.A, left)
	r.Revision, r.Number = m.next(), res.number
	m.stamp(res)
	m.tellName(res, VerbCounted, res.number)
	if res.number == 0 {
		m.tellName(res, VerbOpened, 0)
		m.changed(res)
	}
}

// latch finds the latch of c and what is left of it, or refuses.
func (m *Machine) latch(ns *namespace, c *Command, r *Result) (*resource, uint64) {
	if !m.validName(c.Name, r) {
		return nil, 0
	}
	res := ns.lookup(c.Name)
	switch {
	case c.Limit < 0:
		r.refuse(CodeInvalid, "a latch cannot count down from %d", c.Limit)
	case res == nil && c.Limit == 0:
		r.refuse(CodeNotExist, "there is no latch %q: give its count to make it", c.Name)
	case res == nil:
		return nil, uint64(c.Limit)
	case res.kind != Latch:
		r.refuse(CodeConflict, "%q is of kind %s, not a latch: use another name", c.Name, res.kind)
	default:
		return res, res.number
	}
	return nil, 0
}

// serveBarrier lets everybody pass when all parties are there. The waits of the
// dead do not count.
func (m *Machine) serveBarrier(r *resource) bool {
	if int64(r.queue.order.n) < r.limit {
		return false
	}
	there := make([]*claim, 0, r.limit)
	for p := r.queue.order.head; p != nil && int64(len(there)) < r.limit; p = p.next {
		if p.c.s.life != ending {
			there = append(there, p.c)
		}
	}
	if int64(len(there)) < r.limit {
		return false
	}
	m.touchResource(r)
	m.next()
	m.tellName(r, VerbTripped, uint64(r.limit))
	for _, c := range there {
		m.grant(c, VerbAcquired)
	}
	m.serves -= len(there) - 1
	return true
}

package core

import (
	"slices"
	"strings"
)

// acquire grants, queues or refuses a wish.
func (m *Machine) acquire(s *session, c *Command, r *Result) {
	wants := m.sorted(c.Wants)
	if !m.validAcquire(c, wants, r) || !m.validNames(s.ns, wants, r) {
		return
	}
	if own := m.joins(s, c, wants); own != nil {
		r.Token, r.Deadline = own.token, own.deadline
		return
	}
	if n := s.has.size(); n >= m.cfg.Holds {
		r.refuse(CodeExhausted, "the session has %d holds and waits, its quota: release some, use another session, or raise it (serve --max-holds)", n)
		return
	}
	if m.frozen {
		r.refuse(CodeUnavailable, "the cluster is frozen: nothing is granted until that is ended")
		return
	}
	switch busy := m.busy(s, wants); {
	case busy == nil:
		m.enter(m.newClaim(s, c, wants), r)
	case c.Flags&Try != 0:
		m.held(s, c, busy, r)
	case m.full():
		r.refuse(CodeExhausted, "%d claims wait already, as many as may: try later, or raise that (serve --max-waiters)", m.cfg.Waiters)
	default:
		m.enter(m.newClaim(s, c, wants), r)
	}
}

// sorted is wants in order of name.
func (m *Machine) sorted(wants []Want) []Want {
	if len(wants) < 2 {
		return wants
	}
	m.wants = append(m.wants[:0], wants...)
	slices.SortStableFunc(m.wants, func(a, b Want) int { return strings.Compare(a.Name, b.Name) })
	return m.wants
}

// validNames checks the wants against what their names are, and remembers that.
func (m *Machine) validNames(ns *namespace, wants []Want, r *Result) bool {
	made := 0
	m.found, m.traces = m.found[:0], m.traces[:0]
	for i := range wants {
		known := ns.names[wants[i].Name]
		res := known.inUse()
		m.found, m.traces = append(m.found, res), append(m.traces, known)
		if !m.validFor(res, &wants[i], r) {
			return false
		}
		if res == nil {
			made++
		}
	}
	return m.quota(ns, made, r)
}

func (m *Machine) quota(ns *namespace, made int, r *Result) bool {
	if made > 0 && ns.inUse+made > m.cfg.Names {
		r.refuse(CodeExhausted, "namespace %q has %d names in use, its quota: release or delete some, or raise it (serve --max-names)", ns.name, ns.inUse)
		return false
	}
	return true
}

// full says whether one of the names has as many waiters as it may.
func (m *Machine) full() bool {
	for _, r := range m.found {
		if r != nil && r.line != nil && r.line.waiting() >= m.cfg.Waiters {
			return true
		}
	}
	return false
}

// joins finds the granted claim of the session that a re-entrant wish joins.
func (m *Machine) joins(s *session, c *Command, wants []Want) *claim {
	if c.Flags&Reentrant == 0 || len(wants) != 1 {
		return nil
	}
	r := m.found[0]
	if r == nil {
		return nil
	}
	if r.holders.n <= s.has.size() {
		for p := r.holders.head; p != nil; p = p.next {
			if p.c.s == s && p.joinable(&wants[0]) {
				return p.c
			}
		}
		return nil
	}
	for own := s.has.head(); own != nil; own = own.next {
		if own.one[0].r == r && own.one[0].joinable(&wants[0]) {
			return own
		}
	}
	return nil
}

func (p *part) joinable(w *Want) bool {
	return p.c.state == granted && p.c.many == nil && p.mode == w.Mode
}

// newClaim makes a claim that waits nowhere yet.
func (m *Machine) newClaim(s *session, c *Command, wants []Want) *claim {
	cl := m.bareClaim(s, c.Seq)
	if len(wants) > 1 {
		cl.many = &several{parts: make([]part, len(wants))}
	}
	if c.MaxHold != 0 || c.MinHold != 0 || c.Delay != 0 || len(c.Value) > 0 || c.Owner != "" {
		cl.rare = &rare{maxHold: c.MaxHold, minHold: c.MinHold, delay: c.Delay, value: slices.Clone(c.Value), owner: clone(c.Owner)}
	}
	if c.Wait > 0 {
		cl.deadline, cl.reason = m.now+c.Wait, endWait
	}
	parts := cl.parts()
	for i := range wants {
		w := &wants[i]
		weight := int64(1)
		if w.Kind == Semaphore {
			weight = w.Weight
		}
		res := m.found[i]
		if res == nil {
			res = m.obtain(m.traces[i], s.ns, w.Name, w.Kind, w.Limit)
		}
		parts[i] = part{r: res, c: cl, weight: weight, mode: w.Mode}
	}
	return cl
}

func (m *Machine) bareClaim(s *session, seq uint64) *claim {
	c := m.claims.alloc(m.epoch)
	c.s, c.seq, c.state, c.arrival, c.since = s, seq, waiting, m.arrival(), m.now
	m.stock(s).link(c)
	return c
}

// enter puts a claim into its queues and sees whether it is granted at once;
// the claim is then its command's record.
func (m *Machine) enter(c *claim, r *Result) {
	m.current, m.made = c, true
	m.admit(c)
	if c.state == waiting {
		m.queued(c)
	}
	m.claimResult(c, r)
}

func (m *Machine) admit(c *claim) {
	parts := c.parts()
	if !m.frozen && admitted(parts) {
		if c.many != nil {
			c.many.at = len(parts)
		}
		m.grant(c, VerbAcquired)
		return
	}
	m.list(&parts[0], inQueue)
	for i := range parts[1:] {
		m.list(&parts[1+i], inLater)
	}
	m.soil(parts[0].r)
	m.settle()
}

// admitted says whether nobody waits for any of the names, and there is room for all.
// An open latch has room for everybody.
func admitted(parts []part) bool {
	for i := range parts {
		switch p := &parts[i]; {
		case p.r.kind == Latch:
			if p.r.number != 0 {
				return false
			}
		case p.r.line != nil || p.r.kind == Barrier || p.takes() > p.r.limit-p.r.used:
			return false
		}
	}
	return true
}

// queued tells that c waits, and until when.
func (m *Machine) queued(c *claim) {
	c.created = m.next()
	c.modified = c.created
	c.version = 1
	parts := c.parts()
	for i := range parts {
		m.touchResource(parts[i].r)
		m.stamp(parts[i].r)
	}
	m.tell(c, VerbQueued, CodeOK)
	if c.reason == endWait {
		m.claimDue.set(c, c.deadline)
	}
}

// claimResult answers the command that made c, as often as it is asked.
func (m *Machine) claimResult(c *claim, r *Result) {
	r.Revision, r.Token, r.Deadline = c.token, c.token, c.ownDeadline()
	switch c.state {
	case waiting:
		r.Code, r.Revision, r.Number = CodeQueued, c.created, m.position(c)
	case revoked:
		r.Code = CodeRevoked
	case over:
		r.Code, r.Revision, r.Deadline = CodeLost, c.modified, 0
	}
}

// link files c, by its number.
func (k *stock) link(c *claim) {
	at := k.last
	for at != nil && at.seq > c.seq {
		at = at.prev
	}
	c.prev = at
	if at == nil {
		c.next, k.first = k.first, c
	} else {
		c.next, at.next = at.next, c
	}
	if c.next == nil {
		k.last = c
	} else {
		c.next.prev = c
	}
	k.claims++
	k.addIndex(c)
}

// indexFrom is the number of claims from which a session finds them by a map.
const indexFrom = 24

func (k *stock) addIndex(c *claim) {
	switch {
	case k.index != nil:
		k.index[c.seq] = c
	case k.claims > indexFrom:
		k.index = make(map[uint64]*claim, 2*indexFrom)
		for o := k.first; o != nil; o = o.next {
			k.index[o.seq] = o
		}
	}
}

// unlink takes c from its session.
func (m *Machine) unlink(c *claim) {
	s, k := c.s, c.s.has
	if c.prev == nil {
		k.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		k.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	if k.cursor == c {
		m.touchSession(s)
		k.cursor = c.next
	}
	c.prev, c.next = nil, nil
	k.claims--
	if c.state == granted || c.state == revoked {
		if k.held--; k.held == 0 {
			m.emptied(s)
		}
	}
	if k.index != nil {
		delete(k.index, c.seq)
	}
	if k.claims == 0 {
		k.index = nil
	}
}

// find returns the claim with that number.
func (k *stock) find(seq uint64) *claim {
	if k == nil {
		return nil
	}
	if k.index != nil {
		return k.index[seq]
	}
	for c := k.last; c != nil; c = c.prev {
		if c.seq == seq {
			return c
		}
	}
	return nil
}

// retire forgets c, which is listed nowhere any more, and keeps what became of
// it for as long as its client may ask.
func (m *Machine) retire(c *claim, code Code) {
	m.touchClaim(c)
	m.claimDue.remove(c)
	if s := c.s; s != nil {
		m.unlink(c)
		if s.life != dead && c.seq >= s.mark {
			d := m.newDone(s, c.seq, code)
			d.gone, d.token = true, c.token
			if c.state == over {
				d.revision = c.modified
			}
		}
	}
	m.claims.release(c)
}

package core

import (
	"slices"
	"strings"
)

// acquire grants, queues or refuses a request.
func (m *Machine) acquire(s *session, c *Command, r *Result) {
	wants := m.sorted(c.Wants)
	if !m.validAcquire(c, wants, r) || !m.validNames(s.ns, wants, r) || !m.inTime(s, r) {
		return
	}
	own := m.joins(s, c, wants, r)
	if own != nil {
		r.Token, r.Deadline = own.token, own.deadline
	}
	if own != nil || r.Code != CodeOK || !m.roomForClaim(s, r) {
		return
	}
	if m.frozen && (c.Flags&Try != 0 || m.version < 4) {
		r.refuse(CodeUnavailable, TextFrozen+": nothing is granted until that is ended")
		return
	}
	switch busy := m.busy(s, wants); {
	case busy == nil && !m.frozen:
		m.enter(m.newClaim(s, c, wants), r)
	case c.Flags&Try != 0:
		m.held(s, c, busy, r)
	case m.full():
		r.refuse(CodeExhausted, "%d claims wait already, as many as may: try later, or raise that (serve --max-waiters)", m.cfg.Waiters)
	default:
		m.enter(m.newClaim(s, c, wants), r)
	}
}

// inTime refuses to grant anything to a session that only its policy keeps: it has no
// time left in which it could hold it. What it waited for was denied for the same reason.
func (m *Machine) inTime(s *session, r *Result) bool {
	if s.life == alive || m.version < 5 {
		return true
	}
	r.refuse(CodeLost, "the time of the session has passed, and what it holds is stale: renew it, then ask again")
	return false
}

// roomForClaim refuses one claim more than the session may hold or wait for.
func (m *Machine) roomForClaim(s *session, r *Result) bool {
	n := s.has.size()
	if m.version >= 5 {
		n -= s.has.replaced()
	}
	if n >= m.cfg.Holds {
		r.refuse(CodeExhausted, "the session has %d holds and waits, its quota: release some, use another session, or raise it (serve --max-holds)", n)
		return false
	}
	return true
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
		if r != nil && r.queue != nil && r.queue.waiting() >= m.cfg.Waiters {
			return true
		}
	}
	return false
}

// joins finds the granted claim of the session that a re-entrant request joins, or
// refuses because it would have to look at too many.
func (m *Machine) joins(s *session, c *Command, wants []Want, r *Result) *claim {
	if c.Flags&Reentrant == 0 || len(wants) != 1 || m.found[0] == nil {
		return nil
	}
	res := m.found[0]
	switch n := min(res.holders.n, s.has.size()); {
	case n > m.mostWalk() && !m.early:
		r.refuse(CodeExhausted, "the session has %d claims and %q %d holders, too many to see whether it is among them: use a session with fewer claims, or take the name without re-entrance", s.has.size(), wants[0].Name, res.holders.n)
	case !m.walk(n):
		r.walkBusy()
	case res.holders.n <= s.has.size():
		return res.joined(s, &wants[0])
	default:
		return s.has.joined(res, &wants[0], m.version >= 5)
	}
	return nil
}

// joined is the first holder of s that a request can join.
func (r *resource) joined(s *session, w *Want) *claim {
	for p := r.holders.head; p != nil; p = p.next {
		if p.c.s == s && p.joinable(w) {
			return p.c
		}
	}
	return nil
}

// joined is the claim on r that a request can join: of several the one that was granted
// first, as the holders of r have it; or else, as it was once, the one with the least number.
func (k *sessionData) joined(r *resource, w *Want, oldest bool) (found *claim) {
	for c := k.head(); c != nil; c = c.next {
		if c.one[0].r != r || !c.one[0].joinable(w) || found != nil && c.token > found.token {
			continue
		}
		if found = c; !oldest {
			return found
		}
	}
	return found
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
		cl.rare = &claimOptions{maxHold: c.MaxHold, minHold: c.MinHold, delay: c.Delay, value: slices.Clone(c.Value), owner: clone(c.Owner)}
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
	m.dataOf(s).link(c)
	return c
}

// enter grants a new claim at once or puts it into its queues; the claim is then
// its command's record.
func (m *Machine) enter(c *claim, r *Result) {
	m.current, m.made = c, true
	m.admit(c)
	if c.state == waiting {
		m.queued(c)
	}
	m.claimResult(c, r)
}

// admit grants c if nothing stands in its way. Else c waits: its first name is put
// into the queue of that name, and its other names wait until it has the first.
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
	m.markDirty(parts[0].r)
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
		case p.r.queue != nil || p.r.kind == Barrier || p.takes() > p.r.limit-p.r.used:
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
func (k *sessionData) link(c *claim) {
	at := k.lastBefore(c.seq)
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

// lastBefore is the claim with the greatest number below seq.
func (k *sessionData) lastBefore(seq uint64) *claim {
	at := k.last
	if k.index.n > 0 && at.seq >= seq {
		at = nil
		k.index.before(seq, func(c *claim) bool {
			at = c
			return false
		})
		return at
	}
	for at != nil && at.seq >= seq {
		at = at.prev
	}
	return at
}

// indexFrom is the number of claims from which a session finds them by a tree.
const indexFrom = 24

func (k *sessionData) addIndex(c *claim) {
	switch {
	case k.index.n > 0:
		k.index.insert(c)
	case k.claims > indexFrom:
		for o := k.first; o != nil; o = o.next {
			k.index.insert(o)
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
	switch c.state {
	case over:
		k.over--
	case granted, revoked:
		if k.held--; k.held == 0 {
			m.emptied(s)
		}
	}
	k.index.remove(c.seq)
}

// find returns the claim with that number.
func (k *sessionData) find(seq uint64) *claim {
	if k == nil {
		return nil
	}
	if k.index.n > 0 {
		c, _ := k.index.find(seq)
		return c
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
		if s.life != ending && c.seq >= s.mark {
			d := m.newDone(s, c.seq, code)
			d.gone, d.token = true, c.token
			if c.state == over {
				d.revision = c.modified
			}
		}
	}
	m.claims.release(c)
}

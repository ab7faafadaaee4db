package core

import (
	"slices"
	"strings"
)

// Table is the claim table of a session, by number: what waits, what is held,
// what is revoked, and what is over as far as the client has not acknowledged.
func (m *Machine) Table(id SessionID) (rows []ClaimRow, ok bool) {
	s := m.session(id)
	if s == nil {
		return nil, false
	}
	for c := s.has.head(); c != nil; c = c.next {
		row := ClaimRow{Session: id, Seq: c.seq, Token: c.token, Deadline: c.ownDeadline()}
		switch c.state {
		case waiting:
			row.State = ClaimWaiting
		case granted:
			row.State = ClaimGranted
		case revoked:
			row.State, row.Code = ClaimRevoked, CodeRevoked
		case over:
			if c.seq < s.mark {
				continue
			}
			row.State, row.Code, row.Deadline = ClaimGone, CodeLost, 0
		}
		rows = append(rows, row)
	}
	for _, d := range s.has.table() {
		if d != nil && d.gone {
			rows = append(rows, ClaimRow{Session: id, Seq: d.seq, State: ClaimGone, Code: d.code, Token: d.token})
		}
	}
	slices.SortFunc(rows, func(a, b ClaimRow) int { return order(a.Seq, b.Seq) })
	return rows, true
}

// TTL is the time to live of a session that has not ended, in nanoseconds.
func (m *Machine) TTL(id SessionID) (int64, bool) {
	s := m.session(id)
	if s == nil {
		return 0, false
	}
	return s.ttl, true
}

// Session tells what the machine knows of a session that has not ended.
func (m *Machine) Session(id SessionID) (SessionInfo, bool) {
	s := m.session(id)
	if s == nil {
		return SessionInfo{}, false
	}
	i := SessionInfo{
		ID: id, Namespace: s.ns.name, Identity: s.identity, Owner: s.owner, Meta: s.meta,
		TTL: s.ttl, Left: max(0, s.deadline-m.now), Deadline: s.deadline, Opened: s.opened, OpenedAt: s.openedAt,
		Window: s.window, Mark: s.mark, Policy: s.policy, Grace: s.grace,
		Stale: s.life == stale || s.life == lapsed, Revoked: s.revoked,
	}
	for c := s.has.head(); c != nil; c = c.next {
		parts := c.parts()
		for j := range parts {
			switch c.state {
			case waiting:
				i.Waits = append(i.Waits, parts[j].info())
			case granted, revoked:
				i.Claims = append(i.Claims, parts[j].info())
			}
		}
	}
	if keys := s.has.leased(); keys != nil {
		keys.from("", func(k *key) bool {
			i.Keys = append(i.Keys, k.name)
			return true
		})
	}
	return i, true
}

// info tells all of a part but its place in the queue.
func (p *part) info() ClaimInfo {
	c := p.c
	i := ClaimInfo{
		Name: p.r.name, Kind: p.r.kind, Seq: c.seq, Mode: p.mode, Weight: p.weight,
		Token: c.token, Created: c.created, Modified: c.modified, Version: uint64(c.version),
		Since: c.since, Deadline: c.deadline, Ends: c.deadline,
		Reserved: p.place == inSet, Upgrade: p.place == inUpgrade, Revoked: c.state == revoked,
	}
	if c.rare != nil {
		i.Value = c.rare.value
	}
	if s := c.s; s != nil {
		i.Session, i.Identity, i.Owner, i.Meta = s.id, s.identity, c.owner(), s.meta
		i.Stale = s.life == stale || s.life == lapsed
		i.Reclaimable = s.life == lapsed && s.policy == OnNextAcquire
		if i.Ends == 0 || i.Ends > s.deadline {
			i.Ends = s.deadline
		}
	}
	return i
}

// Inspect tells what a name is, who holds it and who waits. A lock or election
// that nobody holds or awaits does not exist.
func (m *Machine) Inspect(namespace, name string) (ResourceInfo, bool) {
	if ns := m.known(namespace); ns != nil {
		if r := ns.lookup(name); r != nil {
			return r.info(), true
		}
	}
	return ResourceInfo{}, false
}

// List inspects the names with the prefix that come after that name, in order,
// at most max of them (0: 100), and says whether there are more.
func (m *Machine) List(namespace, prefix, after string, max int) (list []ResourceInfo, more bool) {
	ns := m.known(namespace)
	if ns == nil {
		return nil, false
	}
	or(&max, 100)
	from := prefix
	if after >= prefix {
		from = after
	}
	ns.order.from(from, func(r *resource) bool {
		switch {
		case !strings.HasPrefix(r.name, prefix):
			return false
		case r.idle || r.name <= after && after != "":
			return true
		case len(list) == max:
			more = true
			return false
		}
		list = append(list, r.info())
		return true
	})
	return list, more
}

func (r *resource) info() ResourceInfo {
	i := ResourceInfo{
		Namespace: r.ns.name, Name: r.name, Kind: r.kind, Limit: r.limit, Used: r.used, Number: r.number,
		Unsigned: r.unsigned, Created: r.created, Modified: r.modified, Version: r.version,
	}
	if r.kind == RWMutex {
		i.Limit, i.Used = 0, int64(r.holders.n)
	}
	for p := r.holders.head; p != nil; p = p.next {
		i.Holders = append(i.Holders, p.info())
	}
	if r.kind == Election && len(i.Holders) > 0 {
		i.Value = i.Holders[0].Value
	}
	if r.line != nil {
		i.Waiters = r.waiters()
	}
	return i
}

func (r *resource) waiters() (list []ClaimInfo) {
	before := r.holders.tail
	r.line.each(func(p *part) {
		w := p.info()
		w.Position = len(list) + 1
		if before != nil {
			w.BeforeSeq = before.c.seq
			if before.c.s != nil {
				w.Before = before.c.s.id
			}
		}
		before = p
		list = append(list, w)
	})
	return list
}

// Namespaces is how many were ever used, since this machine was made or restored.
func (m *Machine) Namespaces() int { return len(m.spaces) }

// HasNamespace reports whether a namespace is one of them.
func (m *Machine) HasNamespace(name string) bool { return m.known(name) != nil }

// Sessions is how many there are in all namespaces.
func (m *Machine) Sessions() int { return len(m.byID) }

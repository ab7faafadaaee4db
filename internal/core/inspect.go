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
		if c.state != over || c.seq >= s.mark {
			rows = append(rows, c.row(id))
		}
	}
	for _, d := range s.has.table() {
		if d != nil && d.gone {
			rows = append(rows, d.row(id))
		}
	}
	slices.SortFunc(rows, func(a, b ClaimRow) int { return order(a.Seq, b.Seq) })
	return rows, true
}

// row tells about a claim of the session id.
func (c *claim) row(id SessionID) ClaimRow {
	row := ClaimRow{Session: id, Seq: c.seq, Token: c.token, Deadline: c.ownDeadline()}
	switch c.state {
	case waiting:
		row.State = ClaimWaiting
	case granted:
		row.State = ClaimGranted
	case revoked:
		row.State, row.Code = ClaimRevoked, CodeRevoked
	case over:
		row.State, row.Code, row.Deadline = ClaimGone, CodeLost, 0
	}
	return row
}

// row tells about a claim of the session id that is gone.
func (d *done) row(id SessionID) ClaimRow {
	return ClaimRow{Session: id, Seq: d.seq, State: ClaimGone, Code: d.code, Token: d.token}
}

// Row is what the claim table of a session says about one number, without making all of it. One
// that the table does not have is gone, with the session or alone.
func (m *Machine) Row(id SessionID, seq uint64) ClaimRow {
	s := m.session(id)
	if s == nil {
		return ClaimRow{Session: id, Seq: seq, State: ClaimGone, Code: CodeNoSession}
	}
	if c := s.has.find(seq); c != nil {
		return c.row(id)
	}
	if d := s.has.result(seq); d != nil && d.gone {
		return d.row(id)
	}
	return ClaimRow{Session: id, Seq: seq, State: ClaimGone, Code: CodeLost}
}

// TTL is the time to live of a session that has not ended, in nanoseconds.
func (m *Machine) TTL(id SessionID) (int64, bool) {
	s := m.session(id)
	if s == nil {
		return 0, false
	}
	return s.ttl, true
}

// Session tells what the machine knows of a session that has not ended, but not
// what it has: that is told by SessionPage.
func (m *Machine) Session(id SessionID) (SessionInfo, bool) {
	s := m.session(id)
	if s == nil {
		return SessionInfo{}, false
	}
	return SessionInfo{
		ID: id, Namespace: s.ns.name, Identity: s.identity, Owner: s.owner, Meta: s.meta,
		TTL: s.ttl, Left: max(0, s.deadline-m.now), Deadline: s.deadline, Opened: s.opened, OpenedAt: s.openedAt,
		Window: s.window, Mark: s.mark, Policy: s.policy, Grace: s.grace,
		Stale: s.life == stale || s.life == lapsed, Revoked: s.revoked,
	}, true
}

// SessionPage is Session with what the session holds, awaits and has of keys, from
// after on and at most max of it (0, or more than MaxClaims: MaxClaims; of a claim
// of several names all are told). Next is where the next page goes on.
func (m *Machine) SessionPage(id SessionID, after Cursor, max int) (SessionInfo, bool) {
	i, ok := m.Session(id)
	if !ok {
		return i, false
	}
	b := pageOf(max, MaxClaims, m.cfg.Result)
	own := m.session(id).has
	if after.list == cursorKeys || own.addClaims(&i, &after, &b) {
		own.addKeys(&i, after, &b)
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

// Inspect tells what a name is, its holders and its waiters: the first MaxClaims of
// them. A lock or election that nobody holds or awaits does not exist.
func (m *Machine) Inspect(namespace, name string) (ResourceInfo, bool) {
	return m.InspectPage(namespace, name, Cursor{}, 0)
}

// Holder tells the hold on a name with a token, of any session.
func (m *Machine) Holder(namespace, name string, token uint64) (ClaimInfo, bool) {
	ns := m.known(namespace)
	if ns == nil {
		return ClaimInfo{}, false
	}
	c := ns.byToken(name, token)
	if c == nil {
		return ClaimInfo{}, false
	}
	parts := c.parts()
	for i := range parts {
		if parts[i].r.name == name {
			return parts[i].info(), true
		}
	}
	return ClaimInfo{}, false
}

// InspectPage is Inspect from after on, with at most max claims (0, or more than
// MaxClaims: MaxClaims) and about as many bytes as a result may have. Next is where
// the next page goes on.
func (m *Machine) InspectPage(namespace, name string, after Cursor, max int) (ResourceInfo, bool) {
	ns := m.known(namespace)
	if ns == nil {
		return ResourceInfo{}, false
	}
	r := ns.lookup(name)
	if r == nil {
		return ResourceInfo{}, false
	}
	i, b := r.info(), pageOf(max, MaxClaims, m.cfg.Result)
	r.addClaims(&i, after, &b)
	return i, true
}

// List inspects the names with the prefix that come after that name, in order, at
// most so many of them (0: 100; more than MaxNames: MaxNames). Of each it tells the
// first claims: where that is not all, its Next is set. next is the name after
// which the next page begins, which need not be one that is told; "": there is
// nothing more.
func (m *Machine) List(namespace, prefix, after string, most int) (list []ResourceInfo, next string) {
	ns := m.known(namespace)
	if ns == nil {
		return nil, ""
	}
	or(&most, 100)
	b := pageOf(most, MaxNames, m.cfg.Result)
	seen, last := 0, after
	ns.order.from(max(prefix, after), func(r *resource) bool {
		switch {
		case r.name == after:
			return true
		case !strings.HasPrefix(r.name, prefix):
			return false
		}
		if seen++; seen > maxNamesSeen || !r.idle && !r.listOn(&list, &b, m.cfg.Result) {
			next = last
			return false
		}
		last = r.name
		return true
	})
	return list, next
}

// listOn adds r to a list if there is room for it and its first claims.
func (r *resource) listOn(list *[]ResourceInfo, b *page, bytes int) bool {
	i, own := r.info(), page{items: fewClaims, bytes: bytes}
	r.addClaims(&i, Cursor{}, &own)
	if !b.take(128 + len(r.name) + bytes - own.bytes) {
		return false
	}
	*list = append(*list, i)
	return true
}

// info tells all of a name but its claims.
func (r *resource) info() ResourceInfo {
	i := ResourceInfo{
		Namespace: r.ns.name, Name: r.name, Kind: r.kind, Limit: r.limit, Used: r.used, Number: r.number,
		Unsigned: r.unsigned, Created: r.created, Modified: r.modified, Version: r.version, Holding: r.holders.n,
	}
	if r.queue != nil {
		i.Waiting = r.queue.waiting()
	}
	if r.kind == RWMutex {
		i.Limit, i.Used = 0, int64(r.holders.n)
	}
	if p := r.holders.head; r.kind == Election && p != nil && p.c.rare != nil {
		i.Value = p.c.rare.value
	}
	return i
}

// Namespaces is how many were ever used, since this machine was made or restored.
func (m *Machine) Namespaces() int { return len(m.spaces) }

// HasNamespace reports whether a namespace is one of them.
func (m *Machine) HasNamespace(name string) bool { return m.known(name) != nil }

// BadNamespace says why a name is none of a namespace; "": it is one.
func (m *Machine) BadNamespace(name string) string {
	if name == "" {
		return "" // the default
	}
	return m.badName(name)
}

// Sessions is how many there are in all namespaces.
func (m *Machine) Sessions() int { return len(m.byID) }

// LongestTTL is the greatest of all sessions, in nanoseconds. It looks at each of them.
func (m *Machine) LongestTTL() (longest int64) {
	m.sessions.each(func(s *session) { longest = max(longest, s.ttl) })
	return longest
}

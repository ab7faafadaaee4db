package core

import "math"

// rwCapacity is what a writer takes: more than there can be readers.
const rwCapacity = math.MaxInt64 >> 2

// idleList holds the free names that are remembered, oldest first. To every
// reader such a name does not exist: the list only saves making it anew.
type idleList struct {
	first, last *resource
	n           int
}

// lookup returns what the name is; nil if it is free.
func (ns *namespace) lookup(name string) *resource { return ns.names[name].inUse() }

// inUse is r if it is more than remembered.
func (r *resource) inUse() *resource {
	if r == nil || r.idle {
		return nil
	}
	return r
}

// name returns the resource of that name, made as kind if it is free.
func (m *Machine) name(ns *namespace, name string, kind Kind, limit int64) *resource {
	return m.obtain(ns.names[name], ns, name, kind, limit)
}

// obtain is name, with what is remembered of it.
func (m *Machine) obtain(r *resource, ns *namespace, name string, kind Kind, limit int64) *resource {
	switch {
	case r == nil:
		r = m.resources.alloc(m.epoch)
		r.ns, r.name = ns, clone(name)
		ns.names[r.name] = r
		ns.order.insert(r)
	case r.idle:
		m.touchResource(r)
		m.unrest(r)
	default:
		return r
	}
	ns.inUse++
	r.kind, r.limit = kind, capacity(kind, limit)
	r.created, r.version, r.number, r.unsigned, r.limiter = 0, 0, 0, false, nil
	if kind == Latch {
		r.number = uint64(limit)
	}
	return r
}

func capacity(kind Kind, limit int64) int64 {
	switch kind {
	case Mutex, Election:
		return 1
	case RWMutex:
		return rwCapacity
	}
	return limit
}

// stamp notes that r changed at the last revision.
func (m *Machine) stamp(r *resource) {
	if r.created == 0 {
		r.created = m.revision
	}
	r.modified = m.revision
	r.version++
}

// rest makes r free.
func (m *Machine) rest(r *resource) {
	m.touchResource(r)
	r.idle = true
	r.ns.inUse--
	l := &m.idle
	if r.prevIdle = l.last; l.last == nil {
		l.first = r
	} else {
		l.last.nextIdle = r
	}
	l.last = r
	l.n++
}

func (m *Machine) unrest(r *resource) {
	l := &m.idle
	if r.prevIdle == nil {
		l.first = r.nextIdle
	} else {
		r.prevIdle.nextIdle = r.nextIdle
	}
	if r.nextIdle == nil {
		l.last = r.prevIdle
	} else {
		r.nextIdle.prevIdle = r.prevIdle
	}
	r.prevIdle, r.nextIdle, r.idle = nil, nil, false
	l.n--
}

// sweep forgets the free names that were longest free.
func (m *Machine) sweep() {
	for m.idle.n > m.cfg.Idle {
		r := m.idle.first
		if r.dirty() {
			return // it is still to be seen that nobody waits
		}
		m.touchResource(r)
		m.unrest(r)
		m.discard(r)
	}
}

// discard removes a name that nobody has. Only while frozen can it still be
// noted to be served.
func (m *Machine) discard(r *resource) {
	m.dirty.remove(r)
	r.ns.names = without(r.ns.names, r.name, &r.ns.mostNames)
	r.ns.order.remove(r.name)
	m.resources.release(r)
}

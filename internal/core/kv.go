package core

import (
	"bytes"
	"slices"
	"strings"
)

// row is the key as it is told.
func (k *key) row() Key {
	r := Key{Name: k.name, Value: k.value, Created: k.created, Modified: k.modified, Version: k.version, Deadline: k.deadline}
	if k.session != nil {
		r.Session = k.session.id
	}
	return r
}

// matching calls f with the key, or with all keys that have the prefix, in
// order, until it says false.
func (ns *namespace) matching(name string, prefix bool, f func(*key) bool) {
	if !prefix {
		if k := ns.keys[name]; k != nil {
			f(k)
		}
		return
	}
	ns.keyOrder.from(name, func(k *key) bool {
		return strings.HasPrefix(k.name, name) && f(k)
	})
}

// put writes a key at the last revision.
func (m *Machine) put(ns *namespace, o *KeyOp) (prev Key) {
	k := ns.keys[o.Key]
	if k == nil {
		k = m.keys.alloc(m.epoch)
		k.ns, k.name, k.created = ns, clone(o.Key), m.revision
		ns.keys[k.name] = k
		ns.keyOrder.insert(k)
	} else {
		prev = k.row()
		m.touchKey(k)
	}
	k.value, k.modified = slices.Clone(o.Value), m.revision
	k.version++
	m.bind(k, m.byID[o.Session])
	k.deadline = 0
	if o.Expire > 0 {
		k.deadline = m.now + o.Expire
		m.keyDue.set(k, k.deadline)
	} else {
		m.keyDue.remove(k)
	}
	e := m.emit()
	e.Kind, e.Verb, e.Namespace, e.Name = EventKV, VerbPut, ns.name, k.name
	e.Session, e.KeyChange = o.Session, &KeyChange{Key: k.row(), Prev: prev}
	return prev
}

// bind makes k end with s; nil: with nobody.
func (m *Machine) bind(k *key, s *session) {
	if k.session == s {
		return
	}
	if k.session != nil {
		k.session.has.keys.remove(k.name)
	}
	if k.session = s; s == nil {
		return
	}
	own := m.dataOf(s)
	if own.keys == nil {
		own.keys = &tree[string, *key]{}
	}
	own.keys.insert(k)
}

// dropKey removes a key at the last revision.
func (m *Machine) dropKey(k *key, why Code) {
	m.touchKey(k)
	e := m.emit()
	e.Kind, e.Verb, e.Namespace, e.Name, e.Reason = EventKV, VerbDelete, k.ns.name, k.name, why
	row := k.row()
	e.Session, e.KeyChange = row.Session, &KeyChange{Key: row, Prev: row}
	m.bind(k, nil)
	m.keyDue.remove(k)
	k.ns.keys = without(k.ns.keys, k.name, &k.ns.mostKeys)
	k.ns.keyOrder.remove(k.name)
	m.keys.release(k)
}

func (k *key) compare(c *Compare) int {
	switch c.Target {
	case CompareMod:
		return order(k.modified, c.Num)
	case CompareCreate:
		return order(k.created, c.Num)
	case CompareVersion:
		return order(k.version, c.Num)
	case CompareValue:
		return bytes.Compare(k.value, c.Value)
	}
	var session SessionID
	if k.session != nil {
		session = k.session.id
	}
	return bytes.Compare(session[:], c.Session[:])
}

func order(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func related(sign int, is Relation) bool {
	switch is {
	case Equal:
		return sign == 0
	case NotEqual:
		return sign != 0
	case Less:
		return sign < 0
	}
	return sign > 0
}

package core

import (
	"bytes"
	"slices"
	"strings"
)

// txn runs one branch, all of it or nothing, at one revision.
func (m *Machine) txn(ns *namespace, c *Command, r *Result) {
	if !m.validTxn(c, r) {
		return
	}
	ok := !slices.ContainsFunc(c.If, func(i Compare) bool { return !ns.holds(&i) })
	ops := c.Then
	if !ok {
		ops = c.Else
	}
	if !m.validBranch(ns, ops, r) || !m.validDeletes(ns, ops, r) {
		return
	}
	r.OK = ok
	r.Keys = make([]KeyResult, len(ops))
	t := transaction{m: m, ns: ns, room: m.cfg.Result}
	for i := range ops {
		t.do(&ops[i], &r.Keys[i])
	}
	r.Revision = m.revision
}

// validTxn checks all that does not depend on the state.
func (m *Machine) validTxn(c *Command, r *Result) bool {
	if n := len(c.If) + len(c.Then) + len(c.Else); n > m.cfg.Ops {
		r.refuse(CodeInvalid, "%d compares and operations in one transaction: at most %d are allowed", n, m.cfg.Ops)
		return false
	}
	for i := range c.If {
		if !m.validCompare(&c.If[i], r) {
			return false
		}
	}
	for _, ops := range [...][]KeyOp{c.Then, c.Else} {
		for i := range ops {
			if !m.validKeyOp(&ops[i], r) {
				return false
			}
		}
	}
	return true
}

func (m *Machine) validKey(name string, prefix bool, r *Result) bool {
	return prefix && name == "" || m.validName(name, r)
}

func (m *Machine) validCompare(c *Compare, r *Result) bool {
	switch {
	case !m.validKey(c.Key, c.Prefix, r):
	case c.Target > CompareLease || c.Is > Greater:
		r.refuse(CodeInvalid, "a compare of %q has an unknown target or relation", c.Key)
	case c.Target == CompareLease && c.Is > NotEqual:
		r.refuse(CodeInvalid, "leases of %q have no order: compare them for equality", c.Key)
	default:
		return true
	}
	return false
}

func (m *Machine) validKeyOp(o *KeyOp, r *Result) bool {
	switch {
	case !m.validKey(o.Key, o.Prefix, r) || !validSpan("an expiry", o.Expire, r):
	case o.Kind > KeyDelete || o.Sort > ByValue:
		r.refuse(CodeInvalid, "an operation on %q has an unknown kind or order", o.Key)
	case o.Kind == KeyPut && o.Prefix:
		r.refuse(CodeInvalid, "a prefix cannot be put: name the key")
	default:
		return true
	}
	return false
}

// validBranch checks what the branch that is to run needs.
func (m *Machine) validBranch(ns *namespace, ops []KeyOp, r *Result) bool {
	made := 0
	for i := range ops {
		o := &ops[i]
		if o.Kind != KeyPut {
			continue
		}
		if ns.keys[o.Key] == nil {
			made++
		}
		if o.Lease == (SessionID{}) {
			continue
		}
		if s := m.session(o.Lease); s == nil || s.ns != ns {
			r.refuse(CodeNotExist, "the lease of %q does not exist (any more): open a session first", o.Key)
			return false
		}
	}
	if made > 0 && len(ns.keys)+made > m.cfg.Keys {
		r.refuse(CodeExhausted, "namespace %q has %d keys, its quota: delete some, or raise it (serve --max-keys)", ns.name, len(ns.keys))
		return false
	}
	return true
}

// transaction runs operations; the first that writes takes the revision.
type transaction struct {
	m     *Machine
	ns    *namespace
	wrote bool
	room  int // bytes that may still be returned
}

func (t *transaction) write() {
	if !t.wrote {
		t.wrote = true
		t.m.next()
	}
}

func (t *transaction) do(o *KeyOp, r *KeyResult) {
	switch o.Kind {
	case KeyPut:
		t.put(o, r)
	case KeyDelete:
		t.delete(o, r)
	default:
		t.get(o, r)
	}
}

func (t *transaction) put(o *KeyOp, r *KeyResult) {
	t.write()
	if prev := t.m.put(t.ns, o); prev.Version > 0 {
		r.Count = 1
		if o.Previous {
			t.add(r, prev)
		}
	}
}

func (t *transaction) get(o *KeyOp, r *KeyResult) {
	var found []*key
	t.ns.matching(o.Key, o.Prefix, func(k *key) bool {
		found = append(found, k)
		return true
	})
	r.Count = uint64(len(found))
	if o.Sort != ByKey || o.Desc {
		slices.SortStableFunc(found, o.compare)
	}
	for _, k := range found {
		if o.Limit != 0 && uint64(len(r.Keys)) == o.Limit {
			r.More = true
			return
		}
		row := k.row()
		if o.KeysOnly {
			row.Value = nil
		}
		if !t.add(r, row) {
			return
		}
	}
}

// add returns a key as long as there is room.
func (t *transaction) add(r *KeyResult, k Key) bool {
	size := len(k.Name) + len(k.Value) + 64
	if size > t.room {
		r.More = true
		return false
	}
	t.room -= size
	r.Keys = append(r.Keys, k)
	return true
}

// compare orders by what o says, equal ones as they come: by key.
func (o *KeyOp) compare(a, b *key) int {
	sign := 0
	switch o.Sort {
	case ByKey:
		sign = strings.Compare(a.name, b.name)
	case ByVersion:
		sign = order(a.version, b.version)
	case ByCreate:
		sign = order(a.created, b.created)
	case ByMod:
		sign = order(a.modified, b.modified)
	case ByValue:
		sign = bytes.Compare(a.value, b.value)
	}
	if o.Desc {
		return -sign
	}
	return sign
}

// Read answers a command that changes nothing: OpCount with CountLoad,
// OpReserve and OpCountDown with A 0, and OpTxn whose operations are all
// KeyGet. Any other is refused. It anchors nothing.
func (m *Machine) Read(namespace string, c *Command) Result {
	r := Result{Seq: c.Seq, Revision: m.revision}
	ns := m.known(namespace)
	if ns == nil {
		ns = &noSpace
	}
	switch {
	case c.Op == OpCount && c.Count == CountLoad:
		m.count(ns, c, &r)
	case c.Op == OpReserve && c.A == 0:
		m.reserveNumbers(ns, c, &r)
	case c.Op == OpCountDown && c.A == 0:
		m.countDown(ns, c, &r)
	case c.Op == OpTxn && onlyGets(c):
		m.txn(ns, c, &r)
	default:
		r.refuse(CodeInvalid, "op %d changes something: send it as a command", c.Op)
	}
	return r
}

// noSpace is a namespace that nothing was ever put into.
var noSpace = namespace{name: "default"}

func onlyGets(c *Command) bool {
	writes := func(o KeyOp) bool { return o.Kind != KeyGet }
	return !slices.ContainsFunc(c.Then, writes) && !slices.ContainsFunc(c.Else, writes)
}

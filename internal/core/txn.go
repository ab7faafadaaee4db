package core

import "slices"

// txn runs one branch, all of it or nothing, at one revision.
func (m *Machine) txn(ns *namespace, c *Command, r *Result) {
	if !m.validTxn(c, r) {
		return
	}
	t := transaction{m: m, ns: ns, room: m.cfg.Result, looks: m.looks()}
	ok := t.all(c.If)
	ops := c.Then
	if !ok {
		ops = c.Else
	}
	if !t.fits(r) || !m.validBranch(ns, ops, r) || !t.reserve(ops, r) {
		return
	}
	r.OK = ok
	r.Keys = make([]KeyResult, len(ops))
	for i := range ops {
		t.do(&ops[i], &r.Keys[i])
	}
	if !t.fits(r) {
		r.OK, r.Keys = false, nil
		return
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
	case c.Target > CompareSession || c.Is > Greater:
		r.refuse(CodeInvalid, "a compare of %q has an unknown target or relation", c.Key)
	case c.Target == CompareSession && c.Is > NotEqual:
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
	case o.After != "" && (!o.ranges() || o.Sort != ByKey):
		r.refuse(CodeInvalid, "an operation on %q begins after another key: only a range in order of key can", o.Key)
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
		if o.Session == (SessionID{}) {
			continue
		}
		if s := m.session(o.Session); s == nil || s.ns != ns {
			r.refuse(CodeNotExist, "the lease of %q does not exist (any more): open a session first", o.Key)
			return false
		}
	}
	if m.version < 5 {
		return m.roomForKeys(ns, made, r) && m.validDeletes(ns, ops, r)
	}
	return m.validDeletes(ns, ops, r) && (len(ns.keys)+made <= m.cfg.Keys || m.roomForKeys(ns, ns.more(ops), r))
}

// roomForKeys refuses to make the keys so many more.
func (m *Machine) roomForKeys(ns *namespace, more int, r *Result) bool {
	if more > 0 && len(ns.keys)+more > m.cfg.Keys {
		r.refuse(CodeExhausted, "namespace %q has %d keys, its quota: delete some, or raise it (serve --max-keys)", ns.name, len(ns.keys))
		return false
	}
	return true
}

// more is how many keys more ops leave than there are. What a page deletes is known only
// afterwards, and does not count.
func (ns *namespace) more(ops []KeyOp) (n int) {
	there := map[string]bool{}
	for i := range ops {
		switch o := &ops[i]; {
		case o.Kind == KeyPut:
			there[o.Key] = true
		case o.Kind == KeyDelete && !o.pages():
			ns.deleted(o, ops[:i], there)
		}
	}
	for name, is := range there { // in any order: it is a sum
		switch was := ns.keys[name] != nil; {
		case is && !was:
			n++
		case was && !is:
			n--
		}
	}
	return n
}

// deleted notes that the keys that o deletes are there no more, those put before it too.
func (ns *namespace) deleted(o *KeyOp, before []KeyOp, there map[string]bool) {
	ns.matching(o.Key, o.Prefix, func(k *key) bool {
		there[k.name] = false
		return true
	})
	for i := range before {
		if p := &before[i]; p.Kind == KeyPut && o.matches(p.Key) {
			there[p.Key] = false
		}
	}
}

// transaction runs operations; the first that writes takes the revision.
type transaction struct {
	m      *Machine
	ns     *namespace
	wrote  bool
	writes bool   // some operation does
	room   int    // bytes that ranges may still return; all else is reserved
	looks  int    // keys that may still be looked at
	over   string // what does not fit, and what to do; "": all does
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
			t.add(r, prev, t.m.early)
		}
	}
}

// Read answers a command that changes nothing: OpCount with CountLoad,
// OpReserve and OpCountDown with A 0, and OpTxn with no operation but KeyGet. A
// limiter is never read: what it answers needs the time of an entry. Any other is refused. It anchors nothing.
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

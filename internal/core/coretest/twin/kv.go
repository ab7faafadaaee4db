package twin

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/core"
)

// key is a key of a namespace.
type key struct {
	ns string
	core.Key
}

// txn runs one branch, all of it or nothing, at one revision.
func (t *Twin) txn(s *session, c core.Command) core.Result {
	if code := t.checkTxn(s, c); code != core.CodeOK {
		return core.Result{Code: code}
	}
	w := writer{t: t, ns: s.ns, purse: t.purse()}
	ok := !slices.ContainsFunc(c.If, func(i core.Compare) bool { return !w.holdsTrue(i) })
	ops := c.Then
	if !ok {
		ops = c.Else
	}
	if w.broke {
		return core.Result{Code: core.CodeExhausted}
	}
	if code := t.checkSessions(s, ops); code != core.CodeOK {
		return core.Result{Code: code}
	}
	if code := t.checkDeletes(s, ops); code != core.CodeOK {
		return core.Result{Code: code}
	}
	if t.tooMany(s, ops) {
		return core.Result{Code: core.CodeExhausted}
	}
	if w.reserve(ops); w.broke {
		return core.Result{Code: core.CodeExhausted}
	}
	r := core.Result{OK: ok, Keys: []core.KeyResult{}}
	for _, op := range ops {
		r.Keys = append(r.Keys, w.do(op))
	}
	if w.broke {
		return core.Result{Code: core.CodeExhausted}
	}
	r.Revision = t.revision
	return r
}

// checkTxn refuses what makes no sense, in the branch that does not run too.
func (t *Twin) checkTxn(s *session, c core.Command) core.Code {
	for _, i := range c.If {
		if i.Target > core.CompareSession || i.Is > core.Greater || !goodKey(i.Key, i.Prefix) ||
			i.Target == core.CompareSession && i.Is > core.NotEqual {
			return core.CodeInvalid
		}
	}
	for _, op := range slices.Concat(c.Then, c.Else) {
		if op.Kind > core.KeyDelete || op.Sort > core.ByValue || op.Expire < 0 || !goodKey(op.Key, op.Prefix) ||
			op.Kind == core.KeyPut && op.Prefix || op.After != "" && (op.Kind != core.KeyGet || !op.Prefix || op.Sort != core.ByKey) {
			return core.CodeInvalid
		}
	}
	return core.CodeOK
}

func goodKey(k string, prefix bool) bool { return prefix && k == "" || goodName(k) }

func (t *Twin) checkSessions(s *session, ops []core.KeyOp) core.Code {
	for _, op := range ops {
		if op.Kind != core.KeyPut || op.Session == (core.SessionID{}) {
			continue
		}
		if l := t.session(op.Session); l == nil || l.ns != s.ns {
			return core.CodeNotExist
		}
	}
	return core.CodeOK
}

// checkDeletes refuses to delete more keys at once than one entry may; a page takes
// what it gets.
func (t *Twin) checkDeletes(s *session, ops []core.KeyOp) core.Code {
	n := 0
	for _, op := range ops {
		if op.Kind == core.KeyDelete && op.Prefix && op.Limit == 0 {
			n += len(t.match(s.ns, op.Key, true))
		}
	}
	switch {
	case n > t.cfg.Budget:
		return core.CodeExhausted
	case n > t.deletes && n > named:
		return core.CodeUnavailable
	}
	return core.CodeOK
}

// tooMany says whether a namespace would have more keys after ops than it may, and than it has.
// A page counts as if it deleted nothing.
func (t *Twin) tooMany(s *session, ops []core.KeyOp) bool {
	var before, after []string
	for _, k := range t.match(s.ns, "", true) {
		before = append(before, k.Name)
	}
	after = slices.Clone(before)
	for _, op := range ops {
		switch {
		case op.Kind == core.KeyPut && !slices.Contains(after, op.Key):
			after = append(after, op.Key)
		case op.Kind == core.KeyDelete && !(op.Prefix && op.Limit != 0):
			after = slices.DeleteFunc(after, func(k string) bool { return k == op.Key || op.Prefix && strings.HasPrefix(k, op.Key) })
		}
	}
	return len(after) > len(before) && above(len(after), t.cfg.Keys)
}

// named is how many keys a transaction could delete by name.
const named = 128

func (k *key) compare(c core.Compare) int {
	switch c.Target {
	case core.CompareMod:
		return cmp.Compare(k.Modified, c.Num)
	case core.CompareCreate:
		return cmp.Compare(k.Created, c.Num)
	case core.CompareVersion:
		return cmp.Compare(k.Version, c.Num)
	case core.CompareValue:
		return bytes.Compare(k.Value, c.Value)
	}
	return bytes.Compare(k.Session[:], c.Session[:])
}

func compareTo(sign int, is core.Relation) bool {
	switch is {
	case core.Equal:
		return sign == 0
	case core.NotEqual:
		return sign != 0
	case core.Less:
		return sign < 0
	}
	return sign > 0
}

// match lists keys in order.
func (t *Twin) match(ns, k string, prefix bool) []*key {
	var found []*key
	for _, o := range t.keys {
		if o.ns == ns && (o.Name == k || prefix && strings.HasPrefix(o.Name, k)) {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b *key) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// writer runs the operations of one transaction; its first write takes the
// revision.
type writer struct {
	t      *Twin
	ns     string
	writes bool // some operation does
	wrote  bool
	purse
}

func (w *writer) revision() uint64 {
	if !w.wrote {
		w.wrote = true
		return w.t.next()
	}
	return w.t.revision
}

func (w *writer) do(op core.KeyOp) core.KeyResult {
	switch op.Kind {
	case core.KeyPut:
		return w.put(op)
	case core.KeyDelete:
		return w.delete(op)
	}
	return w.get(op)
}

func (k *key) sortBy(o *key, by core.SortBy) int {
	switch by {
	case core.ByVersion:
		return cmp.Compare(k.Version, o.Version)
	case core.ByCreate:
		return cmp.Compare(k.Created, o.Created)
	case core.ByMod:
		return cmp.Compare(k.Modified, o.Modified)
	case core.ByValue:
		return bytes.Compare(k.Value, o.Value)
	}
	return strings.Compare(k.Name, o.Name)
}

func (w *writer) put(op core.KeyOp) core.KeyResult {
	rev := w.revision()
	var prev core.Key
	r := core.KeyResult{}
	found := w.t.match(w.ns, op.Key, false)
	if len(found) == 0 {
		k := &key{ns: w.ns, Key: core.Key{Name: strings.Clone(op.Key), Created: rev}}
		w.t.keys = append(w.t.keys, k)
		found = []*key{k}
	} else {
		prev = found[0].Key
		r.Count = 1
		if op.Previous {
			r.Keys = []core.Key{prev}
		}
	}
	k := found[0]
	k.Value, k.Session, k.Modified, k.Version = bytes.Clone(op.Value), op.Session, rev, k.Version+1
	k.Deadline = 0
	if op.Expire > 0 {
		k.Deadline = w.t.now + op.Expire
	}
	w.t.event(core.Event{Kind: core.EventKV, Verb: core.VerbPut, Namespace: w.ns, Name: k.Name, Session: k.Session,
		KeyChange: &core.KeyChange{Key: k.Key, Prev: prev}})
	return r
}

func (w *writer) delete(op core.KeyOp) core.KeyResult {
	var r core.KeyResult
	found := w.t.match(w.ns, op.Key, op.Prefix)
	if most := min(op.Limit, uint64(max(0, w.t.deletes))); op.Prefix && op.Limit != 0 && uint64(len(found)) > most {
		found, r.More = found[:most], true
	}
	for _, k := range found {
		size := weight(op, k.Name, k.Value)
		if op.Previous && op.Prefix && op.Limit != 0 {
			if size > w.bytes {
				r.More = true
				return r
			}
			w.pay(size, 0)
		}
		w.revision()
		r.Count++
		if op.Prefix {
			w.t.deletes--
		}
		if op.Previous {
			r.Keys = append(r.Keys, k.Key)
		}
		w.t.dropKey(k, core.CodeOK)
	}
	return r
}

// dropKey removes a key at the last revision.
func (t *Twin) dropKey(k *key, why core.Code) {
	t.keys = slices.DeleteFunc(t.keys, func(o *key) bool { return o == k })
	t.event(core.Event{
		Kind: core.EventKV, Verb: core.VerbDelete, Namespace: k.ns, Name: k.Name, Session: k.Session, Reason: why,
		KeyChange: &core.KeyChange{Key: k.Key, Prev: k.Key},
	})
}

// keyDue removes a key by its own deadline.
func (t *Twin) keyDue(k *key) {
	t.next()
	t.dropKey(k, core.CodeTimeout)
}

// dropBoundKeys removes the keys that end with s; false: the budget ended first.
func (t *Twin) dropBoundKeys(s *session) bool {
	own := slices.DeleteFunc(t.match(s.ns, "", true), func(k *key) bool { return k.Session != s.id })
	for _, k := range own {
		if t.budget <= 0 {
			return false
		}
		t.budget--
		t.next()
		t.dropKey(k, core.CodeNoSession)
	}
	return true
}

package core

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// The reads of one transaction share one budget of bytes and of keys that are
// looked at, so that no call keeps the machine long. A range in order of key is cut
// where the budget ends, and can go on after its last key. Nothing else may be cut:
// a key that is left out would look absent. What does not fit refuses the whole
// transaction before it changes anything.

// looks is how many keys one transaction may look at.
func (m *Machine) looks() int { return max(1, int(int64(m.cfg.Result)*10_000>>20)) }

// ranges says whether o reads the keys with a prefix.
func (o *KeyOp) ranges() bool { return o.Kind == KeyGet && o.Prefix }

// pages says whether o deletes a page of the keys with a prefix: what it cannot tell
// of stays for the next.
func (o *KeyOp) pages() bool { return o.Kind == KeyDelete && o.Prefix && o.Limit != 0 }

// matches says whether o is about a key.
func (o *KeyOp) matches(name string) bool {
	return name == o.Key || o.Prefix && strings.HasPrefix(name, o.Key)
}

// size is what a key takes of a result.
func (o *KeyOp) size(name string, value []byte) int {
	if o.KeysOnly {
		value = nil
	}
	return len(name) + len(value) + 64
}

// exceeds notes what does not fit; the first counts.
func (t *transaction) exceeds(format string, args ...any) {
	if t.over == "" {
		t.over = fmt.Sprintf(format, args...)
	}
}

// fits refuses the transaction if something does not fit.
func (t *transaction) fits(r *Result) bool {
	if t.over != "" {
		r.refuse(CodeExhausted, "%s", t.over)
	}
	return t.over == ""
}

// look takes n of the keys that may be looked at; false: there are not so many.
func (t *transaction) look(n int) bool {
	if n > t.looks {
		return false
	}
	t.looks -= n
	return true
}

// all says whether every condition is true.
func (t *transaction) all(list []Compare) bool {
	return !slices.ContainsFunc(list, func(c Compare) bool { return !t.holds(&c) })
}

// holds says whether a condition is true of its key, or of all with the prefix;
// without any, of an absent one.
func (t *transaction) holds(c *Compare) bool {
	found, all := false, true
	t.ns.matching(c.Key, c.Prefix, func(k *key) bool {
		if found = true; !t.look(1) && !t.m.early {
			t.exceeds("the conditions look at more than %d keys: give longer prefixes", t.m.looks())
			return false
		}
		all = related(k.compare(c), c.Is)
		return all
	})
	if !found {
		return c.Target < CompareValue && related(order(0, c.Num), c.Is)
	}
	return all
}

// reserve sets aside what cannot be cut: keys that are read by their names and what
// was there before, and in a transaction that writes all that would be refused too
// late. It reckons with what is there now and all that is put before, which is at
// least as much as will be found.
func (t *transaction) reserve(ops []KeyOp, r *Result) bool {
	t.writes = slices.ContainsFunc(ops, func(o KeyOp) bool { return o.Kind != KeyGet })
	for i := range ops {
		o := &ops[i]
		switch {
		case t.m.early:
		case o.ranges() && t.writes && (o.Sort != ByKey || o.Count):
			t.reserveRange(o, ops[:i])
		case o.Kind == KeyGet && !o.Prefix || o.Kind != KeyGet && o.Previous && !o.pages():
			t.reserveKeys(o, ops[:i])
		}
	}
	return t.fits(r)
}

func (t *transaction) reserveKeys(o *KeyOp, before []KeyOp) {
	keys, size := t.most(o, before)
	if size > t.room || o.Kind == KeyGet && !t.look(keys) {
		t.exceeds("what the transaction reads of %q does not fit into one answer of %d bytes and %d keys: read or delete fewer keys in one, or leave the values out",
			o.Key, t.m.cfg.Result, t.m.looks())
		return
	}
	t.room -= size
}

func (t *transaction) reserveRange(o *KeyOp, before []KeyOp) {
	keys, size := t.most(o, before)
	if o.Sort == ByKey {
		size = 0 // it may be cut
	}
	if size > t.room || !t.look(keys) {
		t.exceedsRange(o)
		return
	}
	t.room -= size
}

func (t *transaction) exceedsRange(o *KeyOp) {
	if o.Sort == ByKey {
		t.exceeds("more than %d keys begin with %q, too many to be counted in one call: range over them, page by page", t.m.looks(), o.Key)
		return
	}
	t.exceeds("a range of %q in another order than that of keys looks at more than %d keys, or returns more than %d bytes: range in order of key, page by page, or give a longer prefix, a lower limit, or leave the values out",
		o.Key, t.m.looks(), t.m.cfg.Result)
}

// most is what an operation can find at its turn, in keys and bytes. It stops
// counting where that is too much.
func (t *transaction) most(o *KeyOp, before []KeyOp) (keys, size int) {
	t.ns.matching(o.Key, o.Prefix, func(k *key) bool {
		keys++
		size += o.size(k.name, k.value)
		return size <= t.room || o.Sort == ByKey && o.Count && keys <= t.looks
	})
	for i := range before {
		if b := &before[i]; b.Kind == KeyPut && o.matches(b.Key) {
			keys++
			size += o.size(b.Key, b.Value)
		}
	}
	return keys, size
}

func (t *transaction) get(o *KeyOp, r *KeyResult) {
	switch {
	case t.m.early:
		t.getEarly(o, r)
		return
	case !o.Prefix:
		if k := t.ns.keys[o.Key]; k != nil {
			r.add(o, k)
		}
	case o.Sort == ByKey:
		t.page(o, r)
	default:
		t.sorted(o, r)
		return
	}
	if r.Count = uint64(len(r.Keys)); o.Count && (r.More || o.After != "") {
		r.Count = t.count(o)
	}
}

// add tells of what a write found. Its room is reserved, or it is drawn, and false if
// there is none.
func (t *transaction) add(r *KeyResult, k Key, draw bool) bool {
	if size := len(k.Name) + len(k.Value) + 64; draw {
		if size > t.room {
			r.More = true
			return false
		}
		t.room -= size
	}
	r.Keys = append(r.Keys, k)
	return true
}

// getEarly reads by the rules of version 1: what does not fit is left out, and all
// keys are counted.
func (t *transaction) getEarly(o *KeyOp, r *KeyResult) {
	var found []*key
	t.ns.matching(o.Key, o.Prefix, func(k *key) bool {
		found = append(found, k)
		return true
	})
	r.Count = uint64(len(found))
	if o.Sort != ByKey || o.Desc {
		slices.SortStableFunc(found, o.compare) // equal ones up also in a descending order
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
		if !t.add(r, row, true) {
			return
		}
	}
}

func (r *KeyResult) add(o *KeyOp, k *key) {
	row := k.row()
	if o.KeysOnly {
		row.Value = nil
	}
	r.Keys = append(r.Keys, row)
}

// page takes keys in their order as long as there is room.
func (t *transaction) page(o *KeyOp, r *KeyResult) {
	t.ns.walk(o, func(k *key) bool {
		size := o.size(k.name, k.value)
		if o.Limit != 0 && uint64(len(r.Keys)) == o.Limit || size > t.room || !t.look(1) {
			r.More = true
			return false
		}
		t.room -= size
		r.add(o, k)
		return true
	})
}

// count is how many keys a range is about. A transaction that writes has reserved
// it.
func (t *transaction) count(o *KeyOp) (n uint64) {
	t.ns.matching(o.Key, true, func(*key) bool {
		if n++; !t.writes && !t.look(1) {
			t.exceedsRange(o)
			return false
		}
		return true
	})
	return n
}

// sorted takes keys in another order than their own, all of them or as many as the
// limit says. A transaction that writes has reserved them.
func (t *transaction) sorted(o *KeyOp, r *KeyResult) {
	var found []*key
	t.ns.matching(o.Key, true, func(k *key) bool {
		if !t.writes && !t.look(1) {
			t.exceedsRange(o)
			return false
		}
		found = append(found, k)
		return true
	})
	slices.SortFunc(found, o.order)
	r.Count = uint64(len(found))
	if o.Limit != 0 && r.Count > o.Limit {
		found, r.More = found[:o.Limit], true
	}
	for _, k := range found {
		size := o.size(k.name, k.value)
		if !t.writes && size > t.room {
			t.exceedsRange(o)
			return
		}
		if !t.writes {
			t.room -= size
		}
		r.add(o, k)
	}
	if !o.Count {
		r.Count = uint64(len(found))
	}
}

// order is compare, with equal ones by key: none are equal to it.
func (o *KeyOp) order(a, b *key) int {
	if n := o.compare(a, b); n != 0 {
		return n
	}
	if o.Desc {
		a, b = b, a
	}
	return strings.Compare(a.name, b.name)
}

// compare orders by what o says.
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

// walk calls f with the keys of a range in order of key, up or down, from where o
// begins, until it says false.
func (ns *namespace) walk(o *KeyOp, f func(*key) bool) {
	in := func(k *key) bool { return strings.HasPrefix(k.name, o.Key) && f(k) }
	if o.Desc {
		end := behind(o.Key)
		if o.After != "" && (end == "" || o.After < end) {
			end = o.After
		}
		ns.keyOrder.before(end, in)
		return
	}
	ns.keyOrder.from(max(o.Key, o.After), func(k *key) bool { return k.name == o.After || in(k) })
}

// behind is the least name behind all that begin with prefix; "": there is none.
func behind(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return prefix[:i] + string([]byte{prefix[i] + 1})
		}
	}
	return ""
}

// before calls f with the items that have a name less than name, or with all if that
// is empty or 0, from the last to the first, until it says false.
func (t *tree[K, T]) before(name K, f func(T) bool) {
	if t.root != nil {
		t.root.before(name, f)
	}
}

func (n *treeNode[K, T]) before(name K, f func(T) bool) bool {
	if n.kids != nil {
		i := len(n.kids) - 1
		if name != none[K]() {
			i = n.child(name)
		}
		for ; i >= 0; i-- {
			if !n.kids[i].before(name, f) {
				return false
			}
		}
		return true
	}
	i := len(n.items)
	if name != none[K]() {
		i = n.search(name)
	}
	for _, it := range slices.Backward(n.items[:i]) {
		if !f(it) {
			return false
		}
	}
	return true
}

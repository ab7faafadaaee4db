package twin

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/core"
)

// purse is what one transaction may still read. A range in order of key ends where
// the purse is empty; whoever else needs more is broke, and the transaction is
// refused.
type purse struct {
	bytes, keys int
	broke       bool
}

func (t *Twin) purse() purse {
	size := cmp.Or(t.cfg.Result, 1<<20)
	return purse{bytes: size, keys: max(1, size*10_000>>20)}
}

func (p *purse) pay(bytes, keys int) {
	if bytes > p.bytes || keys > p.keys {
		p.broke = true
		return
	}
	p.bytes -= bytes
	p.keys -= keys
}

// weight is what a key takes of an answer.
func weight(op core.KeyOp, name string, value []byte) int {
	if op.KeysOnly {
		return 64 + len(name)
	}
	return 64 + len(name) + len(value)
}

// holdsTrue says whether a condition is true of its key, or of all keys with
// the prefix; without any, of an absent one.
func (w *writer) holdsTrue(c core.Compare) bool {
	found := w.t.match(w.ns, c.Key, c.Prefix)
	if len(found) == 0 {
		return c.Target < core.CompareValue && compareTo(cmp.Compare(0, c.Num), c.Is)
	}
	for _, k := range found {
		if w.pay(0, 1); w.broke {
			return true
		}
		if !compareTo(k.compare(c), c.Is) {
			return false
		}
	}
	return true
}

// reserve pays beforehand for what may not be cut: as if nothing were deleted, and
// what is put were there beside what it replaces.
func (w *writer) reserve(ops []core.KeyOp) {
	w.writes = slices.ContainsFunc(ops, func(op core.KeyOp) bool { return op.Kind != core.KeyGet })
	for i, op := range ops {
		bytes, keys := 0, 0
		for _, k := range w.t.match(w.ns, op.Key, op.Prefix) {
			bytes, keys = bytes+weight(op, k.Name, k.Value), keys+1
		}
		for _, o := range ops[:i] {
			if o.Kind == core.KeyPut && covers(op, o.Key) {
				bytes, keys = bytes+weight(op, o.Key, o.Value), keys+1
			}
		}
		switch {
		case op.Kind == core.KeyDelete && op.Prefix && op.Limit != 0: // a page leaves what it cannot tell of
		case op.Kind != core.KeyGet && op.Previous:
			w.pay(bytes, 0)
		case op.Kind == core.KeyGet && !op.Prefix, op.Kind == core.KeyGet && w.writes && op.Sort != core.ByKey:
			w.pay(bytes, keys)
		case op.Kind == core.KeyGet && w.writes && op.Count:
			w.pay(0, keys)
		}
	}
}

func (w *writer) get(op core.KeyOp) core.KeyResult {
	found := w.t.match(w.ns, op.Key, op.Prefix)
	total := len(found)
	var r core.KeyResult
	switch {
	case !op.Prefix:
		r = answer(op, found)
	case op.Sort == core.ByKey:
		r = w.page(op, found)
		if op.Count && (r.More || op.After != "") && !w.writes {
			w.pay(0, total)
		}
	default:
		r = w.sorted(op, found)
	}
	if op.Count {
		r.Count = uint64(total)
	}
	return r
}

// answer tells keys.
func answer(op core.KeyOp, keys []*key) core.KeyResult {
	r := core.KeyResult{Count: uint64(len(keys))}
	for _, k := range keys {
		kv := k.Key
		if op.KeysOnly {
			kv.Value = nil
		}
		r.Keys = append(r.Keys, kv)
	}
	return r
}

// page tells keys in their order as far as limit and purse go.
func (w *writer) page(op core.KeyOp, found []*key) core.KeyResult {
	if op.Desc {
		slices.Reverse(found)
	}
	found = slices.DeleteFunc(found, func(k *key) bool {
		return op.After != "" && (!op.Desc && k.Name <= op.After || op.Desc && k.Name >= op.After)
	})
	n := 0
	for n < len(found) && (op.Limit == 0 || uint64(n) < op.Limit) {
		size := weight(op, found[n].Name, found[n].Value)
		if size > w.bytes || w.keys == 0 {
			break
		}
		w.pay(size, 1)
		n++
	}
	r := answer(op, found[:n])
	r.More = n < len(found)
	return r
}

// sorted tells keys in another order, all that the limit allows.
func (w *writer) sorted(op core.KeyOp, found []*key) core.KeyResult {
	if !w.writes {
		w.pay(0, len(found))
	}
	slices.SortStableFunc(found, func(a, b *key) int {
		c := a.sortBy(b, op.Sort)
		if c == 0 {
			c = strings.Compare(a.Name, b.Name)
		}
		if op.Desc {
			c = -c
		}
		return c
	})
	more := op.Limit != 0 && uint64(len(found)) > op.Limit
	if more {
		found = found[:op.Limit]
	}
	for _, k := range found {
		if !w.writes {
			w.pay(weight(op, k.Name, k.Value), 0)
		}
	}
	r := answer(op, found)
	r.More = more
	return r
}

// covers says whether an operation is about a key.
func covers(op core.KeyOp, name string) bool {
	return name == op.Key || op.Prefix && len(name) >= len(op.Key) && name[:len(op.Key)] == op.Key
}

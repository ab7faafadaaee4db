package core

import "math"

// A delete of a prefix without a limit is atomic: it deletes all of it or is
// refused, and one entry can delete only so many keys (Config.Budget), because
// nothing else is applied meanwhile. With a limit it deletes a page, the first keys
// in their order, and says whether there are more: a caller that wants them all gone asks
// again until there are none.

// validDeletes refuses a branch that is to delete more keys at once than it may.
func (m *Machine) validDeletes(ns *namespace, ops []KeyOp, r *Result) bool {
	if m.early {
		return true
	}
	n := 0
	for i := range ops {
		o := &ops[i]
		if o.Kind != KeyDelete || !o.Prefix || o.Limit != 0 {
			continue
		}
		if n += ns.countUpTo(o.Key, m.cfg.Budget+1-n); n > m.cfg.Budget {
			r.refuse(CodeExhausted, "the transaction deletes more than %d keys with its prefixes, %q among them: delete them page by page, with a limit, or in parts of the prefix", m.cfg.Budget, o.Key)
			return false
		}
	}
	if n > m.deletes && n > m.cfg.Ops {
		r.refuse(CodeUnavailable, "others delete as many keys at this moment as can be deleted at once: try again")
		return false
	}
	return true
}

// countUpTo counts the keys with a prefix, to max at most.
func (ns *namespace) countUpTo(prefix string, max int) (n int) {
	ns.matching(prefix, true, func(*key) bool {
		n++
		return n < max
	})
	return n
}

func (t *transaction) delete(o *KeyOp, r *KeyResult) {
	page := o.Prefix && o.Limit != 0 && !t.m.early
	for _, k := range t.toDelete(o, page, r) {
		if o.Previous && !t.add(r, k.row(), page || t.m.early) && page {
			return // it is deleted with the next page, which tells of it
		}
		t.write()
		r.Count++
		if o.Prefix {
			t.m.deletes--
		}
		t.m.dropKey(k, CodeOK)
	}
}

// toDelete lists the keys that o deletes, and sets More if a page leaves some.
func (t *transaction) toDelete(o *KeyOp, page bool, r *KeyResult) (found []*key) {
	most := uint64(math.MaxUint64)
	if page {
		most = min(o.Limit, uint64(max(0, t.m.deletes)))
	}
	t.ns.matching(o.Key, o.Prefix, func(k *key) bool {
		if r.More = uint64(len(found)) == most; r.More {
			return false
		}
		found = append(found, k)
		return true
	})
	return found
}

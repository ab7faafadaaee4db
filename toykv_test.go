package holdfast_test

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/driver"
)

func (t *toy) Txn(_ context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls["txn"]++
	ok := !slices.ContainsFunc(r.If, func(c driver.Compare) bool { return !t.holds(c) })
	ops := r.Then
	if !ok {
		ops = r.Else
	}
	t.rev++
	reply := &driver.TxnReply{OK: ok, Revision: driver.Revision(t.rev)}
	for _, op := range ops {
		reply.Results = append(reply.Results, t.do(op))
	}
	return reply, nil
}

func (t *toy) holds(c driver.Compare) bool {
	kv, known := t.keys[c.Key]
	var order int
	switch c.Target {
	case driver.CompareMod:
		order = cmp.Compare(kv.Modified, driver.Revision(c.Num))
	case driver.CompareCreate:
		order = cmp.Compare(kv.Created, driver.Revision(c.Num))
	case driver.CompareVersion:
		order = cmp.Compare(kv.Version, c.Num)
	case driver.CompareValue:
		if !known {
			return false
		}
		order = bytes.Compare(kv.Value, c.Value)
	case driver.CompareSession:
		if !known {
			return false
		}
		order = bytes.Compare(kv.Session[:], c.Session[:])
	}
	return map[driver.Relation]bool{driver.Equal: order == 0, driver.NotEqual: order != 0, driver.Less: order < 0, driver.Greater: order > 0}[c.Is]
}

func (t *toy) do(op driver.Op) (res driver.OpResult) {
	keys := []string{op.Key}
	if op.Prefix {
		keys = slices.DeleteFunc(slices.Sorted(maps.Keys(t.keys)), func(k string) bool { return !strings.HasPrefix(k, op.Key) })
	}
	if op.Kind == driver.OpPut {
		return t.put(op)
	}
	for _, k := range keys {
		kv, known := t.keys[k]
		if !known {
			continue
		}
		res.Count++
		if op.Kind == driver.OpGet || op.Previous {
			res.KVs = append(res.KVs, kv)
		}
		if op.Kind == driver.OpDelete {
			delete(t.keys, k)
			t.emit(driver.Event{Kind: "kv", Verb: "delete", Name: k, KV: &kv})
		}
	}
	if op.Sort == driver.ByMod {
		slices.SortStableFunc(res.KVs, func(a, b driver.KV) int { return cmp.Compare(a.Modified, b.Modified) })
	}
	if op.Desc {
		slices.Reverse(res.KVs)
	}
	if op.Kind == driver.OpGet && op.Prefix {
		t.cut(op, &res)
	}
	return res
}

// cut leaves of a range what an operation asks for and one answer takes.
func (t *toy) cut(op driver.Op, res *driver.OpResult) {
	total := res.Count
	res.KVs = slices.DeleteFunc(res.KVs, func(kv driver.KV) bool {
		return op.After != "" && (kv.Key == op.After || op.Desc != (kv.Key < op.After))
	})
	most := op.Limit
	if t.answer != 0 && op.Sort == driver.ByKey && (most == 0 || most > t.answer) {
		most = max(t.answer, 0) // negative: none, and more
	}
	if (most > 0 || t.answer < 0) && len(res.KVs) > most {
		res.KVs, res.More = res.KVs[:most], true
	}
	if res.Count = int64(len(res.KVs)); op.Count {
		res.Count = total
	}
}

func (t *toy) put(op driver.Op) (res driver.OpResult) {
	kv, known := t.keys[op.Key]
	if known && op.Previous {
		res.KVs = append(res.KVs, kv)
	}
	if !known {
		kv = driver.KV{Key: op.Key, Created: driver.Revision(t.rev)}
	}
	kv.Value, kv.Modified, kv.ExpiresIn = op.Value, driver.Revision(t.rev), op.Expire
	kv.Version++
	if op.Session != nil {
		kv.Session = op.Session.ID
		t.keySession[op.Key] = op.Session.ID
	}
	t.keys[op.Key] = kv
	t.emit(driver.Event{Kind: "kv", Verb: "put", Name: op.Key, KV: &kv})
	return res
}

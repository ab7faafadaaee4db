package holdfast

import (
	"context"
	"slices"

	"github.com/holdfast-io/holdfast/driver"
)

// Compare is a condition of a [Txn] on a key, or with Prefix on every key that
// begins so. [Absent], [ModifiedAt] and [ValueIs] make the usual ones; package
// driver has the targets and relations of others.
type Compare = driver.Compare

// Absent is true if there is no such key.
func Absent(key string) Compare { return ModifiedAt(key, 0) }

// ModifiedAt is true if the key's last change was at rev; 0: if there is no such key.
func ModifiedAt(key string, rev Revision) Compare {
	return Compare{Key: key, Target: driver.CompareMod, Is: driver.Equal, Num: uint64(rev)}
}

// ValueIs is true if the key exists and has this value.
func ValueIs(key string, value []byte) Compare {
	return Compare{Key: key, Target: driver.CompareValue, Is: driver.Equal, Value: value}
}

// Op is one operation of a [Txn]: what GetOp, RangeOp, PutOp, DeleteOp and
// DeleteRangeOp return.
type Op struct {
	op  driver.Op
	put putting
	// goesOn: op.After is a key, also if it is empty: that of a [Space.Sub] that is its prefix.
	goesOn bool
}

// GetOp gets a key; an absent one gives no entry, and one that does not fit into the
// answer makes the transaction ErrExhausted.
func GetOp(key string) Op { return Op{op: driver.Op{Kind: driver.OpGet, Key: key}} }

// RangeOp gets keys that begin with prefix, in order of key as many as fit into the
// answer beside all else; [OpResult.More] says whether that is all.
func RangeOp(prefix string, opts ...RangeOption) Op {
	op := driver.Op{Kind: driver.OpGet, Key: prefix, Prefix: true}
	for o := range given(opts) {
		o.ranging(&op)
	}
	return Op{op: op}
}

// PutOp sets a key.
func PutOp(key string, value []byte, opts ...PutOption) Op {
	op := Op{op: driver.Op{Kind: driver.OpPut, Key: key, Value: value}}
	for o := range given(opts) {
		o.put(&op.put)
	}
	return op
}

// DeleteOp deletes a key.
func DeleteOp(key string) Op { return Op{op: driver.Op{Kind: driver.OpDelete, Key: key}} }

// DeleteRangeOp deletes all keys that begin with prefix. A server deletes up to
// 10,000 in one transaction, Redis 2,500, and refuses more with ErrExhausted:
// [KV.DeleteRange] has no such limit.
func DeleteRangeOp(prefix string) Op {
	return Op{op: driver.Op{Kind: driver.OpDelete, Key: prefix, Prefix: true}}
}

// WithPrevious asks a put or delete for what was there before.
func (o Op) WithPrevious() Op {
	o.op.Previous = true
	return o
}

// Txn does Then if every condition of If is true, else Else: all of it at one
// revision, or nothing.
type Txn struct {
	If         []Compare
	Then, Else []Op
}

// TxnResult has a result for each operation of the branch that ran.
type TxnResult struct {
	OK       bool // Then ran
	Revision Revision
	Results  []OpResult
}

// OpResult is what one operation found.
type OpResult struct {
	Entries []Entry
	// Count is how many keys a put or delete found. Of a get it is how many Entries
	// there are, or with [Counted] how many keys begin with the prefix.
	Count int64
	// More: there are more keys than Entries has. A range in order of key goes on
	// [AfterKey] the last of them, or from where it began if there is none.
	More bool
}

// Txn runs a transaction.
func (k *KV) Txn(ctx context.Context, t Txn) (TxnResult, error) {
	return k.txn(ctx, "txn", "", t)
}

func (k *KV) txn(ctx context.Context, op, name string, t Txn) (TxnResult, error) {
	r := &driver.TxnRequest{ID: newID()}
	err := firstError(k.compares(r, t.If), k.ops(&r.Then, t.Then), k.ops(&r.Else, t.Else))
	need := featureOf(r)
	if err = firstError(err, k.s.cfg.err, checkNotEmpty(r), k.s.r.ready(ctx, need)); err != nil {
		return TxnResult{}, wrap(op, name, err)
	}
	reply, err := k.s.r.d.Txn(ctx, r)
	if err != nil {
		return TxnResult{}, k.s.r.wrap(ctx, op, name, need, err)
	}
	return k.result(reply), nil
}

// compares copies the conditions, with whole keys.
func (k *KV) compares(r *driver.TxnRequest, conds []Compare) error {
	r.If = slices.Clone(conds)
	for i := range r.If {
		key, err := k.key(r.If[i].Key, r.If[i].Prefix)
		if err = firstError(err, checkCompare(&r.If[i])); err != nil {
			return err
		}
		r.If[i].Key = key
	}
	return nil
}

// ops copies the operations, with whole keys.
func (k *KV) ops(to *[]driver.Op, ops []Op) error {
	for _, o := range ops {
		key, err := k.key(o.op.Key, o.op.Prefix)
		if err = firstError(err, k.checkPut(&o), checkRange(&o.op)); err != nil {
			return err
		}
		op := o.op
		if op.Key = key; op.After != "" || o.goesOn {
			if op.After, err = k.key(op.After, true); err != nil {
				return err
			}
		}
		if o.put.session != nil {
			op.Session = o.put.session.session
		}
		op.Expire = o.put.expire
		*to = append(*to, op)
	}
	return nil
}

func (k *KV) key(key string, prefix bool) (string, error) {
	key = k.s.prefix + key
	if prefix {
		return key, checkPrefix(key, k.s.r.maxName())
	}
	return key, checkName(key, k.s.r.maxName())
}

func (k *KV) checkPut(o *Op) error {
	if o.put.expireSet {
		if err := checkDuration("Expire", o.put.expire); err != nil {
			return err
		}
	}
	s := o.put.session
	switch {
	case s == nil:
		return o.put.err
	case s.r != k.s.r:
		return invalid("Under: the session is of another Space")
	}
	return s.over()
}

func checkCompare(c *Compare) error {
	if c.Target > driver.CompareSession || c.Is > driver.Greater {
		return invalid("a condition with target %d and relation %d; package driver has those that there are", c.Target, c.Is)
	}
	return nil
}

func checkRange(op *driver.Op) error {
	switch {
	case op.Sort > driver.ByValue:
		return invalid("Order(%d) is unknown; ByValue is the last", op.Sort)
	case op.Limit < 0:
		return invalid("MaxKeys(%d) is negative; 0 is none", op.Limit)
	case op.After != "" && op.Sort != driver.ByKey:
		return invalid("AfterKey(%q) in another order than that of keys; only ByKey can begin behind a key", op.After)
	}
	return nil
}

func checkNotEmpty(r *driver.TxnRequest) error {
	if len(r.Then)+len(r.Else) == 0 {
		return invalid("the transaction has no operation")
	}
	return nil
}

// featureOf is what a transaction takes: one key, or one range that is read,
// every backend with keys can do.
func featureOf(r *driver.TxnRequest) Feature {
	var keys []string
	for _, c := range r.If {
		if c.Prefix {
			return driver.FeatureTxn
		}
		keys = append(keys, c.Key)
	}
	for _, op := range slices.Concat(r.Then, r.Else) {
		if op.Prefix && (op.Kind != driver.OpGet || len(r.If)+len(r.Then)+len(r.Else) > 1) {
			return driver.FeatureTxn
		}
		keys = append(keys, op.Key)
	}
	slices.Sort(keys)
	if len(slices.Compact(keys)) > 1 {
		return driver.FeatureTxn
	}
	return driver.FeatureKV
}

func (k *KV) result(reply *driver.TxnReply) TxnResult {
	res := TxnResult{OK: reply.OK, Revision: reply.Revision}
	for _, r := range reply.Results {
		one := OpResult{Count: r.Count, More: r.More}
		for _, kv := range r.KVs {
			one.Entries = append(one.Entries, k.entry(kv))
		}
		res.Results = append(res.Results, one)
	}
	return res
}

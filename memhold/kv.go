package memhold

import (
	"bytes"
	"context"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
)

// Txn runs a transaction.
func (c *client) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	cmd := core.Command{Op: core.OpTxn, If: compares(r.If), Then: keyOps(r.Then), Else: keyOps(r.Else)}
	res, at, err := c.ask(ctx, &cmd)
	if err != nil {
		return nil, err
	}
	reply := &driver.TxnReply{OK: res.OK, Revision: res.Revision}
	for i := range res.Keys {
		k := &res.Keys[i]
		o := driver.OpResult{Count: int64(k.Count), More: k.More}
		for j := range k.Keys {
			o.KVs = append(o.KVs, *kv(at, &k.Keys[j]))
		}
		reply.Results = append(reply.Results, o)
	}
	return reply, nil
}

func compares(list []driver.Compare) []core.Compare {
	var out []core.Compare
	for i := range list {
		x := &list[i]
		out = append(out, core.Compare{
			Key: x.Key, Prefix: x.Prefix, Target: core.CompareTarget(x.Target), Is: core.Relation(x.Is),
			Num: x.Num, Value: x.Value, Lease: core.SessionID(x.Lease),
		})
	}
	return out
}

func keyOps(list []driver.Op) []core.KeyOp {
	var out []core.KeyOp
	for i := range list {
		x := &list[i]
		o := core.KeyOp{
			Kind: core.KeyOpKind(x.Kind), Key: x.Key, Prefix: x.Prefix, Value: x.Value, Expire: int64(x.Expire),
			Limit: uint64(x.Limit), Sort: core.SortBy(x.Sort), Desc: x.Desc, KeysOnly: x.KeysOnly, Previous: x.Previous,
		}
		if x.Lease != nil {
			o.Lease = core.SessionID(x.Lease.ID)
		}
		out = append(out, o)
	}
	return out
}

// kv is a key as callers see it, with a value of its own.
func kv(now int64, k *core.Key) *driver.KV {
	return &driver.KV{
		Key: k.Name, Value: bytes.Clone(k.Value), Created: k.Created, Modified: k.Modified, Version: k.Version,
		Lease: driver.LeaseID(k.Lease), ExpiresIn: left(now, k.Deadline),
	}
}

package onstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// Txn runs a transaction about one key, or reads all keys with a prefix.
func (d *onStore) Txn(ctx context.Context, r *driver.TxnRequest) (*driver.TxnReply, error) {
	key, ok := oneKey(r)
	if op := onlyRange(r); op != nil {
		return d.rangeOf(ctx, op)
	}
	if !ok {
		return nil, errors.ErrUnsupported
	}
	x := &change{d: d, r: r, key: key, id: hexID(r.ID)}
	err := d.call(ctx, func(ctx context.Context) error {
		return plain(retry(ctx, d.quickly(), func() (progress, error) { return x.try(ctx) }))
	})
	return x.reply, err
}

// onlyRange is the one operation of a request that reads a prefix.
func onlyRange(r *driver.TxnRequest) *driver.Op {
	if len(r.If) == 0 && len(r.Then) == 1 && r.Then[0].Kind == driver.OpGet && r.Then[0].Prefix {
		return &r.Then[0]
	}
	return nil
}

// oneKey is the key that all of a request is about, if each branch has at most
// one operation on it.
func oneKey(r *driver.TxnRequest) (string, bool) {
	var keys []string
	prefix := false
	for _, c := range r.If {
		keys, prefix = append(keys, c.Key), prefix || c.Prefix
	}
	for _, o := range slices.Concat(r.Then, r.Else) {
		keys, prefix = append(keys, o.Key), prefix || o.Prefix || o.Session != nil
	}
	if prefix || len(keys) == 0 || len(r.Then) > 1 || len(r.Else) > 1 {
		return "", false
	}
	return keys[0], !slices.ContainsFunc(keys, func(k string) bool { return k != keys[0] })
}

// change is a transaction on its way.
type change struct {
	d       *onStore
	r       *driver.TxnRequest
	key, id string
	reply   *driver.TxnReply
	// unsure: a write was sent from this revision and not answered; it may still
	// arrive. told is the reply that it would have had.
	unsure bool
	from   driver.Revision
	told   *driver.TxnReply
}

// try does it once.
func (x *change) try(ctx context.Context) (progress, error) {
	item, e, err := x.d.readKey(ctx, x.key)
	if err != nil {
		return blind, err
	}
	if x.unsure && item.Revision != x.from {
		return looked, x.settle(&item, e)
	}
	now := x.d.shown(x.key, &item, e)
	x.reply = &driver.TxnReply{OK: true, Revision: item.Revision}
	for i := range x.r.If {
		x.reply.OK = x.reply.OK && holds(&x.r.If[i], now)
	}
	ops := x.r.Then
	if !x.reply.OK {
		ops = x.r.Else
	}
	for i := range ops {
		res, revision, err := x.d.do(ctx, x.key, &item, now, &ops[i], x.id)
		x.reply.Results = append(x.reply.Results, res)
		if err != nil {
			x.unanswered(err, item.Revision)
			return sent, err
		}
		x.reply.Revision = revision
	}
	return looked, nil
}

// unanswered notes a write that may have been done. A conflict says that this one was not:
// an earlier one, which came late, may be what it met.
func (x *change) unanswered(err error, from driver.Revision) {
	if !errors.Is(err, driver.ErrConflict) {
		x.unsure, x.from, x.told = true, from, x.reply
	}
}

// settle finds out what became of a write with a lost answer: the key is as
// it would have left it, or somebody else has changed it, before or after. Of a key
// that is not there no caller can tell which of them deleted it.
func (x *change) settle(item *driver.Item, e *keyEntry) error {
	if e != nil && e.By == x.id {
		x.reply = x.told
		x.reply.Revision = item.Revision
		return nil
	}
	return final{&driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.Unknown,
		Err: errors.New("the engine did not answer, and the key was changed since: read it and decide anew")}}
}

// do does one operation on the key as it is now; nil: it does not exist.
func (d *onStore) do(ctx context.Context, key string, item *driver.Item, now *driver.KV, op *driver.Op, id string) (res driver.OpResult, revision driver.Revision, err error) {
	if now != nil && (op.Kind == driver.OpGet || op.Previous) {
		res.KVs = []driver.KV{*now}
	}
	if now != nil {
		res.Count = 1
	}
	switch {
	case op.Kind == driver.OpPut:
		revision, err = d.swap(ctx, engineKey(key), item.Revision, put(item, now, op, id))
		res.Count = 0
		if err == nil && op.Expire > 0 {
			d.unchanged(&d.seenKeys, engineKey(key), revision) // its time begins for us
		}
	case op.Kind == driver.OpDelete && now != nil:
		revision, err = d.deleteBy(ctx, engineKey(key), item.Revision, id)
	default:
		revision = item.Revision
		if op.KeysOnly && len(res.KVs) > 0 {
			res.KVs[0].Value = nil
		}
	}
	return res, revision, err
}

// deleteBy deletes a key that is at a revision: it leaves a tombstone that says which request
// did, since of a delete without an answer no caller could tell which of them sent it. A store that
// keeps something of a deleted key anyway keeps that, until a sweep.
func (d *onStore) deleteBy(ctx context.Context, key string, old driver.Revision, id string) (driver.Revision, error) {
	revision, err := d.swap(ctx, key, old, &keyEntry{Expire: deletedKey, By: id})
	if _, keeps := d.store.(driver.Sweeper); err == nil && !keeps {
		_ = d.forget(ctx, key, revision) // what fails here, a sweep does
	}
	return revision, err
}

// engineKey is where a key is in the engine.
func engineKey(key string) string { return keyPrefix + key }

// put is the entry after a put.
func put(item *driver.Item, now *driver.KV, op *driver.Op, id string) *keyEntry {
	next := &keyEntry{Value: op.Value, Version: 1, Expire: op.Expire, By: id}
	if now != nil {
		next.Created, next.Version = now.Created, now.Version+1
	}
	if op.Expire > 0 && item.Now != 0 {
		next.Deadline = item.Now + op.Expire
	}
	return next
}

func (d *onStore) readKey(ctx context.Context, key string) (driver.Item, *keyEntry, error) {
	item, err := d.get(ctx, engineKey(key))
	if err != nil || item.Revision == 0 {
		return item, nil, err
	}
	item.Key = engineKey(key)
	e, err := decode[keyEntry](&item)
	if err != nil {
		return item, nil, final{err}
	}
	return item, e, nil
}

// shown is a key as callers see it; nil: it does not exist, or its time is over.
func (d *onStore) shown(key string, item *driver.Item, e *keyEntry) *driver.KV {
	if e == nil || e.deleted() {
		return nil
	}
	kv := &driver.KV{Key: key, Value: e.Value, Created: e.Created, Modified: item.Revision, Version: e.Version}
	if kv.Created == 0 {
		kv.Created = item.Revision
	}
	if e.Expire == 0 {
		return kv
	}
	if kv.ExpiresIn = d.left(item, e); kv.ExpiresIn <= 0 {
		return nil
	}
	return kv
}

// left is the time to a key's end: on the engine's clock, or on ours since it
// was first seen.
func (d *onStore) left(item *driver.Item, e *keyEntry) time.Duration {
	if e.Deadline != 0 && item.Now != 0 {
		return e.Deadline - item.Now
	}
	return e.Expire - d.unchanged(&d.seenKeys, item.Key, item.Revision)
}

// holds evaluates a condition.
func holds(c *driver.Compare, kv *driver.KV) bool {
	if kv == nil {
		if c.Target == driver.CompareValue || c.Target == driver.CompareSession {
			return false
		}
		kv = &driver.KV{}
	}
	order := 0
	switch c.Target {
	case driver.CompareMod:
		order = cmp.Compare(uint64(kv.Modified), c.Num)
	case driver.CompareCreate:
		order = cmp.Compare(uint64(kv.Created), c.Num)
	case driver.CompareVersion:
		order = cmp.Compare(kv.Version, c.Num)
	case driver.CompareValue:
		order = bytes.Compare(kv.Value, c.Value)
	case driver.CompareSession:
		order = bytes.Compare(kv.Session[:], c.Session[:])
	}
	switch c.Is {
	case driver.Equal:
		return order == 0
	case driver.NotEqual:
		return order != 0
	case driver.Less:
		return order < 0
	default:
		return order > 0
	}
}

// rangeOf reads the keys with a prefix. They are of one moment only as far as
// the engine's List is.
func (d *onStore) rangeOf(ctx context.Context, op *driver.Op) (*driver.TxnReply, error) {
	var kvs []driver.KV
	revision := driver.Revision(0)
	err := d.list(ctx, keyPrefix+op.Key, func(item *driver.Item) error {
		e, err := decode[keyEntry](item)
		if err != nil {
			return err
		}
		revision = max(revision, item.Revision)
		if kv := d.shown(strings.TrimPrefix(item.Key, keyPrefix), item, e); kv != nil {
			kvs = append(kvs, *kv)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &driver.TxnReply{OK: true, Revision: revision, Results: []driver.OpResult{cut(op, kvs)}}, nil
}

// cut is what an operation tells of all keys with its prefix. It has them all
// already, so that only the caller's own limit ends it.
func cut(op *driver.Op, kvs []driver.KV) driver.OpResult {
	total := len(kvs)
	slices.SortFunc(kvs, order(op))
	kvs = slices.DeleteFunc(kvs, func(kv driver.KV) bool {
		return op.After != "" && (kv.Key == op.After || op.Desc != (kv.Key < op.After))
	})
	res := driver.OpResult{KVs: kvs}
	if op.Limit > 0 && len(kvs) > op.Limit {
		res.KVs, res.More = kvs[:op.Limit], true
	}
	for i := range res.KVs {
		if op.KeysOnly {
			res.KVs[i].Value = nil
		}
	}
	if res.Count = int64(len(res.KVs)); op.Count {
		res.Count = int64(total)
	}
	return res
}

// order compares as the operation wants it; ties are broken by key.
func order(op *driver.Op) func(a, b driver.KV) int {
	return func(a, b driver.KV) int {
		n := 0
		switch op.Sort {
		case driver.ByVersion:
			n = cmp.Compare(a.Version, b.Version)
		case driver.ByCreate:
			n = cmp.Compare(a.Created, b.Created)
		case driver.ByMod:
			n = cmp.Compare(a.Modified, b.Modified)
		case driver.ByValue:
			n = bytes.Compare(a.Value, b.Value)
		}
		if n == 0 {
			n = cmp.Compare(a.Key, b.Key)
		}
		if op.Desc {
			return -n
		}
		return n
	}
}

// list calls f for every item with the prefix.
func (d *onStore) list(ctx context.Context, prefix string, f func(*driver.Item) error) error {
	return d.call(ctx, func(ctx context.Context) error {
		items, err := d.all(ctx, d.quickly(), prefix)
		if err != nil {
			return err
		}
		for i := range items {
			if err := f(&items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

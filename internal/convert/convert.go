// Package convert says in the words of package driver what the machine of package
// core says in its own, for all backends that run on it. What it returns shares
// nothing with the machine.
package convert

import (
	"bytes"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
)

// Left is the time from now to a deadline of cluster time; 0: there is none, or
// it has passed.
func Left(now, deadline int64) time.Duration {
	if deadline == 0 {
		return 0
	}
	return time.Duration(max(deadline-now, 0))
}

// Resource is a name with its holders and waiters.
func Resource(now int64, r *core.ResourceInfo) driver.Resource {
	return driver.Resource{
		Name: r.Name, Kind: driver.ResourceKind(r.Kind), Limit: r.Limit, Used: r.Used, Created: driver.Revision(r.Created), Modified: driver.Revision(r.Modified),
		Holding: r.Holding, Waiting: r.Waiting,
		Holders: Claims(now, r.Holders), Waiters: Claims(now, r.Waiters), More: r.Next != core.Cursor{},
	}
}

// Claims are holders or waiters.
func Claims(now int64, infos []core.ClaimInfo) []driver.Claim {
	var list []driver.Claim
	for i := range infos {
		k := &infos[i]
		list = append(list, driver.Claim{
			Name: k.Name, Kind: driver.ResourceKind(k.Kind), Mode: driver.Mode(k.Mode), Weight: k.Weight, Token: driver.Token(k.Token),
			Owner: k.Owner, Meta: k.Meta, Session: driver.SessionID(k.Session), Value: slices.Clone(k.Value),
			Created: driver.Revision(k.Created), Modified: driver.Revision(k.Modified), Version: k.Version,
			Held: time.Duration(max(now-k.Since, 0)), ExpiresIn: Left(now, k.Ends),
			Position: k.Position, Before: driver.SessionID(k.Before), Revoked: k.Revoked, Stale: k.Stale,
		})
	}
	return list
}

// Holders are those that stood in the way of a claim on wants, at cluster time
// now.
func Holders(now int64, holders []core.Holder, wants []core.Want) []driver.Claim {
	list := make([]driver.Claim, len(holders))
	for i := range holders {
		h := &holders[i]
		list[i] = driver.Claim{
			Mode: driver.Mode(h.Mode), Weight: h.Weight, Token: driver.Token(h.Token), Owner: h.Owner, Meta: h.Meta,
			Session: driver.SessionID(h.Session), Held: time.Duration(max(now-h.Since, 0)), Revoked: h.Revoked,
			ExpiresIn: Left(now, h.Deadline),
		}
		if len(wants) == 1 {
			list[i].Name, list[i].Kind = wants[0].Name, driver.ResourceKind(wants[0].Kind)
		}
	}
	return list
}

// Compares are the conditions of a transaction.
func Compares(list []driver.Compare) []core.Compare {
	var out []core.Compare
	for i := range list {
		x := &list[i]
		out = append(out, core.Compare{
			Key: x.Key, Prefix: x.Prefix, Target: core.CompareTarget(x.Target), Is: core.Relation(x.Is),
			Num: x.Num, Value: x.Value, Session: core.SessionID(x.Session),
		})
	}
	return out
}

// KeyOps are the operations of a transaction.
func KeyOps(list []driver.Op) []core.KeyOp {
	var out []core.KeyOp
	for i := range list {
		x := &list[i]
		o := core.KeyOp{
			Kind: core.KeyOpKind(x.Kind), Key: x.Key, Prefix: x.Prefix, Value: x.Value, Expire: int64(x.Expire),
			Limit: uint64(x.Limit), Sort: core.SortBy(x.Sort), Desc: x.Desc, KeysOnly: x.KeysOnly, Previous: x.Previous,
			After: x.After, Count: x.Count,
		}
		if x.Session != nil {
			o.Session = core.SessionID(x.Session.ID)
		}
		out = append(out, o)
	}
	return out
}

// Results are what a transaction found.
func Results(now int64, keys []core.KeyResult) []driver.OpResult {
	var out []driver.OpResult
	for i := range keys {
		k := &keys[i]
		r := driver.OpResult{Count: int64(k.Count), More: k.More}
		for j := range k.Keys {
			r.KVs = append(r.KVs, *KV(now, &k.Keys[j]))
		}
		out = append(out, r)
	}
	return out
}

// KV is a key.
func KV(now int64, k *core.Key) *driver.KV {
	return &driver.KV{
		Key: k.Name, Value: bytes.Clone(k.Value), Created: driver.Revision(k.Created), Modified: driver.Revision(k.Modified), Version: k.Version,
		Session: driver.SessionID(k.Session), ExpiresIn: Left(now, k.Deadline),
	}
}

// Event is an event; previous: with what was there before.
func Event(now int64, e *core.Event, previous bool) driver.Event {
	d := driver.Event{
		Revision: driver.Revision(e.Revision), Ordinal: e.Ordinal, Kind: e.Kind.String(), Verb: e.Verb.String(), Name: e.Name,
		Token: driver.Token(e.Token), Owner: e.Owner, Mode: driver.Mode(e.Mode), Weight: e.Weight, Session: driver.SessionID(e.Session),
		Value: bytes.Clone(e.Value), Reason: reasons[e.Reason], Number: e.Number,
	}
	if e.Kind == core.EventSession {
		d.Name = d.Session.String()
	}
	if e.Kind == core.EventKV {
		d.KV = KV(now, &e.Key)
		if previous && e.Prev.Version > 0 {
			d.Prev = KV(now, &e.Prev)
		}
	}
	return d
}

package filehold

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/core"
	"github.com/holdfast-io/holdfast/driver"
)

// errTooLarge is the kind of a request that no log takes.
var errTooLarge = fs.ErrInvalid

// kinds are what callers see of the machine's codes.
var kinds = map[core.Code]error{
	core.CodeHeld:        driver.ErrHeld,
	core.CodeLost:        driver.ErrLost,
	core.CodeConflict:    driver.ErrConflict,
	core.CodeInvalid:     fs.ErrInvalid,
	core.CodeNotExist:    fs.ErrNotExist,
	core.CodeExhausted:   driver.ErrExhausted,
	core.CodeNoSession:   driver.ErrLost,
	core.CodeTimeout:     context.DeadlineExceeded,
	core.CodeCanceled:    context.Canceled,
	core.CodePermission:  fs.ErrPermission,
	core.CodeUnavailable: driver.ErrUnavailable,
}

// texts say more where the machine itself says nothing.
var texts = map[core.Code]string{
	core.CodeLost:      "it had ended before",
	core.CodeNoSession: "its session has ended",
}

// refusal is the error of a result.
func refusal(r *core.Result) *driver.Error {
	e := &driver.Error{Kind: kinds[r.Code], Outcome: driver.NotDone}
	text := r.Text
	if text == "" {
		text = texts[r.Code]
	}
	if text != "" {
		e.Err = errors.New(text)
	}
	return e
}

// refusalOf is the error of an order, with who stands in its way; nil: it
// succeeded.
func refusalOf(o *order) error {
	r := &o.result
	if r.Code == core.CodeOK {
		return nil
	}
	e := refusal(r)
	if r.Code != core.CodeHeld {
		return e
	}
	e.Waiting = int(r.Waiting)
	for i := range r.Holders {
		h := &r.Holders[i]
		k := driver.Claim{
			Mode: driver.Mode(h.Mode), Weight: h.Weight, Token: h.Token, Owner: h.Owner, Meta: h.Meta,
			Lease: driver.LeaseID(h.Session), Held: time.Duration(max(o.now-h.Since, 0)),
		}
		if w := o.cmd.Wants; len(w) == 1 {
			k.Name, k.Kind = w[0].Name, driver.ResourceKind(w[0].Kind)
		}
		e.Holders = append(e.Holders, k)
	}
	return e
}

func resource(now int64, r *core.ResourceInfo) driver.Resource {
	return driver.Resource{
		Name: r.Name, Kind: driver.ResourceKind(r.Kind), Limit: r.Limit, Used: r.Used, Created: r.Created, Modified: r.Modified,
		Holders: claims(now, r.Holders), Waiters: claims(now, r.Waiters),
	}
}

// claims are without an end: sessions last as long as their process.
func claims(now int64, infos []core.ClaimInfo) []driver.Claim {
	var list []driver.Claim
	for i := range infos {
		k := &infos[i]
		list = append(list, driver.Claim{
			Name: k.Name, Kind: driver.ResourceKind(k.Kind), Mode: driver.Mode(k.Mode), Weight: k.Weight, Token: k.Token,
			Owner: k.Owner, Meta: k.Meta, Lease: driver.LeaseID(k.Session), Value: slices.Clone(k.Value),
			Created: k.Created, Modified: k.Modified, Version: k.Version, Held: time.Duration(max(now-k.Since, 0)),
			Position: k.Position, Before: driver.LeaseID(k.Before),
		})
	}
	return list
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

// results are what a transaction found, with values of their own.
func results(now int64, keys []core.KeyResult) []driver.OpResult {
	var out []driver.OpResult
	for i := range keys {
		k := &keys[i]
		r := driver.OpResult{Count: int64(k.Count), More: k.More}
		for j := range k.Keys {
			r.KVs = append(r.KVs, *kv(now, &k.Keys[j]))
		}
		out = append(out, r)
	}
	return out
}

func kv(now int64, k *core.Key) *driver.KV {
	d := &driver.KV{
		Key: k.Name, Value: bytes.Clone(k.Value), Created: k.Created, Modified: k.Modified, Version: k.Version,
		Lease: driver.LeaseID(k.Lease),
	}
	if k.Deadline != 0 {
		d.ExpiresIn = time.Duration(max(k.Deadline-now, 0))
	}
	return d
}

// event is an event as callers see it; it shares nothing with the machine.
func event(now int64, e *core.Event, previous bool) driver.Event {
	d := driver.Event{
		Revision: e.Revision, Ordinal: e.Ordinal, Kind: e.Kind.String(), Verb: e.Verb.String(), Name: e.Name,
		Token: e.Token, Owner: e.Owner, Mode: driver.Mode(e.Mode), Weight: e.Weight, Lease: driver.LeaseID(e.Session),
		Value: bytes.Clone(e.Value), Reason: reasons[e.Reason], Number: e.Number,
	}
	if e.Kind == core.EventSession {
		d.Name = d.Lease.String()
	}
	if e.Kind == core.EventKV {
		d.KV = kv(now, &e.Key)
		if previous && e.Prev.Version > 0 {
			d.Prev = kv(now, &e.Prev)
		}
	}
	return d
}

// reasons are the words for the codes of events.
var reasons = map[core.Code]string{
	core.CodeHeld:      "held",
	core.CodeLost:      "lost",
	core.CodeConflict:  "conflict",
	core.CodeInvalid:   "invalid",
	core.CodeExhausted: "exhausted",
	core.CodeNoSession: "session",
	core.CodeCanceled:  "canceled",
}

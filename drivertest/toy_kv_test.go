package drivertest_test

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/driver"
)

// key is a key with its end.
type key struct {
	driver.KV
	expires time.Time
}

func (k *key) read() driver.KV {
	kv := k.KV
	if !k.expires.IsZero() {
		kv.ExpiresIn = time.Until(k.expires)
	}
	return kv
}

func (e *engine) endKeys(now time.Time) {
	for name, k := range e.expiring {
		if !now.Before(k.expires) && !e.has("never expires") {
			e.remove(name)
		}
	}
}

// remove deletes a key on the engine's own account.
func (e *engine) remove(name string) {
	e.rev++
	e.erase(name, e.rev, 0)
}

func (e *engine) erase(name string, rev driver.Revision, ordinal uint32) {
	old := e.keys[name].read()
	delete(e.keys, name)
	delete(e.expiring, name)
	e.publish(driver.Event{Revision: rev, Ordinal: ordinal, Kind: "kv", Verb: "delete", Name: name, KV: &old, Prev: &old})
	if e.has("keys are names") {
		holders, _ := e.split(name)
		for _, c := range holders {
			e.drop(c)
		}
	}
}

func (t *toy) Txn(ctx context.Context, r *driver.TxnRequest) (reply *driver.TxnReply, err error) {
	if err := t.reach(ctx); err != nil {
		return nil, err
	}
	t.e.do(func() { reply, err = t.e.txn(r) })
	return reply, err
}

func (e *engine) txn(r *driver.TxnRequest) (*driver.TxnReply, error) {
	if err := e.sessionsLive(r); err != nil {
		return nil, err
	}
	reply := &driver.TxnReply{OK: e.allTrue(r.If)}
	ops := r.Else
	if reply.OK {
		ops = r.Then
	}
	if slices.ContainsFunc(ops, func(o driver.Op) bool { return o.Kind != driver.OpGet }) {
		e.rev++
	}
	past := e.keys
	if e.has("reads the past") {
		past = maps.Clone(e.keys)
	}
	for i, op := range ops {
		if i > 0 && e.has("a revision an operation") {
			e.rev++
		}
		switch {
		case i > 0 && e.has("half done"):
			reply.Results = append(reply.Results, driver.OpResult{})
		case i > 10 && op.Kind == driver.OpGet && e.has("gets look absent"):
			reply.Results = append(reply.Results, driver.OpResult{More: true})
		case op.Kind == driver.OpGet && e.has("reads the past"):
			reply.Results = append(reply.Results, e.get(past, op))
		default:
			reply.Results = append(reply.Results, e.act(op, uint32(i)))
		}
	}
	reply.Revision = e.rev
	return reply, nil
}

func (e *engine) sessionsLive(r *driver.TxnRequest) error {
	for _, op := range slices.Concat(r.Then, r.Else) {
		if op.Session != nil && e.sessions[op.Session.ID] == nil {
			return refusal(driver.ErrLost, "the session has ended")
		}
	}
	return nil
}

func (e *engine) allTrue(conds []driver.Compare) bool {
	if e.has("always swaps") {
		return true
	}
	if len(conds) > 1 && e.has("last condition decides") {
		conds = conds[len(conds)-1:]
	}
	for _, c := range conds {
		if !e.isTrue(c) {
			return false
		}
	}
	return true
}

// begunBy are the keys with a prefix, in order, and if there is none an absent one.
func (e *engine) begunBy(prefix string) (found []*key) {
	for _, name := range slices.Sorted(maps.Keys(e.keys)) {
		if strings.HasPrefix(name, prefix) {
			found = append(found, e.keys[name])
		}
	}
	if len(found) == 0 {
		found = append(found, nil)
	}
	return found
}

// isTrue asks every key that c is about, and if there is none an absent one.
func (e *engine) isTrue(c driver.Compare) bool {
	found := []*key{e.keys[c.Key]} // nil: an absent one
	if c.Prefix {
		found = e.begunBy(c.Key)
	}
	if e.has("prefix asks one key") {
		found = found[:1]
	}
	for _, k := range found {
		if !e.compare(k, c) {
			return false
		}
	}
	return true
}

func (e *engine) compare(k *key, c driver.Compare) bool {
	if k == nil && (c.Target == driver.CompareValue || c.Target == driver.CompareSession) {
		return false
	}
	if k == nil {
		k = &key{}
	}
	order := map[driver.Target]int{
		driver.CompareMod: cmp.Compare(k.Modified, driver.Revision(c.Num)), driver.CompareCreate: cmp.Compare(k.Created, driver.Revision(c.Num)),
		driver.CompareVersion: cmp.Compare(k.Version, c.Num), driver.CompareValue: bytes.Compare(k.Value, c.Value),
		driver.CompareSession: bytes.Compare(k.Session[:], c.Session[:]),
	}[c.Target]
	switch c.Is {
	case driver.Equal:
		return order == 0
	case driver.NotEqual:
		return order != 0
	case driver.Less:
		return order < 0 || order == 0 && e.has("less or equal")
	}
	return order > 0
}

func (e *engine) act(op driver.Op, ordinal uint32) driver.OpResult {
	switch op.Kind {
	case driver.OpGet:
		return e.get(e.keys, op)
	case driver.OpPut:
		return e.put(op, ordinal)
	}
	return e.delete(op, ordinal)
}

func (e *engine) put(op driver.Op, ordinal uint32) (res driver.OpResult) {
	old := e.keys[op.Key]
	k := &key{KV: driver.KV{Key: op.Key, Value: bytes.Clone(op.Value), Created: e.rev, Modified: e.rev, Version: 1}}
	var prev *driver.KV
	if old != nil {
		before := old.read()
		prev = &before
		k.Created = old.Created
		if !e.has("versions stand still") {
			k.Version = old.Version + 1
		}
		if e.has("expire sticks") {
			k.expires = old.expires
		}
		res = driver.OpResult{KVs: []driver.KV{before}, Count: 1}
	}
	if op.Expire > 0 {
		k.expires = time.Now().Add(op.Expire)
	}
	if op.Session != nil {
		k.Session = op.Session.ID
	}
	e.store(k)
	now := k.read()
	if e.has("events without values") {
		now.Value = nil
	}
	e.publish(driver.Event{Revision: e.rev, Ordinal: ordinal, Kind: "kv", Verb: "put", Name: op.Key, KV: &now, Prev: prev})
	return res
}

// store keeps the key, or what a fault makes of it.
func (e *engine) store(k *key) {
	switch {
	case e.has("put forgets"):
		return
	case e.has("values are text"):
		k.Value = bytes.TrimRight(k.Value, "\x00")
	case e.has("revisions restart"):
		k.Modified, k.Created = driver.Revision(k.Version), 1
	}
	e.keys[k.Key] = k
	if delete(e.expiring, k.Key); !k.expires.IsZero() {
		e.expiring[k.Key] = k
	}
}

func (e *engine) delete(op driver.Op, ordinal uint32) (res driver.OpResult) {
	res = e.get(e.keys, driver.Op{Key: op.Key, Prefix: op.Prefix})
	res.More = false
	if e.has("previous cut") && op.Prefix && len(res.KVs) > 10 {
		defer func() { res.KVs = res.KVs[:10] }()
	}
	if e.has("deletes one") && len(res.KVs) > 1 {
		res.KVs = res.KVs[:1]
	}
	if e.has("a page is all") && op.Limit > 0 && len(res.KVs) > op.Limit {
		res.KVs = res.KVs[:op.Limit]
		res.Count = int64(op.Limit)
	}
	for i, kv := range res.KVs {
		if !e.has("delete keeps") {
			e.erase(kv.Key, e.rev, ordinal+uint32(i))
		}
	}
	if e.has("deletes blindly") {
		res.Count = 1
	}
	return res
}

func (e *engine) get(keys map[string]*key, op driver.Op) (res driver.OpResult) {
	var names []string
	for name := range keys {
		if name == op.Key || op.Prefix && (strings.HasPrefix(name, op.Key) || e.has("prefix ignored")) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		res.KVs = append(res.KVs, keys[name].read())
	}
	total := len(res.KVs)
	slices.SortStableFunc(res.KVs, func(a, b driver.KV) int { return e.order(op, a, b) })
	res.KVs = slices.DeleteFunc(res.KVs, func(kv driver.KV) bool { return op.After != "" && e.passed(op, kv.Key) })
	if op.Limit > 0 && len(res.KVs) > op.Limit && !e.has("limit ignored") {
		res.KVs, res.More = res.KVs[:op.Limit], true
	}
	if n := len(res.KVs); n > 1000 && e.has("cut looks complete") || n > 20 && op.Sort != driver.ByKey && e.has("sorted is cut") {
		res.KVs, res.More = res.KVs[:min(n, 1000)-10], false
	}
	for i := range res.KVs {
		if op.KeysOnly && !e.has("values anyway") {
			res.KVs[i].Value = nil
		}
	}
	if res.Count = int64(len(res.KVs)); op.Count && !e.has("counts the page") {
		res.Count = int64(total)
	}
	return res
}

// passed: a range that goes on after a key has told this one.
func (e *engine) passed(op driver.Op, key string) bool {
	switch {
	case key == op.After:
		return !e.has("a key repeats")
	case e.has("after has to exist") && e.keys[op.After] == nil:
		return true
	case e.has("a key skipped") && len(key) == len(op.After) && key[:len(key)-1] == op.After[:len(key)-1] && key[len(key)-1]-1 == op.After[len(key)-1]:
		return true
	}
	return op.Desc != (key < op.After)
}

func (e *engine) order(op driver.Op, a, b driver.KV) int {
	order := map[driver.SortBy]int{
		driver.ByVersion: cmp.Compare(a.Version, b.Version), driver.ByCreate: cmp.Compare(a.Created, b.Created),
		driver.ByMod: cmp.Compare(a.Modified, b.Modified), driver.ByValue: bytes.Compare(a.Value, b.Value),
	}[op.Sort]
	if order == 0 || e.has("one order") {
		order = strings.Compare(a.Key, b.Key)
	}
	if op.Desc {
		return -order
	}
	return order
}

func (t *toy) Watch(ctx context.Context, r *driver.WatchRequest) iter.Seq2[driver.Event, error] {
	return func(yield func(driver.Event, error) bool) {
		w, ready, err := t.e.watch(r)
		if err != nil {
			yield(driver.Event{}, err)
			return
		}
		if !t.e.has("no ready") && !yield(ready, nil) {
			return
		}
		for {
			events, news := w.read()
			for _, ev := range events {
				if !yield(ev, nil) {
					return
				}
			}
			if t.e.has("deaf watch") {
				<-news
				continue
			}
			select {
			case <-news:
			case <-ctx.Done():
				return
			}
		}
	}
}

// reader is one watch.
type reader struct {
	e    *engine
	r    driver.WatchRequest
	next int // of all events there ever were
	mute bool
}

func (e *engine) watch(r *driver.WatchRequest) (*reader, driver.Event, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watchers++
	w := &reader{e: e, r: *r, next: e.dropped + len(e.events), mute: e.has("one watcher") && e.watchers > 1}
	ready := driver.Event{Kind: driver.WatchKind, Verb: driver.VerbReady, Revision: e.rev + 1}
	if r.From == 0 {
		return w, ready, nil
	}
	from := r.From
	if e.has("from exclusive") {
		from++
	}
	if e.dropped > 0 && e.events[0].Revision > r.From && !e.has("silent gap") {
		return nil, ready, refusal(driver.ErrCompacted, "events before revision %d are gone; read the state and watch from there", e.events[0].Revision)
	}
	ready.Revision = r.From
	i, _ := slices.BinarySearchFunc(e.events, from, func(ev driver.Event, rev driver.Revision) int { return cmp.Compare(ev.Revision, rev) })
	w.next = e.dropped + i
	return w, ready, nil
}

// read returns what is new, and what to wait for when that is nothing.
func (w *reader) read() ([]driver.Event, <-chan struct{}) {
	e := w.e
	e.mu.Lock()
	defer e.mu.Unlock()
	var events []driver.Event
	for _, ev := range e.events[max(w.next-e.dropped, 0):] {
		if w.wants(ev) && !w.mute {
			if !w.r.Previous || e.has("no previous") {
				ev.Prev = nil
			}
			events = append(events, ev)
		}
	}
	behind := w.next < e.dropped || len(events) > backlog
	w.next = e.dropped + len(e.events)
	switch {
	case behind && e.has("silent gap"):
		events = events[max(len(events)-backlog, 0):]
	case behind:
		events = []driver.Event{{Kind: driver.WatchKind, Verb: driver.VerbResync, Revision: e.rev + 1}}
	}
	return events, e.news
}

func (w *reader) wants(ev driver.Event) bool {
	e, r := w.e, w.r
	if !strings.HasPrefix(ev.Name, r.Prefix) && !e.has("prefix ignored") || r.Exact && ev.Name != r.Prefix {
		return false
	}
	if ok, _ := path.Match(r.Glob, ev.Name); r.Glob != "" && !ok && !e.has("glob ignored") {
		return false
	}
	return len(r.Patterns) == 0 || e.has("patterns ignored") || slices.ContainsFunc(r.Patterns, func(p string) bool {
		kind, verb, _ := strings.Cut(p, ":")
		return (kind == "*" || kind == ev.Kind) && (verb == "*" || verb == ev.Verb)
	})
}

package onstore

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/driver"
)

// Watch yields what happens from now on.
func (d *onStore) Watch(ctx context.Context, r *driver.WatchRequest) iter.Seq2[driver.Event, error] {
	return func(yield func(driver.Event, error) bool) {
		if _, err := path.Match(r.Glob, ""); err != nil {
			yield(driver.Event{}, driver.Errorf("", r.Prefix, fs.ErrInvalid, "the glob %q is malformed", r.Glob))
			return
		}
		if !d.begin() {
			yield(driver.Event{}, errClosed)
			return
		}
		d.work.Done() // the caller's loop may outlive the driver
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(d.life, cancel)()
		w := &storeWatch{d: d, r: r, before: map[string]driver.Item{}}
		for item, err := range d.store.Changed(ctx, "") {
			if w.over(ctx) {
				break
			}
			if !w.tell(ctx, item, err, yield) {
				return
			}
		}
		if d.life.Err() != nil {
			yield(driver.Event{}, errClosed)
		}
	}
}

// storeWatch turns changes of keys into events.
type storeWatch struct {
	d      *onStore
	r      *driver.WatchRequest
	before map[string]driver.Item // what the keys were
	sure   driver.Revision        // no change up to here is missing in what was read
	upTo   driver.Revision        // nothing up to here is told any more
	ready  bool
}

// tell yields the events of one change; false: it is over.
func (w *storeWatch) tell(ctx context.Context, item driver.Item, err error, yield func(driver.Event, error) bool) bool {
	if err == nil && item.Key == "" {
		var begins bool
		if begins, err = w.gap(ctx, item.Revision); err == nil {
			return !begins || w.begin(yield)
		}
	}
	if w.over(ctx) {
		return true // Watch knows which context ended
	}
	if err != nil {
		yield(driver.Event{}, unread(ctx, err))
		return false
	}
	if !w.about(item.Key) {
		return true
	}
	old := w.before[item.Key]
	if old.Revision >= item.Revision {
		return true // it was read when the watch began
	}
	w.keep(&item)
	if item.Revision <= w.upTo {
		return true
	}
	for i, ev := range w.events(&item, &old) {
		ev.Revision, ev.Ordinal = item.Revision, uint32(i)
		if w.wants(&ev) && !yield(ev, nil) {
			return false
		}
	}
	return true
}

// over: the caller or the driver has ended the watch. The driver's end comes to ctx
// a moment later.
func (w *storeWatch) over(ctx context.Context) bool { return ctx.Err() != nil || w.d.life.Err() != nil }

// gap is told that changes up to last may be missing, and reports whether events are. What
// was read after them has them. Otherwise it reads anew: also where only changes are missing that
// are not told any more, since a later event is told from what they made of a key.
func (w *storeWatch) gap(ctx context.Context, last driver.Revision) (bool, error) {
	if w.ready && last <= w.sure {
		return false, nil
	}
	was, before := w.upTo, w.before
	if err := w.remember(ctx, last); err != nil {
		return false, err
	}
	return !w.ready || w.upTo > was || !w.has(before), nil
}

// has reports whether all these keys are still there: of one that is not nobody knows when it ended.
func (w *storeWatch) has(keys map[string]driver.Item) bool {
	for key := range keys {
		if _, ok := w.before[key]; !ok {
			return false
		}
	}
	return true
}

// begin says from where on everything is told: at first, and after a gap.
func (w *storeWatch) begin(yield func(driver.Event, error) bool) bool {
	verb := driver.VerbReady
	if w.ready {
		verb = driver.VerbResync
	}
	w.ready = true
	return yield(driver.Event{Kind: driver.WatchKind, Verb: verb, Revision: w.upTo + 1}, nil)
}

// about reports whether the name of a key is one that the watch asks for.
func (w *storeWatch) about(key string) bool {
	_, name, _ := strings.Cut(key, "/")
	return strings.HasPrefix(name, w.r.Prefix) && (!w.r.Exact || name == w.r.Prefix)
}

// keep notes what a key is, if the events of its next change tell it.
func (w *storeWatch) keep(item *driver.Item) {
	switch {
	case item.Deleted || isTombstone(*item):
		delete(w.before, item.Key)
	case strings.HasPrefix(item.Key, lockPrefix) || strings.HasPrefix(item.Key, keyPrefix):
		w.before[item.Key] = *item
	}
}

// read reads what is there of a kind. At first that fails as any call does; later it goes
// on, since a watch outlives a broken connection, and tells that it does.
func (w *storeWatch) read(ctx context.Context, prefix string) ([]driver.Item, error) {
	if !w.ready {
		return w.there(ctx, w.d.quickly(), prefix)
	}
	for {
		items, err := w.there(ctx, w.d.bounded(patient), prefix)
		if _, tired := errors.AsType[*givenUp](err); !tired || ctx.Err() != nil {
			return items, err
		}
		w.d.fault("watch", w.r.Prefix, err)
	}
}

// there are the keys with a prefix, or the one that is called so.
func (w *storeWatch) there(ctx context.Context, p pace, prefix string) (items []driver.Item, err error) {
	if !w.r.Exact {
		return w.d.all(ctx, p, prefix)
	}
	err = retry(ctx, p, func() (progress, error) {
		item, err := w.d.get(ctx, prefix)
		if item.Key = prefix; item.Revision > 0 {
			items = []driver.Item{item}
		}
		return looked, err
	})
	return items, plain(err)
}

// remember reads the locks and keys that are there, so that the first change of one can
// be told from what it was; of the others a change tells all by itself. What it has read
// already is not told: the watch is from after that on. What it reads has all that any read
// before it had.
func (w *storeWatch) remember(ctx context.Context, last driver.Revision) error {
	sure := max(last, w.upTo)
	upTo, before := sure, map[string]driver.Item{}
	for _, of := range []struct{ kind, prefix string }{{"lock", lockPrefix}, {"kv", keyPrefix}} {
		if !w.asks(of.kind) {
			continue
		}
		items, err := w.read(ctx, of.prefix+w.r.Prefix)
		if err != nil {
			return err
		}
		for _, i := range items {
			before[i.Key] = i
			upTo = max(upTo, i.Revision)
		}
	}
	w.sure, w.upTo, w.before = sure, upTo, before
	return nil
}

// asks reports whether the watch may be told of a kind.
func (w *storeWatch) asks(kind string) bool {
	return len(w.r.Patterns) == 0 || slices.ContainsFunc(w.r.Patterns, func(p string) bool {
		of, _, _ := strings.Cut(p, ":")
		return of == "*" || of == kind
	})
}

// events are what a change means. A value that is not ours means nothing.
func (w *storeWatch) events(item, old *driver.Item) []driver.Event {
	switch {
	case strings.HasPrefix(item.Key, lockPrefix):
		return lockEvents(item, old)
	case strings.HasPrefix(item.Key, keyPrefix):
		return w.keyEvents(item, old)
	case strings.HasPrefix(item.Key, counterPrefix):
		return numberEvents("counter", "changed", counterPrefix, item)
	case strings.HasPrefix(item.Key, sequencePrefix):
		return numberEvents("sequence", "reserved", sequencePrefix, item)
	case strings.HasPrefix(item.Key, ratePrefix):
		return limitEvents(item)
	}
	return nil
}

func numberEvents(kind, verb, prefix string, item *driver.Item) []driver.Event {
	ev := driver.Event{Kind: kind, Verb: verb, Name: strings.TrimPrefix(item.Key, prefix)}
	if item.Deleted {
		ev.Verb = "deleted"
	} else if n, err := decode[numberEntry](item); err == nil {
		ev.Number = n.Value
	}
	return []driver.Event{ev}
}

// lockEvents tell grants and releases; a renewal changes neither.
func lockEvents(item, old *driver.Item) []driver.Event {
	now, was := lockOf(item), lockOf(old)
	name := strings.TrimPrefix(item.Key, lockPrefix)
	var events []driver.Event
	if was.Holder != "" && was.Holder != now.Holder {
		verb := "released"
		if now.Holder != "" {
			verb = "expired"
		}
		events = append(events, driver.Event{Kind: "lock", Verb: verb, Name: name, Token: was.token(old.Revision), Owner: was.Owner, Weight: 1})
	}
	if now.Holder != "" && was.Holder != now.Holder {
		events = append(events, driver.Event{Kind: "lock", Verb: "acquired", Name: name, Token: now.token(item.Revision), Owner: now.Owner, Weight: 1})
	}
	return events
}

func lockOf(item *driver.Item) *lockEntry {
	if item.Revision == 0 || item.Deleted {
		return &lockEntry{}
	}
	e, err := decode[lockEntry](item)
	if err != nil {
		return &lockEntry{}
	}
	return e
}

// keyEvents tell puts and deletes; that a tombstone goes changes nothing.
func (w *storeWatch) keyEvents(item, old *driver.Item) []driver.Event {
	name := strings.TrimPrefix(item.Key, keyPrefix)
	ev := driver.Event{Kind: "kv", Verb: "put", Name: name, KV: keyOf(name, item), Prev: keyOf(name, old)}
	switch {
	case ev.KV == nil && ev.Prev == nil:
		return nil
	case ev.KV == nil:
		ev.Verb, ev.KV = "delete", ev.Prev
	}
	if !w.r.Previous {
		ev.Prev = nil
	}
	return []driver.Event{ev}
}

func keyOf(name string, item *driver.Item) *driver.KV {
	if item.Revision == 0 || item.Deleted {
		return nil
	}
	e, err := decode[keyEntry](item)
	if err != nil || e.deleted() {
		return nil
	}
	kv := &driver.KV{Key: name, Value: e.Value, Created: e.Created, Modified: item.Revision, Version: e.Version}
	if kv.Created == 0 {
		kv.Created = item.Revision
	}
	return kv
}

// wants reports whether the request asks for the event.
func (w *storeWatch) wants(ev *driver.Event) bool {
	r := w.r
	if !strings.HasPrefix(ev.Name, r.Prefix) || r.Exact && ev.Name != r.Prefix {
		return false
	}
	if ok, _ := path.Match(r.Glob, ev.Name); r.Glob != "" && !ok {
		return false
	}
	if len(r.Patterns) == 0 {
		return true
	}
	for _, p := range r.Patterns {
		kind, verb, _ := strings.Cut(p, ":")
		if (kind == "*" || kind == ev.Kind) && (verb == "*" || verb == ev.Verb) {
			return true
		}
	}
	return false
}

package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
)

var (
	watched        = []driver.Feature{driver.FeatureWatch}
	watchedKeys    = []driver.Feature{driver.FeatureWatch, driver.FeatureKV}
	watchedWeights = []driver.Feature{driver.FeatureWatch, driver.FeatureWeighted}
	history        = []driver.Feature{driver.FeatureWatch, driver.FeatureHistory, driver.FeatureKV}
)

var watchCases = []Case{
	{Name: "Watch/ReadyFirst", Needs: watchedKeys, Run: run(watchReadyFirst),
		Promise: "The first event of a watch is watch:ready, and everything from its revision on follows."},
	{Name: "Watch/Keys", Needs: watchedKeys, Run: run(watchKeys),
		Promise: "A watch tells every put and delete of a key, in order, with value, revision and version."},
	{Name: "Watch/Locks", Needs: watched, Run: run(watchLocks),
		Promise: "A watch tells when a mutex is acquired and released, by whom and with which token, at no revision before that of watch:ready."},
	{Name: "Watch/Semaphores", Needs: watchedWeights, Run: run(watchSemaphores),
		Promise: "A watch tells when a semaphore is acquired and released, with the weight."},
	{Name: "Watch/NothingMissing", Needs: watchedKeys, Run: run(watchNothingMissing),
		Promise: "A watch tells every change of many writers once, with positions that only grow."},
	{Name: "Watch/MixedOrder", Needs: watchedWeights, Run: run(watchMixedOrder),
		Promise: "A watch tells what several clients do with mutexes and semaphores, waiters that leave among them, in order: positions only grow, and each grant is told before its end."},
	{Name: "Watch/Prefix", Needs: watchedKeys, Run: run(watchPrefix),
		Promise: "A watch tells only of names that begin with its prefix; with Exact only of the name itself."},
	{Name: "Watch/Patterns", Needs: watchedKeys, Run: run(watchPatterns),
		Promise: "A watch with Patterns tells only of kinds and verbs that match one of them."},
	{Name: "Watch/Glob", Needs: watchedKeys, Run: run(watchGlob),
		Promise: "A watch with a Glob tells only of names that match it."},
	{Name: "Watch/Previous", Needs: watchedKeys, Run: run(watchPrevious),
		Promise: "A watch with Previous tells what a key was before."},
	{Name: "Watch/EndsWithContext", Needs: watchedKeys, Run: run(watchEndsWithContext),
		Promise: "A watch ends without an error when its context does."},
	{Name: "Watch/SlowReader", Needs: watchedKeys, Run: run(watchSlowReader),
		Promise: "A reader that falls behind gets every event or one watch:resync where some are missing; never a silent gap."},
	{Name: "Watch/Several", Needs: watchedKeys, Run: run(watchSeveral),
		Promise: "Every watcher of a name is told of every change."},
	{Name: "Watch/Bad", Needs: watchedKeys, Run: run(watchBad),
		Promise: "A watch with a bad pattern or glob is fs.ErrInvalid."},
}

var historyCases = []Case{
	{Name: "History/FromRevision", Needs: history, Run: run(historyFromRevision),
		Promise: "A watch from an earlier revision tells everything from there, that revision included, and goes on with what comes."},
	{Name: "History/ResumesWithoutGap", Needs: history, Run: run(historyResumes),
		Promise: "A watch that is resumed after the last event seen misses nothing and repeats nothing."},
	{Name: "History/Compacted", Needs: history, Uses: CanFlood, Alone: true, Run: run(historyCompacted),
		Promise: "A watch from a revision whose events are no longer kept is ErrCompacted, never a silent gap."},
}

// eventLog is a watch that runs beside the case.
type eventLog struct {
	ctx    context.Context
	events chan holdfast.Event
	over   *background[struct{}]
	ready  holdfast.Event
}

// watch starts a watch and returns when it is ready.
func watch(ctx context.Context, s *holdfast.Space, prefix string, from holdfast.Revision, opts ...holdfast.WatchOption) *eventLog {
	w := &eventLog{ctx: ctx, events: make(chan holdfast.Event)}
	w.over = later(func() (struct{}, error) {
		for ev, err := range s.Watch(ctx, prefix, from, opts...) {
			if err != nil {
				return struct{}{}, err
			}
			select {
			case w.events <- ev:
			case <-ctx.Done():
			}
		}
		return struct{}{}, errors.New("the watch ended before its context")
	})
	w.ready = w.next()
	want(w.ready.String() == "watch:ready", "the first event of a watch is %s", w.ready.String())
	return w
}

// next is the next event.
func (w *eventLog) next() holdfast.Event {
	select {
	case ev := <-w.events:
		return ev
	case <-w.over.ended:
		done(w.over.err)
	case <-w.ctx.Done():
		fail("the watch tells nothing more: %w", context.Cause(w.ctx))
	}
	return holdfast.Event{}
}

// expect leaves the case unless the next event is what of name.
func (w *eventLog) expect(what, name string) holdfast.Event {
	ev := w.next()
	want(ev.String() == what && ev.Name == name, "the next event is %s of %q; want %s of %q", ev.String(), ev.Name, what, name)
	return ev
}

func watchReadyFirst(ctx context.Context, e *Env) {
	s := e.Client()
	before := must(s.KV().Put(ctx, "k", nil))
	w := watch(ctx, e.Client(), "", 0)
	after := must(s.KV().Put(ctx, "k", nil))
	want(holdfast.Revision(w.ready.Revision) > before && holdfast.Revision(w.ready.Revision) <= after, "between the revisions %d and %d a watch is ready from %d on", before, after, w.ready.Revision)
	ev := w.expect("kv:put", "k")
	want(holdfast.Revision(ev.Revision) == after, "the first event is of the revision %d; want %d", ev.Revision, after)
}

func watchKeys(ctx context.Context, e *Env) {
	w, s := watch(ctx, e.Client(), "", 0), e.Client().KV()
	for version, value := range []string{"one", "", "three\x00"} {
		rev := must(s.Put(ctx, "k", []byte(value)))
		ev := w.expect("kv:put", "k")
		want(holdfast.Revision(ev.Revision) == rev, "the put at %d is told at %d", rev, ev.Revision)
		want(ev.KV != nil && string(ev.KV.Value) == value && ev.KV.Version == uint64(version+1), "the put of %q is told as %+v", value, ev.KV)
		want(ev.KV.Key == "k", "the put of k is told of %q", ev.KV.Key)
	}
	must(s.Delete(ctx, "k"))
	w.expect("kv:delete", "k")
	must(s.Create(ctx, "k", nil))
	ev := w.expect("kv:put", "k")
	want(ev.KV != nil && ev.KV.Version == 1, "the first version after a delete is told as %+v", ev.KV)
}

// only takes the kinds and verbs of grants and their ends.
var only = holdfast.Patterns{"*:acquired", "*:released"}

func watchLocks(ctx context.Context, e *Env) {
	w, s := watch(ctx, e.Client(), "", 0, only), e.Client(holdfast.Owner("who"))
	for range 2 {
		h := must(s.Mutex("m").Acquire(ctx))
		ev := w.expect("lock:acquired", "m")
		want(holdfast.Token(ev.Token) == h.Token() && ev.Owner == "who", "the grant %d to who is told as %d to %q", h.Token(), ev.Token, ev.Owner)
		want(ev.Revision >= w.ready.Revision, "a watch that is ready from %d on tells a grant at %d", w.ready.Revision, ev.Revision)
		done(h.Release())
		ev = w.expect("lock:released", "m")
		want(holdfast.Token(ev.Token) == h.Token(), "the release of %d is told of %d", h.Token(), ev.Token)
	}
}

func watchSemaphores(ctx context.Context, e *Env) {
	w, s := watch(ctx, e.Client(), "", 0, only), e.Client().Semaphore("s", 5)
	for n := range int64(3) {
		h := must(s.Acquire(ctx, n+1))
		ev := w.expect("semaphore:acquired", "s")
		want(holdfast.Token(ev.Token) == h.Token() && ev.Weight == n+1, "the grant %d of %d is told as %d of %d", h.Token(), n+1, ev.Token, ev.Weight)
		done(h.Release())
		w.expect("semaphore:released", "s")
	}
}

// after reports whether a comes after b.
func after(a, b holdfast.Event) bool {
	return a.Revision > b.Revision || a.Revision == b.Revision && a.Ordinal > b.Ordinal
}

func watchNothingMissing(ctx context.Context, e *Env) {
	const writers, each = 4, 25
	w := watch(ctx, e.Client(), "", 0)
	clients := []*holdfast.Space{e.Client(), e.Client()}
	written := later(func() (struct{}, error) {
		together(writers, func(i int) {
			for range each {
				must(clients[i%2].KV().Put(ctx, fmt.Sprint("k", i), nil))
			}
		})
		return struct{}{}, nil
	})
	versions, last := map[string]uint64{}, holdfast.Event{}
	for range writers * each {
		ev := w.next()
		want(ev.String() == "kv:put" && ev.KV != nil, "the watch tells %s", ev.String())
		want(ev.KV.Version == versions[ev.Name]+1, "after version %d of %s came %d", versions[ev.Name], ev.Name, ev.KV.Version)
		want(after(ev, last), "the position %d.%d came after %d.%d", ev.Revision, ev.Ordinal, last.Revision, last.Ordinal)
		versions[ev.Name], last = ev.KV.Version, ev
	}
	must(written.wait(ctx, "the writers"))
	must(clients[0].KV().Put(ctx, "end", nil))
	w.expect("kv:put", "end")
}

// watchMixedOrder takes mutexes beside a semaphore that waiters leave without a grant: backends tell the two in
// different ways.
func watchMixedOrder(ctx context.Context, e *Env) {
	const rounds = 25
	w, s := watch(ctx, e.Client(), "", 0, holdfast.Patterns{"lock:*", "semaphore:*"}), e.Client()
	full := must(s.Semaphore("s", 1).Acquire(ctx, 1))
	clients := []*holdfast.Space{e.Client(), e.Client()}
	together(len(clients)+1, func(i int) {
		for range rounds {
			if i < len(clients) {
				done(must(clients[i].Mutex("m").Acquire(ctx)).Release())
				continue
			}
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			_, err := s.Semaphore("s", 1).Acquire(short, 1)
			cancel()
			refused(err, context.DeadlineExceeded, "Acquire of a semaphore that is held")
		}
	})
	done(full.Release())
	w.orderedUntil("semaphore:released")
}

// orderedUntil reads up to an event, and leaves the case unless all came in order.
func (w *eventLog) orderedUntil(what string) {
	last, held := holdfast.Event{}, map[string]driver.Token{}
	for last.String() != what {
		ev := w.next()
		want(after(ev, last), "%s at %d.%d came after %s at %d.%d", ev.String(), ev.Revision, ev.Ordinal, last.String(), last.Revision, last.Ordinal)
		switch ev.Verb {
		case "acquired":
			want(held[ev.Name] == 0, "%s is told as granted with %d while %d is held", ev.Name, ev.Token, held[ev.Name])
			held[ev.Name] = ev.Token
		case "released":
			want(held[ev.Name] == ev.Token, "the release of %d of %s is told while %d is held", ev.Token, ev.Name, held[ev.Name])
			held[ev.Name] = 0
		}
		last = ev
	}
}

func watchPrefix(ctx context.Context, e *Env) {
	s := e.Client()
	prefix, exact := watch(ctx, e.Client(), "a/", 0), watch(ctx, e.Client(), "a/b", 0, holdfast.ExactName())
	for _, key := range []string{"a", "a/b", "A/b", "b/a/b", "a/bc", "a/b/c", "a/", "a0"} {
		must(s.KV().Put(ctx, key, nil))
	}
	must(s.KV().Put(ctx, "a/b", nil))
	for _, key := range []string{"a/b", "a/bc", "a/b/c", "a/", "a/b"} {
		prefix.expect("kv:put", key)
	}
	exact.expect("kv:put", "a/b")
	want(exact.expect("kv:put", "a/b").KV.Version == 2, "a watch of one name missed its second change")
}

func watchPatterns(ctx context.Context, e *Env) {
	s := e.Client()
	w := watch(ctx, e.Client(), "", 0, holdfast.Patterns{"lock:acquired", "kv:delete"})
	h := must(s.Mutex("m").Acquire(ctx))
	must(s.KV().Put(ctx, "k", nil))
	done(h.Release())
	must(s.KV().Delete(ctx, "k"))
	e.take(s.Mutex("end").Acquire(ctx))
	w.expect("lock:acquired", "m")
	w.expect("kv:delete", "k")
	w.expect("lock:acquired", "end")
}

func watchGlob(ctx context.Context, e *Env) {
	s := e.Client()
	w := watch(ctx, e.Client(), "", 0, holdfast.Glob("*/b?"))
	for _, key := range []string{"b1", "a/b", "a/b1", "a/c1", "a/b12", "a/x/b1", "end/bb"} {
		must(s.KV().Put(ctx, key, nil))
	}
	w.expect("kv:put", "a/b1")
	w.expect("kv:put", "end/bb")
}

func watchPrevious(ctx context.Context, e *Env) {
	s := e.Client().KV()
	w := watch(ctx, e.Client(), "", 0, holdfast.WithPrevious())
	must(s.Put(ctx, "k", []byte("one")))
	must(s.Put(ctx, "k", []byte("two")))
	must(s.Delete(ctx, "k"))
	want(w.expect("kv:put", "k").Prev == nil, "a new key had something before it")
	prev := w.expect("kv:put", "k").Prev
	want(prev != nil && string(prev.Value) == "one", "before the second put the key is told as %+v", prev)
	prev = w.expect("kv:delete", "k").Prev
	want(prev != nil && string(prev.Value) == "two", "before the delete the key is told as %+v", prev)
}

func watchEndsWithContext(ctx context.Context, e *Env) {
	s := e.Client()
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	n := 0
	over := later(func() (struct{}, error) {
		for _, err := range s.Watch(watching, "", 0) {
			done(err)
			n++
			cancel()
		}
		return struct{}{}, nil
	})
	must(over.wait(ctx, "a watch past its context"))
	want(n == 1, "a watch whose context ended told %d events", n)
	w := watch(ctx, s, "", 0)
	must(s.KV().Put(ctx, "k", nil))
	w.expect("kv:put", "k")
}

func watchSlowReader(ctx context.Context, e *Env) {
	const n = 1500
	w, s := watch(ctx, e.Client(), "", 0), e.Client().KV()
	together(20, func(i int) {
		for range n / 20 {
			must(s.Put(ctx, fmt.Sprint("k", i), nil))
		}
	})
	must(s.Put(ctx, "end", nil))
	told, ev := 0, w.next()
	for ; ev.Name != "end" && ev.Kind != driver.WatchKind; ev = w.next() {
		told++
	}
	resync := ev.String() == "watch:resync"
	want(resync || told == n, "%d of %d events were told, and no watch:resync", told, n)
	must(s.Put(ctx, "last", nil))
	for ev := w.next(); ev.Name != "last"; ev = w.next() {
		if ev.Kind == driver.WatchKind { // it left out more, which may be the last one too
			must(s.Put(ctx, "last", nil))
		}
	}
}

func watchSeveral(ctx context.Context, e *Env) {
	s := e.Client()
	watchers := []*eventLog{watch(ctx, s, "", 0), watch(ctx, s, "", 0), watch(ctx, e.Client(), "k", 0)}
	for range 5 {
		must(s.KV().Put(ctx, "k", nil))
	}
	for _, w := range watchers {
		for version := range uint64(5) {
			ev := w.expect("kv:put", "k")
			want(ev.KV.Version == version+1, "after version %d a watcher is told %d", version, ev.KV.Version)
		}
	}
}

func watchBad(ctx context.Context, e *Env) {
	s := e.Client()
	for _, o := range []holdfast.WatchOption{holdfast.Patterns{"lock"}, holdfast.Patterns{":"}, holdfast.Patterns{"nosuch:*"}, holdfast.Patterns{"*:nosuch"}, holdfast.Glob("[")} {
		told := false
		for _, err := range s.Watch(ctx, "", 0, o) {
			refused(err, fs.ErrInvalid, "a watch with a bad option")
			told = true
		}
		want(told, "a watch with a bad option tells nothing")
	}
	for _, kind := range strings.Fields("lock rwlock semaphore election latch barrier session counter sequence kv limit *") {
		watch(ctx, s, "", 0, holdfast.Patterns{kind + ":*"}) // it begins
	}
	w := watch(ctx, s, "", 0, holdfast.Patterns{"*:*"}, holdfast.Glob("[k]"))
	must(s.KV().Put(ctx, "k", nil))
	w.expect("kv:put", "k")
}

func historyFromRevision(ctx context.Context, e *Env) {
	s := e.Client()
	must(s.KV().Put(ctx, "k", nil))
	from := must(s.KV().Put(ctx, "k", nil))
	must(s.KV().Put(ctx, "k", nil))
	w := watch(ctx, e.Client(), "", from)
	want(holdfast.Revision(w.ready.Revision) == from, "a watch from %d is ready from %d", from, w.ready.Revision)
	must(s.KV().Put(ctx, "k", nil))
	for version := uint64(2); version <= 4; version++ {
		ev := w.expect("kv:put", "k")
		want(ev.KV.Version == version, "the next version is %d; want %d", ev.KV.Version, version)
	}
}

func historyResumes(ctx context.Context, e *Env) {
	s := e.Client()
	start := must(s.KV().Put(ctx, "k", nil))
	writing := later(func() (struct{}, error) {
		for range 60 {
			must(s.KV().Put(ctx, "k", nil))
		}
		return struct{}{}, nil
	})
	version := uint64(1)
	for from := start + 1; version < 61; {
		watching, cancel := context.WithCancel(ctx)
		w := watch(watching, e.Client(), "", from)
		for range min(10, 61-version) {
			ev := w.next()
			want(ev.KV != nil && ev.KV.Version == version+1, "after version %d came %+v", version, ev.KV)
			version, from = ev.KV.Version, holdfast.Revision(ev.Revision)+1
		}
		cancel()
	}
	must(writing.wait(ctx, "the writer"))
}

func historyCompacted(ctx context.Context, e *Env) {
	s := e.Client()
	from := must(s.KV().Put(ctx, "first", nil))
	eventually(ctx, "the history does not end", func() bool {
		together(50, func(i int) {
			for range 100 {
				must(s.KV().Put(ctx, fmt.Sprint("k", i), nil))
			}
		})
		for ev, err := range s.Watch(ctx, "", from) {
			if errors.Is(err, holdfast.ErrCompacted) {
				return true
			}
			done(err)
			if ev.Kind == driver.WatchKind && ev.Verb == driver.VerbReady {
				continue
			}
			want(ev.Name == "first" || ev.Verb == driver.VerbResync, "the first event from %d on is %s of %q", from, ev.String(), ev.Name)
			return false
		}
		return false
	})
	watch(ctx, s, "", 0)
}

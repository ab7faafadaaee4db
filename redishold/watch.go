package redishold

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// hub hands the server's events to watchers. One subscription a client
// serves them all.
type hub struct {
	c    *client
	once sync.Once

	mu       sync.Mutex
	joined   bool            // the server has confirmed the subscription
	ready    chan struct{}   // closed when it has, for the first time
	last     driver.Revision // revision of the last message; 0: none since joining
	floor    driver.Revision // up to it nobody watched, and not everything was told
	pending  bool            // of the watchers, or of those that read anew, the first has yet to learn its revision
	hole     driver.Revision // the last one that no message told meanwhile
	watchers map[*keyWatch]struct{}
}

// backlog is how many unread events a watcher may have before it is told to
// read anew.
const backlog = 4096

// keyWatch is one Watch; guarded by the hub's lock.
type keyWatch struct {
	r      *driver.WatchRequest
	after  driver.Revision // events up to this revision are not for it
	events []driver.Event
	resync bool
	wake   chan struct{}
}

func (h *hub) init(c *client) {
	h.c, h.ready, h.watchers = c, make(chan struct{}), map[*keyWatch]struct{}{}
}

func (h *hub) watched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watchers) > 0
}

// join is called at the start of each subscription: what was told before it is
// missing for those that watched already.
func (h *hub) join() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.joined {
		h.joined = true
		close(h.ready)
		return
	}
	h.gap()
}

// watchFor is how long the server knows that somebody watches, unless it hears
// so again; the looks of poll tell it much more often. While it does not know,
// quick holds and additions to counters are not published.
const watchFor = 30 * time.Second

// lapse is called when the server had forgotten that somebody watches.
func (h *hub) lapse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.pending {
		h.gap()
	}
}

// gap has everybody read anew; the hub is locked. What comes next is compared with
// nothing before: a server that lost its newest data begins at an earlier revision. Until
// the first has its revision, what else is missing is no other gap, if that revision is later.
func (h *hub) gap() {
	h.last, h.floor, h.hole, h.pending = 0, 0, 0, true
	for w := range h.watchers {
		w.drop()
	}
}

func (w *keyWatch) drop() {
	w.events, w.resync = nil, true
	nudge(w.wake)
}

// hear takes a message of the server; it must not wait.
func (h *hub) hear(text string) {
	m, err := decode(text)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.gap()
		return
	}
	switch back, missed := h.last != 0 && m.first <= h.last, h.missed(&m); {
	case missed && h.pending && !back:
		h.hole = m.first - 1
	case missed || back:
		h.gap()
	}
	h.last = m.last
	for w := range h.watchers {
		w.take(m.events)
	}
}

// missed reports that something before m was not told. Up to the floor some may be missing;
// what does come, later than the answer that told the floor, may be for a watcher that began before that.
func (h *hub) missed(m *message) bool {
	if m.last <= h.floor {
		return false
	}
	before := max(h.last, h.floor)
	return before != 0 && m.first != before+1
}

func (w *keyWatch) take(events []driver.Event) {
	if w.resync {
		return // what it reads anew has them, or comes after them
	}
	for i := range events {
		if e := &events[i]; e.Revision > w.after && w.wants(e) {
			w.events = append(w.events, *e)
		}
	}
	if len(w.events) > backlog {
		w.drop()
		return
	}
	if len(w.events) > 0 {
		nudge(w.wake)
	}
}

func (w *keyWatch) wants(e *driver.Event) bool {
	if w.r.Exact && e.Name != w.r.Prefix || !strings.HasPrefix(e.Name, w.r.Prefix) {
		return false
	}
	if w.r.Glob != "" {
		if ok, _ := path.Match(w.r.Glob, e.Name); !ok {
			return false
		}
	}
	return len(w.r.Patterns) == 0 || slices.ContainsFunc(w.r.Patterns, func(p string) bool {
		kind, verb, _ := strings.Cut(p, ":")
		return (kind == "*" || kind == e.Kind) && (verb == "*" || verb == e.Verb)
	})
}

// Watch yields what happens from now on.
func (c *client) Watch(ctx context.Context, r *driver.WatchRequest) iter.Seq2[driver.Event, error] {
	return func(yield func(driver.Event, error) bool) {
		if r.From > 0 {
			yield(driver.Event{}, driver.Errorf("", r.Prefix, fs.ErrInvalid, "Redis keeps no history: watch from 0, which is now"))
			return
		}
		w, from, err := c.watch(ctx, r)
		if err != nil {
			yield(driver.Event{}, err)
			return
		}
		defer c.hub.remove(w)
		if !yield(driver.Event{Kind: driver.WatchKind, Verb: driver.VerbReady, Revision: from}, nil) {
			return
		}
		c.follow(ctx, w, yield)
	}
}

// watch joins the hub, and then asks at which revision: everything after it
// will be told.
func (c *client) watch(ctx context.Context, r *driver.WatchRequest) (*keyWatch, driver.Revision, error) {
	if err := c.begin(ctx); err != nil {
		return nil, 0, err
	}
	c.start()
	c.hub.once.Do(func() { c.spawn(func() { c.receive(c.key+"ev", c.hub.hear, c.hub.join) }) })
	select {
	case <-c.hub.ready:
	case <-ctx.Done():
		return nil, 0, gaveup.Error(ctx, driver.NotDone)
	case <-c.life.Done():
		return nil, 0, errClosed
	}
	w := &keyWatch{r: r, wake: make(chan struct{}, 1)}
	c.hub.add(w)
	nudge(c.wakePoller)
	now, err := c.revision(ctx)
	if err != nil {
		c.hub.remove(w)
		return nil, 0, err
	}
	c.hub.from(w, now)
	return w, now + 1, nil
}

func (h *hub) add(w *keyWatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watchers) == 0 {
		h.pending, h.hole = true, 0
	}
	h.watchers[w] = struct{}{}
}

func (h *hub) remove(w *keyWatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers, w)
}

// from lets w see only what comes after a revision. If it has to read anew by now,
// that revision may be of a server that has gone back since: it asks again. So do all if
// something after it is missing.
func (h *hub) from(w *keyWatch, now driver.Revision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hole > now {
		h.gap()
	}
	if w.resync {
		return
	}
	if h.pending || max(h.last, h.floor) == 0 {
		h.pending, h.floor = false, now
	}
	w.after = now
	w.events = slices.DeleteFunc(w.events, func(e driver.Event) bool { return e.Revision <= now })
}

// revision tells the server that somebody watches, and is the last one that it
// has given: what comes after it is published.
func (c *client) revision(ctx context.Context) (driver.Revision, error) {
	reply, err := c.call(ctx, watchScript, millis(watchFor))
	if err != nil {
		return 0, err
	}
	r := reader{rest: reply[1:]}
	return r.revision(), r.err
}

// follow yields events until ctx, the client or the caller ends it.
func (c *client) follow(ctx context.Context, w *keyWatch, yield func(driver.Event, error) bool) {
	for {
		events, resync := c.hub.read(w)
		if resync && !c.resync(ctx, w, yield) {
			return
		}
		for i := range events {
			if !w.r.Previous {
				events[i].Prev = nil
			}
			if ctx.Err() != nil || !yield(events[i], nil) {
				return
			}
		}
		if len(events) > 0 || resync {
			continue
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		case <-c.life.Done():
			yield(driver.Event{}, errClosed)
			return
		}
	}
}

func (h *hub) read(w *keyWatch) ([]driver.Event, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	events, resync := w.events, w.resync
	w.events, w.resync = nil, false
	if resync {
		w.after = 0 // until it knows the revision that it reads at, which may be an earlier one
	}
	return events, resync
}

// resync tells the watcher to read anew, from the revision that the server is
// at by then.
func (c *client) resync(ctx context.Context, w *keyWatch, yield func(driver.Event, error) bool) bool {
	now, err := c.revisionAtLast(ctx)
	if err != nil {
		if ctx.Err() == nil {
			yield(driver.Event{}, err)
		}
		return false
	}
	c.hub.from(w, now)
	return yield(driver.Event{Kind: driver.WatchKind, Verb: driver.VerbResync, Revision: now + 1}, nil)
}

// revisionAtLast is the revision as soon as the server tells it. One that has just
// come back may accept a subscription long before it serves, since it loads its
// data or has no primary yet: a watch goes on when that is over.
func (c *client) revisionAtLast(ctx context.Context) (driver.Revision, error) {
	for {
		now, err := c.revision(ctx)
		if !errors.Is(err, driver.ErrUnavailable) {
			return now, err
		}
		select {
		case <-time.After(retryIn):
		case <-ctx.Done():
			return 0, gaveup.Error(ctx, driver.NotDone)
		case <-c.life.Done():
			return 0, errClosed
		}
	}
}

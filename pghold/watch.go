package pghold

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/gaveup"
)

// hub hands the notifications of the home link to the watchers.
type hub struct {
	mu       sync.Mutex
	watchers map[*rowWatch]struct{}
	tidied   time.Time // when one of them last had what has ended removed
}

// backlog is how many events a slow reader may lie behind.
const backlog = 4096

// rowWatch is one Watch. What it is sent waits in a list, so that a slow reader
// keeps nobody waiting; when the list is full it is told to read anew.
type rowWatch struct {
	bell chan struct{}

	mu     sync.Mutex
	list   []string
	gap    bool // something was left out
	broken bool // the link is gone
}

func (h *hub) add() *rowWatch {
	w := &rowWatch{bell: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[w] = struct{}{}
	return w
}

// remove reports whether it was the last.
func (h *hub) remove(w *rowWatch) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers, w)
	return len(h.watchers) == 0
}

// isUntidy tells one of the watchers, once a second, that what has ended is to be removed.
func (h *hub) isUntidy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.tidied) < tidyEvery*9/10 { // less than its ticks
		return false
	}
	h.tidied = time.Now()
	return true
}

func (h *hub) isWatched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watchers) > 0
}

func (h *hub) publish(payload string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		w.put(payload)
	}
}

// broken: the link that heard for all is gone.
func (h *hub) broken() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		w.mu.Lock()
		w.broken = true
		w.mu.Unlock()
		ring(w.bell)
	}
}

func (w *rowWatch) put(payload string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.list) >= backlog {
		w.list, w.gap = nil, true
	}
	w.list = append(w.list, payload)
	ring(w.bell)
}

// take empties the list.
func (w *rowWatch) take() (list []string, gap, broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list, gap, broken = w.list, w.gap, w.broken
	w.list, w.gap, w.broken = nil, false, false
	return list, gap, broken
}

// Watch yields what happens from now on.
func (c *client) Watch(ctx context.Context, r *driver.WatchRequest) iter.Seq2[driver.Event, error] {
	return func(yield func(driver.Event, error) bool) {
		if err := c.mayWatch(ctx, r); err != nil {
			yield(driver.Event{}, err)
			return
		}
		f := &follower{c: c, r: r, w: c.hub.add(), yield: yield}
		defer func() {
			if c.hub.remove(f.w) {
				c.watchNoMore()
			}
		}()
		if err := f.subscribe(ctx, driver.VerbReady); err != nil {
			f.fail(ctx, err)
			return
		}
		f.follow(ctx)
	}
}

func (c *client) mayWatch(ctx context.Context, r *driver.WatchRequest) error {
	if c.opts.Scope == TransactionScope || r.From > 0 {
		return errors.ErrUnsupported
	}
	if _, err := path.Match(r.Glob, ""); err != nil {
		return refuse(fs.ErrInvalid, "the glob %q is malformed: close every bracket and escape with a backslash", r.Glob)
	}
	for _, p := range r.Patterns {
		if kind, verb, ok := strings.Cut(p, ":"); !ok || kind == "" || verb == "" {
			return refuse(fs.ErrInvalid, "the pattern %q is not kind:verb, such as lock:acquired, lock:* or *:released", p)
		}
	}
	return c.begin(ctx)
}

// subscribeSQL makes the link one that events are sent for. The lock lets no
// transaction be under way that has looked before. The fast path is closed as long
// as somebody watches: a quick grant is told to nobody. The row does not say that
// it is: an unsubscribeSQL that fails may have given some of its locks back. Everybody that takes a lock
// waits behind a wait for the first one, so it is short.
const (
	subscribeSQL = `do $$ begin
  perform pg_catalog.set_config('lock_timeout', '%[2]d', true);
  perform pg_catalog.pg_advisory_xact_lock(5209599041173340519);
  insert into holdfast.watcher (nonce) values (%[1]d) on conflict do nothing;
  perform pg_catalog.pg_advisory_lock_shared(5209599041173340544 + i) from generate_series(0, 31) i
    where not exists (select from holdfast_v10.locks(1::smallint, 5209599041173340544 + i) l where l.pid = pg_backend_pid() and l.granted);
end $$; listen holdfast_event`
	unsubscribeSQL = `unlisten holdfast_event; do $$ begin
  delete from holdfast.watcher where nonce = %[1]d;
  perform holdfast_v10.unlock_if_held(1::smallint, 5209599041173340544 + i, 1::smallint) from generate_series(0, 31) i;
end $$`
)

// listenForEvents subscribes the home link, and returns the revision from which
// everything follows.
func (c *client) listenForEvents(ctx context.Context) (driver.Revision, error) {
	rev, err := c.listenOnce(ctx)
	for end := time.Now().Add(c.opts.Timeout); code(err) == "55P03" || errors.Is(err, errNoRevision); rev, err = c.listenOnce(ctx) {
		if time.Now().After(end) {
			return 0, &driver.Error{Kind: driver.ErrUnavailable, Outcome: driver.NotDone, RetryAfter: time.Second, Err: fmt.Errorf("others' transactions last: %w", err)}
		}
		select { // others' turn
		case <-time.After(c.subscribeFor()):
		case <-ctx.Done():
			return 0, gaveup.Error(ctx, driver.NotDone)
		}
	}
	if err != nil {
		return 0, err
	}
	return rev, c.recorded(ctx) // the end of a hold without a row would be told to nobody
}

// subscribeFor is how long a subscription waits for a lock: the first of several for others'
// transactions, and the link must not count as broken meanwhile.
func (c *client) subscribeFor() time.Duration { return min(c.slice/2, c.opts.Timeout/8) }

// listenOnce is one attempt of listenForEvents.
func (c *client) listenOnce(ctx context.Context) (driver.Revision, error) {
	l, err := c.atHome(ctx)
	if err != nil {
		return 0, err
	}
	var rev int64
	err = c.onHome(ctx, l, func(ctx context.Context, _ querier) error {
		if err := l.subscribe(ctx); err != nil {
			return err
		}
		return scanRevision(l.conn.QueryRow(ctx, "select n + 1 from holdfast.revision"), &rev)
	}, nil)
	if err != nil {
		return 0, c.revised(err) // the job may go on, and write to rev
	}
	return driver.Revision(rev), nil
}

// subscribe runs subscribeSQL. What is left of it if it fails half way is taken
// back: locks of a connection outlast the transaction that took them.
func (l *pgLink) subscribe(ctx context.Context) error {
	before := l.watching
	l.watching = true
	_, err := l.conn.PgConn().Exec(ctx, fmt.Sprintf(subscribeSQL, l.nonce, max(l.c.subscribeFor().Milliseconds(), 1))).ReadAll()
	if err == nil || before || l.conn.IsClosed() {
		return err
	}
	if e := l.unsubscribe(ctx); e != nil {
		l.fail(e)
	}
	return err
}

// unsubscribe undoes subscribe, all of it or a part. The fast path opens last, since no
// failure closes it again.
func (l *pgLink) unsubscribe(ctx context.Context) error {
	_, err := l.conn.PgConn().Exec(ctx, fmt.Sprintf(unsubscribeSQL, l.nonce)).ReadAll()
	l.watching = err != nil
	return err
}

// watchNoMore ends the subscription when nobody watches, in the background, and
// tries again if that fails.
func (c *client) watchNoMore() {
	l := c.living()
	if l == nil {
		return
	}
	c.spawn(func() {
		j := l.start(c.opts.Timeout, func(ctx context.Context) error {
			c.hub.mu.Lock()
			again := len(c.hub.watchers) > 0
			c.hub.mu.Unlock()
			if again {
				return nil
			}
			return l.unsubscribe(ctx)
		})
		if <-j.done; j.err != nil && l.alive() {
			time.AfterFunc(faultPause, c.watchNoMore)
		}
	})
}

// follower is the reading side of one Watch.
type follower struct {
	c     *client
	r     *driver.WatchRequest
	w     *rowWatch
	yield func(driver.Event, error) bool
	from  driver.Revision // what has an earlier one is in what the reader reads when it begins, or anew
	rev   driver.Revision // of the last event, or of watch:ready or watch:resync
	next  uint32          // the ordinal of the next event at rev
}

// subscribe begins, or begins anew after the link broke; it tells so.
func (f *follower) subscribe(ctx context.Context, verb string) error {
	ctx, cancel := f.c.within(ctx)
	defer cancel()
	from, err := f.c.listenForEvents(ctx)
	if err != nil {
		return err
	}
	f.from = from
	if !f.begin(verb) {
		return errStop
	}
	return nil
}

// begin tells that the watch begins, or begins anew: at a revision at which nothing was told, so that nothing that is
// told later has one before it, and nothing that is missing has it.
func (f *follower) begin(verb string) bool {
	if f.next > 0 {
		f.rev, f.next = f.rev+1, 0
	}
	f.rev = max(f.rev, f.from)
	return f.yield(driver.Event{Kind: driver.WatchKind, Verb: verb, Revision: f.rev}, nil)
}

var errStop = errors.New("the caller has seen enough")

func (f *follower) fail(ctx context.Context, err error) {
	switch {
	case err == errStop || ctx.Err() != nil:
	case f.c.life.Err() != nil:
		f.yield(driver.Event{}, errClosed)
	default:
		f.yield(driver.Event{}, err)
	}
}

// tidyEvery is how often a program that watches removes, and so tells, what has ended.
const tidyEvery = time.Second

// follow yields until something ends it. Keys past their time, and claims and keys of programs
// that have died, are removed, and told, meanwhile.
func (f *follower) follow(ctx context.Context) {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-f.w.bell:
		case <-tick.C:
			if f.c.hub.isUntidy() {
				f.c.tidy()
			}
			continue
		case <-ctx.Done():
			return
		case <-f.c.life.Done():
			f.fail(ctx, errClosed)
			return
		}
		if err := f.drain(ctx); err != nil {
			f.fail(ctx, err)
			return
		}
	}
}

// drain yields what has come.
func (f *follower) drain(ctx context.Context) error {
	list, gap, broken := f.w.take()
	if gap && !broken && !f.begin(driver.VerbResync) {
		return errStop
	}
	for _, payload := range list {
		ev, err := f.decode(ctx, payload)
		switch {
		case err == errMissing:
			return f.pass(ctx, broken)
		case err != nil: // every user of the database can send one
			f.c.fault("watch", f.r.Prefix, err)
		case ctx.Err() != nil:
			return errStop
		case !f.place(ev) || !wants(f.r, ev):
		case !f.yield(*ev, nil):
			return errStop
		}
	}
	if broken {
		return f.resume(ctx)
	}
	return nil
}

// errMissing: an event cannot be had any more.
var errMissing = errors.New("an event is missing")

// pass goes on behind an event that is missing: what came after it is told by the state that the
// reader reads anew.
func (f *follower) pass(ctx context.Context, broken bool) error {
	switch {
	case ctx.Err() != nil:
		return errStop
	case broken:
		return f.resume(ctx)
	case !f.begin(driver.VerbResync):
		return errStop
	}
	return nil
}

// resume subscribes again, until the server answers or ctx ends. Without the schema there is nothing to watch, and nothing tells
// the reader that what it has seen is gone but the end of the watch.
func (f *follower) resume(ctx context.Context) error {
	for pause := faultPause; ; pause = min(2*pause, time.Second) {
		err := f.subscribe(ctx, driver.VerbResync)
		if !errors.Is(err, driver.ErrUnavailable) || isRemoved(err) || ctx.Err() != nil || f.c.life.Err() != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errStop
		case <-f.c.life.Done():
			return errClosed
		}
	}
}

// wants reports whether the watch asked for ev.
func wants(r *driver.WatchRequest, ev *driver.Event) bool {
	if !strings.HasPrefix(ev.Name, r.Prefix) || r.Exact && ev.Name != r.Prefix {
		return false
	}
	if r.Glob != "" {
		if ok, _ := path.Match(r.Glob, ev.Name); !ok {
			return false
		}
	}
	for _, p := range r.Patterns {
		kind, verb, _ := strings.Cut(p, ":")
		if (kind == "*" || kind == ev.Kind) && (verb == "*" || verb == ev.Verb) {
			return true
		}
	}
	return len(r.Patterns) == 0
}

// message is an event on its way.
type message struct {
	Kind     string          `json:"k"`
	Verb     string          `json:"v"`
	Name     string          `json:"n"`
	Token    driver.Token    `json:"t"`
	Owner    string          `json:"o"`
	Mode     driver.Mode     `json:"m"`
	Weight   int64           `json:"w"`
	Session  string          `json:"l"`
	Value    *string         `json:"x"`
	Reason   string          `json:"why"`
	Revision driver.Revision `json:"r"`
	Ordinal  uint32          `json:"d"`
	Number   string          `json:"u"`
	KV       *keyMessage     `json:"kv"`
	Was      *keyMessage     `json:"was"`
}

type keyMessage struct {
	Key      string          `json:"k"`
	Value    string          `json:"x"`
	Created  driver.Revision `json:"c"`
	Modified driver.Revision `json:"m"`
	Version  uint64          `json:"n"`
	Session  string          `json:"l"`
	Expires  int64           `json:"e"`
}

// decode makes an event of a notification, which may only say where it is.
func (f *follower) decode(ctx context.Context, payload string) (*driver.Event, error) {
	if id, ok := strings.CutPrefix(payload, "@"); ok {
		if payload, ok = f.large(ctx, id); !ok {
			return nil, errMissing
		}
	}
	return decodeEvent(payload, f.r.Previous)
}

// large reads an event that did not fit into a notification. Those are kept for a minute. false: it
// is gone, and everything up to the present revision may be; or the server does not answer.
func (f *follower) large(ctx context.Context, id string) (string, bool) {
	ctx, cancel := context.WithTimeout(ctx, f.c.opts.Timeout)
	defer cancel()
	var body *string
	var rev driver.Revision
	err := f.c.repeat(ctx, func(ctx context.Context, q querier) error {
		return q.QueryRow(ctx, "select n, (select e.body from holdfast.event e where e.id = $1::text::bigint) from holdfast.revision", f.c.args(id)...).Scan(&rev, &body)
	})
	if err != nil || body == nil {
		f.from = max(f.from, rev+1)
		return "", false
	}
	return *body, true
}

// place gives an event its position. Only keys and what comes with them take revisions; the rest stands
// behind the last event. false: the reader has read what it tells. Such events come while
// others of the program watch already.
func (f *follower) place(ev *driver.Event) bool {
	switch {
	case ev.Revision > 0 && ev.Revision < f.from:
		return false
	case ev.Revision > f.rev:
		f.rev, f.next = ev.Revision, ev.Ordinal
	case ev.Revision == f.rev:
		f.next = max(f.next, ev.Ordinal)
	}
	ev.Revision, ev.Ordinal = f.rev, f.next
	f.next++
	return true
}

// decodeEvent reads the JSON of an event; an error: it is none.
func decodeEvent(body string, previous bool) (*driver.Event, error) {
	var m message
	if err := json.Unmarshal([]byte(body), &m); err != nil || m.Kind == "" || m.Verb == "" {
		return nil, fmt.Errorf("a notification on holdfast_event is not of this library, and is passed over: %.40q", body)
	}
	ev := &driver.Event{
		Revision: m.Revision, Ordinal: m.Ordinal, Kind: m.Kind, Verb: m.Verb, Name: m.Name, Token: m.Token, Owner: m.Owner,
		Mode: m.Mode, Weight: m.Weight, Session: sessionID(m.Session), Reason: m.Reason, KV: m.KV.kv(),
	}
	ev.Number, _ = strconv.ParseUint(m.Number, 10, 64)
	if ev.KV != nil {
		ev.Session = ev.KV.Session
	}
	if ev.Reason == "closed" { // a Space that closes ends its sessions, which has no reason elsewhere
		ev.Reason = ""
	}
	if m.Value != nil {
		ev.Value = plain(*m.Value)
	}
	if previous {
		ev.Prev = m.Was.kv()
	}
	return ev, nil
}

func (k *keyMessage) kv() *driver.KV {
	if k == nil {
		return nil
	}
	return &driver.KV{
		Key: k.Key, Value: plain(k.Value), Created: k.Created, Modified: k.Modified, Version: k.Version,
		Session: sessionID(k.Session), ExpiresIn: time.Duration(max(k.Expires, 0)) * time.Millisecond,
	}
}

// plain undoes PostgreSQL's base64, which has line breaks.
func plain(s string) []byte {
	v, _ := base64.StdEncoding.DecodeString(s) // which ignores them
	return v
}

// sessionID reads a uuid; anything else is no session.
func sessionID(s string) (id driver.SessionID) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err == nil && len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}

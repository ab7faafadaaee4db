package world

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/watch"
	"github.com/holdfast-io/holdfast/internal/wire"
	pb "github.com/holdfast-io/holdfast/proto/holdfast/v1"
)

// spectator is a watcher, and what the truth says that it must see.
type spectator struct {
	w      *World
	who    string
	prefix string

	mu    sync.Mutex
	next  int            // in the truth: all before was seen or told to be missing
	from  watch.Position // nothing before it is expected
	fresh bool           // nothing was seen since it was told where to go on
	lost  bool           // it has ended
}

// spectate notes a watcher; it is judged from its first ready on.
func (w *World) spectate(who, prefix string) *spectator {
	s := &spectator{w: w, who: who, prefix: prefix, lost: true}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spectators = append(w.spectators, s)
	return s
}

// goOn tells where the watcher goes on: at a revision, from the ordinal on that its
// first event may have.
func (s *spectator) goOn(what string, revision uint64) {
	s.w.count("watch " + what)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w.truth.mu.Lock()
	defer s.w.truth.mu.Unlock()
	p := watch.Position{Revision: revision}
	if what == "resync" && s.next > 0 && p.Compare(place(&s.w.truth.log[s.next-1])) <= 0 {
		s.w.violate("%s: a resync to %d, of which it has seen %d", s.who, revision, s.w.truth.log[s.next-1].Revision)
	}
	s.from, s.fresh, s.lost = p, true, false
	s.next = max(s.next, s.w.truth.find(p))
}

// end: the watcher sees nothing more.
func (s *spectator) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
}

// ofMine: an event that the watcher is to see.
func (s *spectator) ofMine(e *core.Event) bool {
	return place(e).Compare(s.from) >= 0 && e.Namespace == "default" && strings.HasPrefix(e.Name, s.prefix) && (e.Kind != core.EventSession || s.prefix == "")
}

// sees compares an event with the truth.
func (s *spectator) sees(e *driver.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w.truth.mu.Lock()
	defer s.w.truth.mu.Unlock()
	s.w.count("watch event")
	log, at := s.w.truth.log, watch.Position{Revision: uint64(e.Revision), Ordinal: e.Ordinal}
	if s.fresh && at.Revision+1 == s.from.Revision && e.Ordinal > 0 { // what takes no revision
		s.from, s.next = at, s.w.truth.find(at)
	}
	s.fresh = false
	for s.next < len(log) && !s.ofMine(&log[s.next]) {
		s.next++
	}
	if s.next == len(log) {
		s.w.violate("%s saw %d.%d %s %s, which never happened", s.who, e.Revision, e.Ordinal, e, e.Name)
		return
	}
	if want := &log[s.next]; place(want) != at || want.Kind.String() != e.Kind || want.Verb.String() != e.Verb || want.Token != uint64(e.Token) {
		s.w.violate("%s saw %d.%d %s %s, where %d.%d %s:%s %s comes next", s.who, e.Revision, e.Ordinal, e, e.Name, want.Revision, want.Ordinal, want.Kind, want.Verb, want.Name)
		s.next = s.w.truth.find(at)
	}
	s.next++
}

// judge: a watcher that is still there has seen everything that is not new.
func (s *spectator) judge(until int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w.truth.mu.Lock()
	defer s.w.truth.mu.Unlock()
	for ; !s.lost && s.next < until; s.next++ {
		if e := &s.w.truth.log[s.next]; s.ofMine(e) {
			s.w.violate("%s never saw %d.%d %s:%s %s", s.who, e.Revision, e.Ordinal, e.Kind, e.Verb, e.Name)
			return
		}
	}
}

var prefixes = []string{"lock/", "count/", "kv/", "rw/", "", "election/"}

// watchGo watches by the Go API: from now on, which shares a stream, or from where it
// was.
func (k *worker) watchGo(s *holdfast.Space) {
	prefix := prefixes[k.rng.IntN(len(prefixes))]
	var from holdfast.Revision
	for k.w.ctx.Err() == nil {
		from = k.watchOnce(s, prefix, from)
		if k.chance(0.4) {
			from = 0
		}
	}
}

// watchOnce is one watch, which mostly lasts as long as the world; it returns a
// revision to go on from.
func (k *worker) watchOnce(s *holdfast.Space, prefix string, from holdfast.Revision) holdfast.Revision {
	ctx, cancel := context.WithCancel(k.w.watching)
	defer cancel()
	if k.chance(0.6) {
		t := time.AfterFunc(k.between(time.Second, 20*time.Second), cancel)
		defer t.Stop()
	}
	x := k.w.spectate(fmt.Sprintf("%s, watching %q from %d", k.party, prefix, from), prefix)
	defer x.end()
	for e, err := range s.Watch(ctx, prefix, from) {
		if errors.Is(err, holdfast.ErrCompacted) {
			k.w.count("watch compacted")
			return 0
		}
		if err != nil {
			k.w.count("watch error")
			return from
		}
		switch {
		case e.Kind == "watch":
			x.goOn(e.Verb, uint64(e.Revision))
			if e.Verb == "resync" && k.w.ctx.Err() == nil && k.chance(0.5) {
				k.unplug()
			}
		default:
			x.sees(&e)
			from = holdfast.Revision(e.Revision) + 1
		}
		if k.chance(0.01) {
			_ = sleep(k.w.ctx, k.between(0, 5*time.Second))
		}
	}
	return from
}

// unplug breaks all connections of the watcher's program: what it is told by the next
// one has to go on behind the resync that it has just heard of.
func (k *worker) unplug() {
	k.w.count("watch broken at a resync")
	for c := range k.m.all() {
		c.reset(0, 0)
	}
}

// follower is a protocol that can watch.
type follower interface {
	// follow begins a watch from a revision, or from now on if that is 0, and returns
	// what waits for the next message.
	follow(ctx context.Context, prefix string, from uint64) (next func() (*pb.WatchResponse, error), err error)
}

// watchPlain watches by gRPC or REST. Its client goes on by itself where a stream broke:
// from the revision of the last event, of which it skips what it has seen.
func (k *worker) watchPlain(p follower) {
	prefix := prefixes[k.rng.IntN(len(prefixes))]
	x := k.w.spectate(fmt.Sprintf("%s, watching %q", k.party, prefix), prefix)
	defer x.end()
	var at bookmark
	for k.w.watching.Err() == nil {
		at = k.stream(p, x, prefix, at)
		_ = sleep(k.w.watching, k.between(time.Millisecond, time.Second))
	}
}

// bookmark is where a plain watch goes on.
type bookmark struct {
	from uint64         // 0: now
	seen watch.Position // of the last event
}

// stream is one stream of a plain watch.
func (k *worker) stream(p follower, x *spectator, prefix string, at bookmark) bookmark {
	ctx, cancel := context.WithCancel(k.w.watching)
	defer cancel()
	if k.w.ctx.Err() == nil && k.chance(0.3) {
		defer time.AfterFunc(k.between(time.Second, 20*time.Second), cancel).Stop()
	}
	idle := time.AfterFunc(20*time.Second, cancel) // a stream from a node that was cut off is silent for ever
	defer idle.Stop()
	next, err := p.follow(ctx, prefix, at.from)
	for err == nil {
		var m *pb.WatchResponse
		if m, err = next(); err == nil {
			idle.Reset(20 * time.Second)
			at = x.takes(m, at)
		}
	}
	if errors.Is(err, driver.ErrCompacted) {
		k.w.count("watch compacted")
		x.end()
		return bookmark{}
	}
	return at
}

// takes compares a message with the truth, and returns where the watch goes on if it
// breaks.
func (s *spectator) takes(m *pb.WatchResponse, at bookmark) bookmark {
	if r := m.GetReadyRevision(); r != 0 && at.from == 0 {
		s.goOn("ready", r)
		at = bookmark{from: r}
	}
	if r := m.GetResyncRevision(); r != 0 {
		s.goOn("resync", r)
		at = bookmark{from: r}
	}
	for _, e := range wire.ToEvents(m.GetEvents()) {
		p := watch.Position{Revision: uint64(e.Revision), Ordinal: e.Ordinal}
		if at.seen == (watch.Position{}) || p.Compare(at.seen) > 0 {
			s.sees(&e)
			at = bookmark{p.Revision, p}
		}
	}
	return at
}

// follow watches by gRPC.
func (x *plain) follow(ctx context.Context, prefix string, from uint64) (func() (*pb.WatchResponse, error), error) {
	s, err := pb.NewWatchServiceClient(x.conn()).Watch(ctx, &pb.WatchRequest{Prefix: prefix, FromRevision: from})
	return func() (*pb.WatchResponse, error) {
		m, err := s.Recv()
		return m, wire.Error(err)
	}, wire.Error(err)
}

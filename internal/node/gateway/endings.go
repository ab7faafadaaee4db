package gateway

import (
	"context"
	"slices"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// A session that ends takes its waits with it, and no event tells them: a client that keeps
// a session knows its deadline. A plain call that waits on a lease does not keep
// it, so the gateway watches for the ends of sessions while it has waits.

// sessionEnds are the events that a session is over with.
var sessionEnds = []string{"session:ended", "session:expired"}

// endings follows the ends of the sessions of one namespace.
type endings struct {
	waits int // that need it
	stop  context.CancelFunc
}

// follow begins to watch for the ends of sessions of a namespace, if nobody does
// yet: what ends from now on is told. l is locked.
func (l *waitTable) follow(ns string) error {
	if e := l.ends[ns]; e != nil {
		e.waits++
		return nil
	}
	w, _, err := l.s.Watch(watch.Filter{Namespace: ns, Patterns: sessionEnds}, 0)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	l.ends[ns] = &endings{waits: 1, stop: stop}
	go func() {
		defer w.Close()
		l.tellEnds(ctx, ns, w)
	}()
	return nil
}

// unfollow ends that when nobody waits any more; l is locked.
func (l *waitTable) unfollow(ns string) {
	e := l.ends[ns]
	if e.waits--; e.waits == 0 {
		e.stop()
		delete(l.ends, ns)
	}
}

// feed is a watch.
type feed interface {
	Next(ctx context.Context, dst []core.Event, limit int) (events []core.Event, resync uint64, err error)
}

// tellEnds tells waits of the end of their sessions, until ctx or the node ends.
func (l *waitTable) tellEnds(ctx context.Context, ns string, w feed) {
	var events []core.Event
	for {
		var resync uint64
		var err error
		if events, resync, err = w.Next(ctx, events[:0], 256); err != nil {
			return // the end of the node ends the stream, too
		}
		for i := range events {
			l.sessionEnded(events[i].Session, events[i].Revision)
		}
		if resync != 0 {
			l.lookForEnded(ctx, ns)
		}
	}
}

// sessionEnded answers the waits of a session that ended at that revision. Those of
// a later session of the same id are another's.
func (l *waitTable) sessionEnded(id core.SessionID, revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.waits[id]; a != nil {
		for _, w := range a.waits {
			if w.queued < revision {
				w.finish(outcome{row: core.Push{Seq: w.seq, State: core.ClaimGone, Code: core.CodeNoSession}})
			}
		}
	}
}

// lookForEnded is for ends that were not told, since there was too much to tell.
func (l *waitTable) lookForEnded(ctx context.Context, ns string) {
	ids, ended := l.waitingIn(ns), []core.SessionID{}
	var revision uint64
	err := l.s.Look(ctx, func(m *core.Machine, _ int64) {
		revision = m.Revision() + 1
		ended = slices.DeleteFunc(ids, func(id core.SessionID) bool {
			_, lives := m.TTL(id)
			return lives
		})
	})
	if err != nil {
		return // this node does not lead any more, which its waits are told
	}
	for _, id := range ended {
		l.sessionEnded(id, revision)
	}
}

// waitingIn are the sessions of a namespace with waits.
func (l *waitTable) waitingIn(ns string) (ids []core.SessionID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, a := range l.waits {
		if len(a.waits) > 0 && a.waits[0].l.ns == ns {
			ids = append(ids, id)
		}
	}
	return ids
}

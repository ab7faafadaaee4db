package filehold

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"encoding/binary"

	"github.com/holdfast-io/holdfast/internal/core"
	"github.com/holdfast-io/holdfast/internal/filelog"
	"github.com/holdfast-io/holdfast/internal/watch"
)

func (e *engine) newSessionID() (id core.SessionID) {
	copy(id[:], e.proc[:])
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	return id
}

// writeEntry stamps an entry with the time and writes it. The store is locked,
// e.mu is held; what comes of it is in e.out until the next.
func (e *engine) writeEntry(entry *core.Entry) error {
	entry.Now = max(e.now(), e.m.Now())
	if len(entry.Frames) > 0 {
		entry.Seconds = core.Seconds(time.Now().Unix())
	}
	return e.write(recEntry, core.AppendEntry(nil, entry))
}

// Apply lets a record take effect here. e.mu is held.
func (e *engine) Apply(r filelog.Record) error {
	switch r.Kind {
	case recEntry:
		e.out.Reset()
		if err := e.m.Apply(r.Body, &e.out); err != nil {
			return err
		}
		e.roll()
		e.publish(e.out.Events)
		e.deliver()
		e.rearm()
		return nil
	case recEvent:
		ev, err := decodeLockEvent(r.Body)
		if err == nil {
			e.publish([]core.Event{e.event(&ev)})
		}
		return err
	case recRaise:
		to, err := decodeRaise(r.Body)
		if err == nil {
			e.m.Raise(to)
		}
		return err
	default:
		return fmt.Errorf("a record has the unknown type %d", r.Kind)
	}
}

// roll keeps the list of sessions.
func (e *engine) roll() {
	for i := range e.out.Events {
		ev := &e.out.Events[i]
		switch {
		case ev.Kind != core.EventSession:
		case ev.Verb == core.VerbOpened:
			join(e.procs, ev.Session)
			e.met(procOf(ev.Session))
		default:
			part(e.procs, ev.Session)
		}
	}
}

// deliver tells our sessions what became of their claims.
func (e *engine) deliver() {
	for i := range e.out.Pushes {
		p := &e.out.Pushes[i]
		if u := e.users[p.Session]; u != nil {
			u.push(p)
		}
	}
}

// slotPlace orders events.
type slotPlace struct {
	revision uint64
	ordinal  uint32
}

// event is a lock file's event as the machine would tell it, at the revision
// that the machine's next change will have.
func (e *engine) event(ev *lockEvent) core.Event {
	kind := core.EventLock
	if ev.kind == core.RWMutex {
		kind = core.EventRWLock
	}
	out := core.Event{
		Revision: e.m.Revision() + 1, Kind: kind, Verb: ev.verb, Namespace: "default", Name: ev.name, Session: ev.session,
		Token: ev.token, Mode: ev.mode, Reason: ev.reason, Weight: 1, Owner: ev.owner,
	}
	if s, ok := e.m.Session(ev.session); ok && out.Owner == "" {
		out.Owner = s.Owner
	}
	return out
}

// publish hands events to the watchers here, in an order that only grows.
func (e *engine) publish(events []core.Event) {
	if e.hub == nil {
		return
	}
	for i := range events {
		e.put(&events[i])
	}
	e.wake(e.hub.Publish(events, e.m.Revision()))
}

// put gives an event a place behind all that were told. What changes nothing comes at the machine's last
// revision, which is before that of the lock files' events.
func (e *engine) put(ev *core.Event) {
	if ev.Revision <= e.next.revision {
		ev.Revision, ev.Ordinal = e.next.revision, e.next.ordinal
	}
	e.next = slotPlace{ev.Revision, ev.Ordinal + 1}
}

// begins has nothing more told before a revision: a watch was told that what it is told begins there.
func (e *engine) begins(revision uint64) {
	if e.next.revision < revision {
		e.next = slotPlace{revision: revision}
	}
}

// wake tells watchers that there is something to read.
func (e *engine) wake(ws []*watch.Watcher) {
	for _, w := range ws {
		e.readers[w].ring()
	}
}

// raise moves the machine's revision on, so that what it grants next is above a
// token that it has not given. The store is locked, e.mu is held.
func (e *engine) raise(to uint64) error {
	if e.m.Revision() >= to {
		return nil
	}
	if to+revisionBlock/2 > e.ctl.load(wRevisions) {
		if err := e.ctl.raise(wRevisions, to+2*revisionBlock); err != nil {
			return err
		}
	}
	return e.write(recRaise, binary.LittleEndian.AppendUint64(nil, to))
}

// look applies what others wrote and what is due, and runs f, which only reads.
func (e *engine) look(ctx context.Context, f func()) error {
	e.mu.Lock()
	err := e.log.CatchUp()
	if at, ok := e.m.Due(); err != filelog.ErrBehind && (err != nil || !ok || at > e.now()) {
		defer e.mu.Unlock()
		if err == nil {
			f()
		}
		return err
	}
	e.mu.Unlock()
	return e.locked(ctx, func() error {
		if err := e.stamp(); err != nil {
			return err
		}
		f()
		return nil
	})
}

// stamp ends what is due. The store is locked, e.mu is held.
func (e *engine) stamp() error {
	for {
		if at, ok := e.m.Due(); !ok || at > e.now() {
			return nil
		}
		if err := e.writeEntry(&core.Entry{}); err != nil {
			return err
		}
	}
}

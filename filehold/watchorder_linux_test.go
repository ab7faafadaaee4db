package filehold_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/holdfast-io/holdfast"
)

// ordered reads the events of a watch, and fails if one has a place that is not behind that of the event before.
type ordered struct {
	t    *testing.T
	next func() (holdfast.Event, error, bool)
	last holdfast.Event
}

func watchInOrder(t *testing.T, s *holdfast.Space) *ordered {
	t.Helper()
	next, stop := iter.Pull2(s.Watch(deadline(t), "", 0))
	t.Cleanup(stop)
	o := &ordered{t: t, next: next}
	ready, err, _ := next()
	if err != nil || ready.String() != "watch:ready" {
		t.Fatalf("the watch begins with %s: %v", ready.String(), err)
	}
	o.last.Revision = ready.Revision
	return o
}

// expect reads until an event, and compares the places of all.
func (o *ordered) expect(what string) holdfast.Event {
	o.t.Helper()
	for first := o.last.Kind == ""; ; first = false {
		ev, err, ok := o.next()
		if err != nil || !ok {
			o.t.Fatalf("%s does not come: %v", what, err)
		}
		was := o.last
		if ev.Revision < was.Revision || !first && ev.Revision == was.Revision && ev.Ordinal <= was.Ordinal {
			o.t.Errorf("%s at (%d, %d) comes behind %s at (%d, %d)", ev.String(), ev.Revision, ev.Ordinal, was.String(), was.Revision, was.Ordinal)
		}
		if o.last = ev; ev.String() == what {
			return ev
		}
	}
}

// What is told of lock files and of the log stands in one order, without a place twice, also where a wait ends that
// has changed nothing.
func TestWatch_Order(t *testing.T) {
	s, ctx := space(t, t.TempDir()), deadline(t)
	if _, err := s.Semaphore("s", 1).Acquire(ctx, 1); err != nil {
		t.Fatal(err)
	}
	events := watchInOrder(t, s)
	for range 2 {
		wait, leave := context.WithCancel(ctx)
		waits, over := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := s.Semaphore("s", 1, holdfast.OnWait(func(int) { close(waits) })).Acquire(wait, 1)
			over <- err
		}()
		<-waits
		takeAndRelease(t, s.Mutex("m"))
		leave()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		events.expect("semaphore:denied")
		takeAndRelease(t, s.Mutex("m"))
		rev, err := s.KV().Put(ctx, "k", nil)
		if err != nil {
			t.Fatal(err)
		}
		if ev := events.expect("kv:put"); holdfast.Revision(ev.Revision) != rev {
			t.Errorf("what was put at %d is told at %d", rev, ev.Revision)
		}
	}
}

// What comes before the next change has no revision before that from which a watch is ready.
func TestWatch_OrderFromReady(t *testing.T) {
	s, ctx := space(t, t.TempDir()), deadline(t)
	if _, err := s.Semaphore("s", 1).Acquire(ctx, 1); err != nil {
		t.Fatal(err)
	}
	events := watchInOrder(t, s)
	if _, err := s.Semaphore("s", 1).TryAcquire(ctx, 1); !errors.Is(err, holdfast.ErrHeld) {
		t.Fatal(err)
	}
	events.expect("semaphore:denied")
}

// Where events are missing, what comes before the next change has no revision before that from which everything follows.
func TestWatch_OrderFromResync(t *testing.T) {
	s, ctx := space(t, t.TempDir()), deadline(t)
	if _, err := s.Semaphore("s", 1).Acquire(ctx, 1); err != nil {
		t.Fatal(err)
	}
	events := watchInOrder(t, s)
	var many holdfast.Txn
	for i := range 128 {
		many.Then = append(many.Then, holdfast.PutOp(fmt.Sprint("k", i), nil))
	}
	for range 150 { // more events than are kept
		if _, err := s.KV().Txn(ctx, many); err != nil {
			t.Fatal(err)
		}
	}
	events.last = holdfast.Event{Revision: events.expect("watch:resync").Revision}
	if _, err := s.Semaphore("s", 1).TryAcquire(ctx, 1); !errors.Is(err, holdfast.ErrHeld) {
		t.Fatal(err)
	}
	events.expect("semaphore:denied")
}

func takeAndRelease(t *testing.T, m *holdfast.Mutex) {
	t.Helper()
	h, err := m.Acquire(deadline(t))
	if err == nil {
		err = h.Release()
	}
	if err != nil {
		t.Fatal(err)
	}
}

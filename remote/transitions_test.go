package remote_test

import (
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/memhold"
	"github.com/holdfast-io/holdfast/remote"
)

// The transitions of internal/core/testdata/stale.txt through a driver, in memory and at a node, as a watch tells
// them. The seed: "Acquire+Free → Held, emit LockAcquired", "Acquire+Held+!stale → emit LockDenied", "Heartbeat →
// refresh last_heartbeat", "Tick+stale → emit LockStale warning", "Acquire+Held+stale → reclaim, emit LockReclaimed +
// LockAcquired". A session of a client is over at its deadline, whatever the engine keeps: that a heartbeat revives
// within the grace is for leases (see the tests of package api).
func TestReclaim_Transitions(t *testing.T) {
	for door, open := range map[string]func(*testing.T) (driver.Driver, error){
		"driver": func(*testing.T) (driver.Driver, error) { return memhold.New(), nil },
		"remote": func(t *testing.T) (driver.Driver, error) { return remote.New(bubbleNode(t).client()) },
	} {
		t.Run(door, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, err := open(t)
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close(t.Context())
				transitions(t, d)
			})
		})
	}
}

func transitions(t *testing.T, d driver.Driver) {
	const name = "main"
	next, stop := iter.Pull2(d.Watch(t.Context(), &driver.WatchRequest{Prefix: name, Exact: true}))
	defer stop()
	sees(t, next, "watch:ready", 0)
	a := openedAs(t, d, driver.Spec{TTL: time.Second, Owner: "runner-1", Manual: true, Policy: driver.OnNextAcquire, Grace: 3 * time.Second})
	b := openedAs(t, d, driver.Spec{TTL: 10 * time.Minute, Owner: "runner-2"})
	take := func(s *driver.Session, try bool) (driver.Grant, error) {
		return d.Acquire(t.Context(), &driver.Request{Wants: []driver.Want{{Kind: driver.Mutex, Name: name}}, Session: s, Spec: s.Spec, Try: try, Lost: func(error) {}})
	}
	denied := func(when string) {
		t.Helper()
		if g, err := take(b, true); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("%s it is granted with %d, %v", when, g.Token, err)
		}
		sees(t, next, "lock:denied", 0)
	}
	old, err := take(a, true)
	if err != nil {
		t.Fatal(err)
	}
	sees(t, next, "lock:acquired", old.Token)
	denied("while it is held")
	if err := d.KeepSession(t.Context(), a, 0); err != nil {
		t.Fatal(err)
	}
	sees(t, next, "lock:stale", old.Token) // it keeps silent until its deadline
	denied("within the grace")
	if err := d.KeepSession(t.Context(), a, 0); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a session that is over is kept: %v", err)
	}
	now, err := take(b, false)
	if err != nil {
		t.Fatal(err)
	}
	sees(t, next, "lock:queued", 0)
	sees(t, next, "lock:reclaimed", old.Token)
	sees(t, next, "lock:acquired", now.Token)
	if err := old.Handle.Release(t.Context()); !errors.Is(err, driver.ErrLost) || now.Token <= old.Token {
		t.Errorf("the late release of %d, now %d: %v", old.Token, now.Token, err)
	}
	if r, err := d.Inspect(t.Context(), &driver.InspectRequest{Name: name}); err != nil || len(r.Resources) != 1 || len(r.Resources[0].Holders) != 1 || r.Resources[0].Holders[0].Token != now.Token {
		t.Errorf("after the late release: %+v, %v", r, err)
	}
	if err := now.Handle.Release(t.Context()); err != nil {
		t.Error(err)
	}
	sees(t, next, "lock:released", now.Token)
}

// openedAs opens a session.
func openedAs(t *testing.T, d driver.Driver, s driver.Spec) *driver.Session {
	t.Helper()
	l, err := d.OpenSession(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

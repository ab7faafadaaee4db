package onstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/driver/onstore"
)

// outage is a fault of every request while it lasts.
func outage(away *atomic.Bool) func(op, key string) fault {
	return func(string, string) fault {
		if away.Load() {
			return fault{before: errLink}
		}
		return fault{}
	}
}

// An outage that is shorter than the TTL ends no hold, however often a renewal
// failed in it.
func TestRenewedAfterALongOutage(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		var away atomic.Bool
		s.set(outage(&away))
		h, err := open(t, s).Mutex("m", holdfast.TTL(time.Hour)).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Minute)
		away.Store(true) // the renewal is due at 20 minutes
		time.Sleep(25 * time.Minute)
		away.Store(false)
		time.Sleep(2 * time.Hour)
		if err := h.Err(); err != nil {
			t.Errorf("the engine was away for 25 minutes of an hour: %v", err)
		}
	})
}

// An Acquire waits until its context ends, also for an engine that is away.
func TestWaiterOutlastsALongOutage(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		var away atomic.Bool
		s.set(outage(&away))
		held, err := open(t, s).Mutex("m", holdfast.TTL(time.Hour)).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error)
		sp := open(t, s)
		go func() {
			_, err := sp.Mutex("m").Acquire(t.Context())
			got <- err
		}()
		synctest.Wait()
		away.Store(true)
		time.Sleep(10 * time.Minute)
		away.Store(false)
		if err := held.Release(); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Errorf("the waiter: %v", err)
		}
	})
}

// A request that took the lock without an answer is taken back when the engine
// answers again, not when its TTL is over.
func TestTakenBackAfterALongOutage(t *testing.T) {
	for what, ask := range map[string]func(context.Context, *holdfast.Mutex) error{
		"try":     func(ctx context.Context, m *holdfast.Mutex) error { _, err := m.TryAcquire(ctx); return err },
		"acquire": func(ctx context.Context, m *holdfast.Mutex) error { _, err := m.Acquire(ctx); return err },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memoryStore) {
				var away atomic.Bool
				a := open(t, &client{s, func(op, _ string) fault {
					if away.Load() {
						return fault{before: errLink}
					}
					if op == "swap" {
						away.Store(true)
						return fault{after: errLink}
					}
					return fault{}
				}})
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				if err := ask(ctx, a.Mutex("m", holdfast.TTL(time.Hour))); err == nil || holdfast.NotDone(err) {
					t.Fatalf("got %v; want an error that leaves open whether it was done", err)
				}
				time.Sleep(5 * time.Minute)
				b := open(t, s).Mutex("m")
				if _, err := b.TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
					t.Fatalf("the request was done; another got %v", err)
				}
				away.Store(false)
				time.Sleep(5 * time.Second)
				if _, err := b.TryAcquire(t.Context()); err != nil {
					t.Errorf("it is not taken back: %v", err)
				}
			})
		})
	}
}

// What could not be forgotten is forgotten later.
func TestForgottenAfterAFailure(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		for i := range 100 {
			take(t, sp, fmt.Sprint("n", i))
		}
		var asked atomic.Int32
		s.set(func(op, _ string) fault {
			if op == "delete" && asked.Add(1) == 50 {
				return fault{before: errLink}
			}
			return fault{}
		})
		time.Sleep(10 * time.Minute)
		if n := s.locks(); n != 0 {
			t.Errorf("%d keys are there", n)
		}
	})
}

// telling is a store that tells the age of what is read.
type telling struct{ aged }

func (s *telling) Get(ctx context.Context, key string) (driver.Item, error) {
	item, err := s.aged.Get(ctx, key)
	if at, ok := s.at.Load(item.Revision); ok {
		item.Age = max(time.Since(at.(time.Time))-s.skew, 0)
	}
	return item, err
}

// Programs that look once each and leave get the lock of one that was killed, as soon
// as the engine tells its age, and not before.
func TestTriesOfManyPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &telling{aged{memoryStore: newStore(false), skew: time.Hour}}
		killed := onstore.New(st, onstore.Options{})
		start := time.Now()
		want := []driver.Want{{Name: "m", Kind: driver.Mutex}}
		if _, err := killed.Acquire(t.Context(), &driver.Request{ID: [16]byte{1}, Wants: want, Spec: driver.Spec{TTL: 10 * time.Second}}); err != nil {
			t.Fatal(err)
		}
		onstore.Kill(killed)
		for {
			time.Sleep(time.Minute)
			sp := open(t, st)
			_, err := sp.Mutex("m").TryAcquire(t.Context())
			if took := time.Since(start); err == nil && took <= time.Hour || took > 2*time.Hour {
				t.Fatalf("after %s: %v", took, err)
			}
			if err == nil {
				return
			}
			_ = sp.Close()
		}
	})
}

// All that wait to change one counter are told of an engine that does not answer when the first of them has found out, not one
// after the other; and one that answers again is asked anew.
func TestOneOutageForAllInLine(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		s.set(func(string, string) fault { return fault{hang: true} })
		const callers = 50
		told := make(chan error, callers)
		for range callers {
			go func() {
				_, err := sp.Counter("hits").Add(t.Context(), 1)
				told <- err
			}()
		}
		start := time.Now()
		for range callers {
			if err := <-told; !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("the last was told after %s", took)
		}
		s.set(func(string, string) fault { return fault{} })
		if n, err := sp.Counter("hits").Add(t.Context(), 1); err != nil || n != 1 {
			t.Errorf("after the outage: %d, %v", n, err)
		}
	})
}

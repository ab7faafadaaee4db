package onstore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/driver/onstore"
)

// locks is how many keys of locks a store has.
func (s *memoryStore) locks() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.items {
		if strings.HasPrefix(key, "l/") {
			n++
		}
	}
	return n
}

// take takes a lock and gives it back.
func take(t *testing.T, sp *holdfast.Space, name string) holdfast.Token {
	t.Helper()
	h, err := sp.Mutex(name).Acquire(t.Context())
	if err == nil {
		err = h.Release()
	}
	if err != nil {
		t.Fatal(err)
	}
	return h.Token()
}

// Nothing is left of thousands of locks that nobody has used for a while. One that
// is held, or used again and again, stays, and tokens go on growing.
func TestIdleLocksAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp, other := open(t, s), open(t, s)
		const names = 3000
		last := make([]holdfast.Token, names)
		for i := range names {
			last[i] = take(t, sp, fmt.Sprint("n", i))
		}
		take(t, sp, "taken over")
		held, err := other.Mutex("taken over").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			take(t, sp, "busy")
			time.Sleep(6 * time.Second)
			synctest.Wait()
		}
		if n := s.locks(); n != 2 {
			t.Errorf("%d keys are there", n)
		}
		if err := held.Err(); err != nil {
			t.Error(err)
		}
		for i := range names {
			if token := take(t, sp, fmt.Sprint("n", i)); token <= last[i] {
				t.Fatalf("after the token %d came %d", last[i], token)
			}
		}
	})
}

// An engine that does not let them be removed is asked once.
func TestIdleLocksStay(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		s.set(func(op, _ string) fault {
			if op == "delete" {
				return fault{before: driver.Errorf("", "", fs.ErrPermission, "no right")}
			}
			return fault{}
		})
		for range 10 {
			for i := range 10 {
				take(t, sp, fmt.Sprint("n", i))
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
		}
		if n := s.asked("delete"); n != 1 {
			t.Errorf("%d requests", n)
		}
		if _, err := driverOf(t, s).Sweep(t.Context(), &driver.SweepRequest{}); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a sweep: %v", err)
		}
	})
}

// driverOf is a driver on a store without the library.
func driverOf(t *testing.T, s driver.Store) driver.Driver {
	d := onstore.New(s, onstore.Options{Info: driver.Info{Scheme: "cas"}})
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d
}

// Sweep removes what others have left too, of the names that are asked for.
func TestSweep(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		for i := range 100 {
			take(t, sp, fmt.Sprint("a", i))
			take(t, sp, fmt.Sprint("b", i))
		}
		h, err := sp.Mutex("a held").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sp.Counter("a").Add(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		reply, err := driverOf(t, s).Sweep(t.Context(), &driver.SweepRequest{Prefix: "a"})
		if err != nil || reply.Removed != 100 || s.locks() != 101 {
			t.Errorf("%d were swept, %v; %d are there", reply.Removed, err, s.locks())
		}
		if n, err := sp.Counter("a").Load(t.Context()); n != 1 || err != nil {
			t.Errorf("the counter is %d, %v", n, err)
		}
		if err := h.Release(); err != nil {
			t.Error(err)
		}
	})
}

// A release whose answer was lost, and whose tombstone was swept before it was asked
// for again, has been done.
func TestSweptWhileReleased(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		var lose atomic.Bool
		c := &client{memoryStore: s, fault: func(op, _ string) fault {
			if op == "swap" && lose.CompareAndSwap(true, false) {
				return fault{after: errLink}
			}
			return fault{}
		}}
		sp, sweeper := open(t, c), driverOf(t, s)
		h, err := sp.Mutex("m").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lose.Store(true)
		released := make(chan error, 1)
		go func() { released <- h.Release() }()
		for s.locks() > 0 { // within the pause before it asks again
			time.Sleep(time.Microsecond)
			if _, err := sweeper.Sweep(t.Context(), &driver.SweepRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-released; err != nil {
			t.Errorf("the release: %v", err)
		}
	})
}

// What an engine refuses for a while does not end a hold, and keeps none from being
// given back.
func TestRefusedForAWhile(t *testing.T) {
	for _, why := range []error{driver.ErrExhausted, fs.ErrPermission} {
		bubble(t, func(t *testing.T, s *memoryStore) {
			var until time.Time
			s.fault = func(op, _ string) fault {
				if op == "swap" && time.Now().Before(until) {
					return fault{before: driver.Errorf("", "", why, "not now")}
				}
				return fault{}
			}
			sp := open(t, s)
			h, err := sp.Mutex("m", holdfast.TTL(9*time.Second)).Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s.mu.Lock()
			until = time.Now().Add(5 * time.Second) // beyond the first renewal
			s.mu.Unlock()
			time.Sleep(time.Minute)
			if err := h.Err(); err != nil {
				t.Errorf("%v: the hold ended: %v", why, err)
			}
			s.mu.Lock()
			until = time.Now().Add(2 * time.Second)
			s.mu.Unlock()
			if err := h.Release(); err != nil {
				t.Errorf("%v: the release: %v", why, err)
			}
			next, err := sp.Mutex("m").TryAcquire(t.Context())
			if err != nil {
				t.Fatalf("%v: the next: %v", why, err)
			}
			_ = next.Release()
		})
	}
}

// breaking is a store that breaks for good.
type breaking struct {
	*memoryStore
	why atomic.Pointer[driver.Error]
}

func (b *breaking) Broken() error {
	if e := b.why.Load(); e != nil {
		return e
	}
	return nil
}

// The holds of an engine that has lost what it answered end with the reason, at
// their next renewal, and not when their time is over.
func TestBrokenEngine(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		b := &breaking{memoryStore: s}
		sp := open(t, b)
		h, err := sp.Mutex("m", holdfast.TTL(9*time.Second)).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		b.why.Store(driver.Errorf("", "", driver.ErrUnavailable, "it was purged"))
		s.set(func(string, string) fault { return fault{before: b.why.Load()} })
		<-h.Done()
		if took := time.Since(start); took > 4*time.Second || !errors.Is(h.Err(), holdfast.ErrLost) || !strings.Contains(h.Err().Error(), "it was purged") {
			t.Errorf("after %s: %v", took, h.Err())
		}
	})
}

// aged is a store that keeps deleted keys and knows how old all are.
type aged struct {
	*memoryStore
	skew time.Duration
	at   sync.Map // of times, by revision
}

func (a *aged) Swap(ctx context.Context, key string, old driver.Revision, value []byte) (driver.Revision, error) {
	revision, err := a.memoryStore.Swap(ctx, key, old, value)
	a.at.Store(revision, time.Now())
	return revision, err
}

func (a *aged) Forget(ctx context.Context, key string, revision driver.Revision) error {
	_, err := a.memoryStore.Delete(ctx, key, revision)
	return err
}

func (a *aged) Sweep(ctx context.Context, prefix string, idle func(driver.Item) bool) (n int64, err error) {
	items, err := a.List(ctx, prefix)
	for _, item := range items {
		if at, ok := a.at.Load(item.Revision); ok {
			item.Age = max(time.Since(at.(time.Time))-a.skew, 0)
		}
		if idle(item) {
			err = errors.Join(err, a.Forget(ctx, item.Key, item.Revision))
			n++
		}
	}
	return n, err
}

// Promise: "A call that waits for nobody is ErrUnavailable after about ten seconds": a sweep does not give up at the
// first request without an answer either, and is told a refusal at once.
func TestSweepAsksAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		st := &aged{memoryStore: s}
		sp, failures := open(t, st), 3
		take(t, sp, "n")
		s.set(func(op, _ string) fault {
			if failures--; op == "list" && failures >= 0 {
				return fault{before: errLink}
			}
			return fault{}
		})
		if reply, err := driverOf(t, st).Sweep(t.Context(), &driver.SweepRequest{}); err != nil || reply.Removed != 1 {
			t.Errorf("%d were swept, %v", reply.Removed, err)
		}
		for broken, most := range map[error]time.Duration{errLink: 12 * time.Second, driver.Errorf("", "", fs.ErrPermission, "no right"): 0} {
			s.set(func(string, string) fault { return fault{before: broken} })
			began := time.Now()
			_, err := driverOf(t, st).Sweep(t.Context(), &driver.SweepRequest{})
			if took := time.Since(began); !errors.Is(err, broken) && !errors.Is(err, fs.ErrPermission) || took > most || took < most/3 {
				t.Errorf("%v after %s", err, took)
			}
		}
	})
}

// What a program that was killed held, and keys that have expired, are swept: by the
// engine's clock, by their age, or by a driver that has seen them for so long; never
// before.
func TestSweepWhatIsOver(t *testing.T) {
	for _, withAge := range []bool{false, true} {
		bubble(t, func(t *testing.T, s *memoryStore) {
			var st driver.Store = s
			if withAge {
				st = &aged{memoryStore: s, skew: time.Hour}
			}
			killed, living := onstore.New(st, onstore.Options{}), open(t, st)
			ttl := driver.Spec{TTL: 10 * time.Second}
			if _, err := killed.Acquire(t.Context(), &driver.Request{ID: [16]byte{1}, Wants: []driver.Want{{Name: "m", Kind: driver.Mutex}}, Spec: ttl}); err != nil {
				t.Fatal(err)
			}
			held, err := living.Mutex("held", holdfast.TTL(10*time.Second)).Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for key, d := range map[string]time.Duration{"short": 10 * time.Second, "long": 24 * time.Hour} {
				if _, err := living.KV().Put(t.Context(), key, nil, holdfast.Expire(d)); err != nil {
					t.Fatal(err)
				}
			}
			onstore.Kill(killed)
			looker := driverOf(t, st)
			for i, want := range []int64{0, 0, 2, 0} {
				if i == 2 && withAge {
					looker = driverOf(t, st) // by age alone
					time.Sleep(time.Hour)
				}
				reply, err := looker.Sweep(t.Context(), &driver.SweepRequest{})
				if err != nil || reply.Removed != want {
					t.Errorf("look %d, with ages %v: %d were swept, %v; want %d", i, withAge, reply.Removed, err, want)
				}
				time.Sleep([]time.Duration{9 * time.Second, 2 * time.Second, 0, 0}[i])
			}
			if _, err := living.KV().Get(t.Context(), "long"); err != nil || held.Err() != nil {
				t.Error(err, held.Err())
			}
		})
	}
}

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

// Delete is one request.
func (c *client) Delete(ctx context.Context, key string, old driver.Revision) (rev driver.Revision, err error) {
	err = c.faulty(ctx, "delete", key, func() error { rev, err = c.memoryStore.Delete(ctx, key, old); return err })
	return rev, err
}

// Of two callers that delete a key at one revision at most one is told that it did,
// also if the request of the other was lost on the way.
func TestOneDeletes(t *testing.T) {
	deletes := map[string]func(context.Context, *holdfast.KV, holdfast.Revision) (bool, error){
		"CompareAndDelete": func(ctx context.Context, kv *holdfast.KV, at holdfast.Revision) (bool, error) {
			_, err := kv.CompareAndDelete(ctx, "job", at)
			return err == nil, err
		},
		"Txn": func(ctx context.Context, kv *holdfast.KV, at holdfast.Revision) (bool, error) {
			r, err := kv.Txn(ctx, holdfast.Txn{If: []holdfast.Compare{holdfast.ModifiedAt("job", at)}, Then: []holdfast.Op{holdfast.DeleteOp("job")}})
			return r.OK, err
		},
		"Delete": func(ctx context.Context, kv *holdfast.KV, _ holdfast.Revision) (bool, error) {
			return kv.Delete(ctx, "job")
		},
	}
	for name, do := range deletes {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memoryStore) { oneDeletes(t, s, do) })
		})
	}
}

func oneDeletes(t *testing.T, s *memoryStore, do func(context.Context, *holdfast.KV, holdfast.Revision) (bool, error)) {
	var lose atomic.Bool
	var at holdfast.Revision
	b := open(t, s)
	a := open(t, &client{s, func(op, _ string) fault {
		if op == "get" || !lose.CompareAndSwap(true, false) {
			return fault{}
		}
		if ok, err := do(t.Context(), b.KV(), at); !ok || err != nil {
			t.Errorf("the other: %v, %v", ok, err)
		}
		return fault{before: errLink}
	}})
	at, err := a.KV().Put(t.Context(), "job", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	lose.Store(true)
	if ok, err := do(t.Context(), a.KV(), at); ok && err == nil || holdfast.NotDone(err) {
		t.Errorf("both are told that they deleted it: %v, %v", ok, err)
	}
}

// A watch tells one delete for each, and nothing when its tombstone goes.
func TestWatchTellsOneDelete(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var told []string
		over := make(chan struct{})
		go func() {
			defer close(over)
			for ev := range sp.Watch(ctx, "", 0) {
				told = append(told, ev.Verb)
			}
		}()
		synctest.Wait()
		for range 2 {
			if _, err := sp.KV().Put(ctx, "k", nil); err != nil {
				t.Fatal(err)
			}
			if deleted, err := sp.KV().Delete(ctx, "k"); err != nil || !deleted {
				t.Fatal(deleted, err)
			}
		}
		synctest.Wait()
		cancel()
		<-over
		if fmt.Sprint(told) != "[ready put delete put delete]" {
			t.Errorf("told: %v", told)
		}
		if n := len(s.items); n != 0 {
			t.Errorf("%d keys are left in the engine", n)
		}
	})
}

// A counter is told when it is made or its value changes, and not when an addition, Store or swap leaves it.
func TestCountersTold(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var told []string
		over := make(chan struct{})
		go func() {
			defer close(over)
			for ev := range sp.Watch(ctx, "c", 0) {
				told = append(told, fmt.Sprint(ev.Verb, int64(ev.Number)))
			}
		}()
		synctest.Wait()
		c := sp.Counter("c")
		for _, delta := range []int64{0, 0, 2, 0} {
			if _, err := c.Add(ctx, delta); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Store(ctx, 2); err != nil {
			t.Fatal(err)
		}
		for _, to := range []int64{2, 3} {
			if swapped, err := c.CompareAndSwap(ctx, 2, to); err != nil || !swapped {
				t.Errorf("CompareAndSwap of 2 for %d: %v, %v", to, swapped, err)
			}
		}
		synctest.Wait()
		cancel()
		<-over
		if fmt.Sprint(told[1:]) != "[changed0 changed2 changed3]" {
			t.Errorf("told: %v", told)
		}
	})
}

// A transaction with a lost answer tells what it would have told: of the branch
// that ran, with what was there before.
func TestLostAnswerOfABranch(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		if _, err := sp.KV().Put(t.Context(), "k", []byte("was")); err != nil {
			t.Fatal(err)
		}
		var lose atomic.Bool
		s.set(func(op, _ string) fault {
			if op != "get" && lose.CompareAndSwap(true, false) {
				return fault{after: errLink}
			}
			return fault{}
		})
		no := []holdfast.Compare{holdfast.ValueIs("k", []byte("other"))}
		put, del := holdfast.PutOp("k", []byte("is")).WithPrevious(), holdfast.DeleteOp("k").WithPrevious()
		for _, c := range []struct {
			txn   holdfast.Txn
			count int64
		}{{holdfast.Txn{If: no, Else: []holdfast.Op{put}}, 0}, {holdfast.Txn{If: no, Then: []holdfast.Op{del}, Else: []holdfast.Op{put}}, 0}, {holdfast.Txn{If: no, Then: []holdfast.Op{put}, Else: []holdfast.Op{del}}, 1}} {
			lose.Store(true)
			r, err := sp.KV().Txn(t.Context(), c.txn)
			if err != nil || r.OK || len(r.Results) != 1 || r.Results[0].Count != c.count || len(r.Results[0].Entries) != 1 {
				t.Errorf("%+v, %v; want the Else with a count of %d and what was there", r, err, c.count)
			}
		}
	})
}

// A flush of a buffered counter that was not answered is counted once, although many
// others have counted before it is repeated.
func TestBufferedCountsOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		var down atomic.Bool
		cut := open(t, &client{s, func(op, _ string) fault {
			if down.Load() && (op == "swap" || s.asked("swap") > 0) {
				return fault{after: errLink}
			}
			return fault{}
		}})
		down.Store(true)
		b := cut.Counter("c").Buffered(1000, time.Hour)
		if err := b.Add(5); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Flush(t.Context()); err == nil || holdfast.NotDone(err) {
			t.Fatalf("a flush without an answer: %v", err)
		}
		down.Store(false)
		other := open(t, s).Counter("c")
		for range 50 {
			others := other.Buffered(1, time.Hour)
			if err := others.Add(1); err != nil {
				t.Fatal(err)
			}
			if err := others.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := other.Add(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := b.Flush(t.Context()); err != nil {
			t.Errorf("the repetition: %d, %v", n, err)
		}
		if n, err := other.Load(t.Context()); n != 105 || err != nil {
			t.Errorf("105 were counted as %d, %v", n, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// late is a store in which the first Swap of a key comes after the second was sent.
type late struct {
	*memoryStore
	held func() error
	sent int
}

func (l *late) Swap(ctx context.Context, key string, old driver.Revision, value []byte) (driver.Revision, error) {
	if l.sent++; l.sent == 1 {
		l.held = func() error { _, err := l.memoryStore.Swap(context.WithoutCancel(ctx), key, old, value); return err }
		return 0, errLink
	}
	if l.held != nil {
		if err := l.held(); err != nil {
			return 0, err
		}
		l.held = nil
	}
	return l.memoryStore.Swap(ctx, key, old, value)
}

// A request that comes late, after it was sent again, is the caller's own.
func TestLateRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, &late{memoryStore: s})
		if _, err := sp.KV().Create(t.Context(), "k", []byte{1}); err != nil {
			t.Errorf("Create, of a key that nobody else has made: %v", err)
		}
	})
}

// Expiring keys end, however many there are, and so do the locks of programs that
// were killed.
func TestManySightings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(false)
		ctx := t.Context()
		writer, reader := open(t, s), open(t, s)
		var dead atomic.Bool
		killed := open(t, &client{s, func(string, string) fault { return fault{hang: dead.Load()} }})
		if _, err := killed.Mutex("m", holdfast.TTL(30*time.Second)).Acquire(ctx); err != nil {
			t.Fatal(err)
		}
		dead.Store(true)
		var granted atomic.Bool
		go func() {
			if _, err := writer.Mutex("m").Acquire(ctx); err == nil {
				granted.Store(true)
			}
		}()
		const keys = 20_000 // in 50 seconds
		for i := range keys {
			if _, err := writer.KV().Put(ctx, fmt.Sprint("k", i), nil, holdfast.Expire(time.Minute)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2500 * time.Microsecond)
		}
		if !granted.Load() {
			t.Error("the lock of a killed program is not free after its TTL")
		}
		for i := range 4 {
			if n := countKeys(t, reader); i == 0 && n == 0 || i == 3 && n != 0 {
				t.Errorf("at look %d there are %d keys", i, n)
			}
			time.Sleep(25 * time.Second)
		}
	})
}

func countKeys(t *testing.T, sp *holdfast.Space) (n int) {
	for _, err := range sp.KV().Range(t.Context(), "k") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// An engine that is away keeps nobody: not a caller of AcquireAll that leaves with
// something taken, and not Close. What is taken stays so until the engine is there again: the call
// is not told as one that was not done.
func TestLeavingWhenTheEngineIsAway(t *testing.T) {
	cancelled := func(cancel func(), _ *holdfast.Space) { cancel() }
	for name, c := range map[string]struct {
		leave   func(cancel func(), sp *holdfast.Space)
		away    bool
		atMost  time.Duration
		notDone bool
	}{
		"cancel":           {cancelled, true, 100 * time.Millisecond, false},
		"cancel, not away": {cancelled, false, 0, true},
		"close":            {func(_ func(), sp *holdfast.Space) { _ = sp.Close() }, true, 5 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memoryStore) {
				var away atomic.Bool
				sp := open(t, &client{s, func(string, string) fault { return fault{hang: away.Load()} }})
				if _, err := open(t, s).Mutex("b").Acquire(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				over := make(chan error, 1)
				go func() {
					_, err := sp.AcquireAll(ctx, sp.Mutex("a").Want(), sp.Mutex("b").Want())
					over <- err
				}()
				synctest.Wait()
				away.Store(c.away)
				start := time.Now()
				c.leave(cancel, sp)
				if err := <-over; !errors.Is(err, context.Canceled) && !errors.Is(err, holdfast.ErrClosed) || holdfast.NotDone(err) != c.notDone {
					t.Errorf("AcquireAll: %v; NotDone is %t", err, holdfast.NotDone(err))
				}
				if took := time.Since(start); took > c.atMost {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// Nothing is kept of holds that were lost.
func TestLostHoldsAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		var cut atomic.Bool
		d := onstore.New(&client{s, func(string, string) fault { return fault{hang: cut.Load()} }}, onstore.Options{Info: driver.Info{Scheme: "cas"}})
		sp, err := holdfast.New(d)
		if err != nil {
			t.Fatal(err)
		}
		defer sp.Close()
		var holds []*holdfast.Hold
		for i := range 100 {
			h, err := sp.Mutex(fmt.Sprint("m", i), holdfast.TTL(5*time.Second)).Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			holds = append(holds, h)
		}
		cut.Store(true)
		for _, h := range holds {
			<-h.Done()
			_ = h.Release()
		}
		synctest.Wait()
		if n := onstore.Holds(d); n != 0 {
			t.Errorf("%d holds are kept", n)
		}
		cut.Store(false)
	})
}

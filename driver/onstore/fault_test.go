package onstore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/driver/onstore"
)

// open makes a Space of a store in the bubble of the test.
func open(t *testing.T, s driver.Store) *holdfast.Space {
	t.Helper()
	sp, err := holdfast.New(onstore.New(s, onstore.Options{Info: driver.Info{Scheme: "cas"}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sp.Close() })
	return sp
}

// client is a store as one client sees it, with faults of its own.
type client struct {
	*memoryStore
	fault func(op, key string) fault
}

func (c *client) faulty(ctx context.Context, op, key string, f func() error) error {
	x := c.fault(op, key)
	switch {
	case x.hang:
		<-ctx.Done()
		return ctx.Err()
	case x.before != nil:
		return x.before
	}
	if err := f(); err != nil {
		return err
	}
	return x.after
}

func (c *client) Get(ctx context.Context, key string) (item driver.Item, err error) {
	err = c.faulty(ctx, "get", key, func() error { item, err = c.memoryStore.Get(ctx, key); return err })
	return item, err
}

func (c *client) Swap(ctx context.Context, key string, old driver.Revision, value []byte) (rev driver.Revision, err error) {
	err = c.faulty(ctx, "swap", key, func() error { rev, err = c.memoryStore.Swap(ctx, key, old, value); return err })
	return rev, err
}

// bubble runs f in fake time, with a clock in the engine and without.
func bubble(t *testing.T, f func(t *testing.T, s *memoryStore)) {
	for name, clock := range map[string]bool{"engine time": true, "observed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, newStore(clock)) })
		})
	}
}

// chance is a fault of some requests: half of them are done all the same.
func chance(r *rand.Rand, percent int) func(op, key string) fault {
	return func(string, string) fault {
		switch n := r.IntN(100); {
		case n < percent/2:
			return fault{before: errLink}
		case n < percent:
			return fault{after: errLink}
		}
		return fault{}
	}
}

// Whatever is lost on the way, everything is counted once, no number comes
// twice, and one at a time holds.
func TestLostAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		ctx := t.Context()
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 1))
			s.set(chance(r, 25))
			sp := open(t, s)
			name := fmt.Sprint("n", seed)
			var count int64
			var last uint64
			var token holdfast.Token
			for range 20 {
				n, err := sp.Counter(name).Add(ctx, 1)
				if err != nil {
					t.Fatal(err)
				}
				if count++; n != count {
					t.Fatalf("seed %d: the sum is %d, want %d", seed, n, count)
				}
				q, err := sp.Sequence(name).Reserve(ctx, 3)
				if err != nil || q != last*3+1 {
					t.Fatalf("seed %d: reserved %d, %v; want %d", seed, q, err, last*3+1)
				}
				last++
				h, err := sp.Mutex(name).Acquire(ctx)
				if err != nil || h.Token() <= token {
					t.Fatalf("seed %d: token %d after %d, %v", seed, h.Token(), token, err)
				}
				token = h.Token()
				if err := h.Release(); err != nil {
					t.Fatal(err)
				}
				if _, err := sp.KV().Create(ctx, name, []byte{1}); err != nil {
					t.Fatalf("seed %d: create: %v", seed, err)
				}
				if deleted, err := sp.KV().Delete(ctx, name); err != nil || !deleted {
					t.Fatalf("seed %d: delete: %v, %v", seed, deleted, err)
				}
			}
			if err := sp.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Tries are bounded, and the error says how many there were.
func TestConflictsWithoutEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		s.set(func(op, _ string) fault {
			if op == "swap" {
				return fault{before: driver.ErrConflict}
			}
			return fault{}
		})
		start := time.Now()
		_, err := sp.Counter("c").Add(t.Context(), 1)
		if !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) || !strings.Contains(err.Error(), "100 attempts") {
			t.Errorf("Add: %v", err)
		}
		if took := time.Since(start); took < 50*time.Millisecond || took > 150*time.Millisecond || s.asked("swap") != 100 {
			t.Errorf("%d attempts took %s", s.asked("swap"), took)
		}
	})
}

// A request that was sent and never answered is told as unknown.
func TestUnknownOutcome(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		down := false
		s.set(func(op, _ string) fault {
			down = down || op == "swap"
			if down {
				return fault{after: errLink}
			}
			return fault{}
		})
		_, err := sp.Counter("c").Add(t.Context(), 1)
		if !errors.Is(err, holdfast.ErrUnavailable) || holdfast.NotDone(err) || !errors.Is(err, errLink) {
			t.Errorf("Add: %v", err)
		}
		s.set(func(string, string) fault { return fault{before: errLink} })
		if _, err = sp.Counter("d").Add(t.Context(), 1); !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) {
			t.Errorf("Add that was never sent: %v", err)
		}
	})
}

// A holder that is cut off knows of its loss before another is granted, and the
// other is granted soon after: with the engine's clock, and by looking.
func TestCutOffHolder(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		ctx := t.Context()
		const ttl = 10 * time.Second
		var cut atomic.Bool
		a := open(t, &client{s, func(string, string) fault { return fault{hang: cut.Load()} }})
		b := open(t, s)
		h, err := a.Mutex("m", holdfast.TTL(ttl)).Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * ttl)
		if h.Err() != nil {
			t.Fatalf("renewed, but %v", h.Err())
		}
		cut.Store(true)
		start := time.Now()
		next, err := b.Mutex("m").Acquire(ctx)
		if err != nil || next.Token() <= h.Token() {
			t.Fatalf("token %d after %d, %v", next.Token(), h.Token(), err)
		}
		if !errors.Is(h.Err(), holdfast.ErrLost) {
			t.Errorf("granted while the other believes: %v", h.Err())
		}
		if took := time.Since(start); took < ttl*6/10 || took > ttl+2*time.Second {
			t.Errorf("granted after %s", took)
		}
		cut.Store(false)
		if err := h.Release(); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("Release: %v", err)
		}
		if err := next.Err(); err != nil {
			t.Error(err)
		}
		if err := next.Release(); err != nil {
			t.Error(err)
		}
	})
}

// Two lost beats never lose a hold.
func TestLostBeats(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		var failing atomic.Bool
		a := open(t, &client{s, func(string, string) fault {
			if failing.Load() {
				return fault{before: errLink}
			}
			return fault{}
		}})
		h, err := a.Mutex("m", holdfast.TTL(30*time.Second)).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			failing.Store(true)
			time.Sleep(18 * time.Second)
			failing.Store(false)
			time.Sleep(5 * time.Second)
			if err := h.Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Release(); err != nil {
			t.Error(err)
		}
	})
}

// Renewals come at a third of the TTL.
func TestRenewals(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		h, err := sp.Mutex("m", holdfast.TTL(30*time.Second)).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := s.asked("swap")
		time.Sleep(5 * time.Minute)
		if n := s.asked("swap") - before; n < 27 || n > 34 {
			t.Errorf("%d renewals in ten TTLs", n)
		}
		r, err := sp.Inspect(t.Context(), "m")
		if err != nil || len(r.Holders) != 1 || holdfast.Token(r.Holders[0].Token) != h.Token() {
			t.Errorf("after renewals the holder is told as %+v, %v", r.Holders, err)
		}
		if err := h.Release(); err != nil {
			t.Error(err)
		}
	})
}

// The deadline counts from before the request was sent, not from its answer.
func TestDeadlineFromTheSend(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, &client{s, func(op, _ string) fault {
			if op == "swap" {
				time.Sleep(time.Second)
			}
			return fault{}
		}})
		start := time.Now()
		h, err := sp.Mutex("m", holdfast.TTL(10*time.Second)).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := h.Deadline(); !ok || d.Sub(start) > 10*time.Second {
			t.Errorf("the deadline is %s after the request", d.Sub(start))
		}
	})
}

// Tokens never repeat: not after a release, and not in an engine that has lost
// its history.
func TestTombstones(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		ctx := t.Context()
		h, err := sp.Mutex("m").Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.items["l/m"]; !ok {
			t.Error("nothing is left of a released lock")
		}
		s.mu.Lock()
		item := s.items["l/m"]
		item.Revision = 1
		s.items["l/m"] = item
		s.revision = 0
		s.mu.Unlock()
		if _, err := sp.Mutex("m").TryAcquire(ctx); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "history") {
			t.Errorf("with revisions gone back: %v", err)
		}
	})
}

// A value that is not ours is an error that names the key.
func TestForeignValue(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		ctx := t.Context()
		for _, key := range []string{"l/x", "c/x", "q/x", "k/x"} {
			if _, err := s.Swap(ctx, key, 0, []byte("{")); err != nil {
				t.Fatal(err)
			}
		}
		_, lock := sp.Mutex("x").TryAcquire(ctx)
		_, counter := sp.Counter("x").Add(ctx, 1)
		_, sequence := sp.Sequence("x").Reserve(ctx, 1)
		_, key := sp.KV().Get(ctx, "x")
		for i, err := range []error{lock, counter, sequence, key} {
			if !errors.Is(err, holdfast.ErrUnavailable) || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/x") {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}

// Of many waiters in a process one asks the engine.
func TestOneWaiterAsks(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		sp := open(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		h, err := sp.Mutex("m", holdfast.TTL(time.Hour)).Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan error, 50)
		for range cap(over) {
			go func() { _, err := sp.Mutex("m").Acquire(ctx); over <- err }()
		}
		synctest.Wait()
		before := s.asked("get")
		time.Sleep(time.Minute)
		if n := s.asked("get") - before; n > 150 {
			t.Errorf("50 waiters asked %d times in a minute", n)
		}
		cancel()
		for range cap(over) {
			if err := <-over; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if err := h.Release(); err != nil {
			t.Error(err)
		}
	})
}

func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l onstore.Line
		leave, err := l.Wait(t.Context(), "n", [16]byte{1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		gone, cancel := context.WithCancel(t.Context())
		for i := range 4 {
			ctx := t.Context()
			if i == 1 {
				ctx = gone
			}
			go func() {
				leave, err := l.Wait(ctx, "n", [16]byte{byte(i + 2)}, func(n int) {
					if n != i+2 {
						t.Errorf("place %d, want %d", n, i+2)
					}
				})
				if err != nil {
					return
				}
				order = append(order, i)
				leave()
				leave()
			}()
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		if n := len(l.Waiting("n")); n != 4 {
			t.Errorf("%d are in line", n)
		}
		leave()
		synctest.Wait()
		if fmt.Sprint(order) != "[0 2 3]" || len(l.Waiting("n")) != 0 {
			t.Errorf("served %v, left %v", order, l.Waiting("n"))
		}
	})
}

// The driver's own Release of a hold that was lost frees nobody: not the next
// holder, and not the one after.
func TestReleaseFreesNobody(t *testing.T) {
	bubble(t, func(t *testing.T, s *memoryStore) {
		ctx := t.Context()
		var cut atomic.Bool
		a := onstore.New(&client{s, func(string, string) fault { return fault{hang: cut.Load()} }}, onstore.Options{})
		defer a.Close(ctx)
		want := []driver.Want{{Name: "m", Kind: driver.Mutex}}
		g, err := a.Acquire(ctx, &driver.Request{ID: [16]byte{1}, Wants: want, Spec: driver.Spec{TTL: 5 * time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		cut.Store(true)
		b := open(t, s)
		h, err := b.Mutex("m").Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cut.Store(false)
		if err := g.Handle.Release(ctx); !errors.Is(err, driver.ErrLost) {
			t.Errorf("Release: %v", err)
		}
		if _, err := b.Mutex("m").TryAcquire(ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("the next holder was freed: %v", err)
		}
		if err := h.Release(); err != nil {
			t.Error(err)
		}
	})
}

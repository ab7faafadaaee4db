package redishold_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/limit"
)

// fillMemory sets the server's memory to less than it has; with some, things are past their deadline
// that each script clears away a few of by the way.
func fillMemory(t *testing.T, rc rueidis.Client, some bool) {
	t.Helper()
	for i := range 60 {
		if some {
			do(t, rc, "ZADD", "{holdfast}:due", "1", fmt.Sprint("z", i))
		}
	}
	do(t, rc, "CONFIG", "SET", "maxmemory", "100kb")
}

func freeMemory(t *testing.T, rc rueidis.Client) {
	t.Helper()
	do(t, rc, "CONFIG", "SET", "maxmemory", "0")
}

// queue waits behind a holder, and leaves as soon as it is in the queue.
func queue(t *testing.T, s *holdfast.Space, name string) error {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	_, err := s.Mutex(name, holdfast.OnWait(func(int) { leave() })).Acquire(ctx)
	return err
}

// additions are calls that keep something new on the server.
func additions(t *testing.T, s *holdfast.Space, leader *holdfast.Leadership) map[string]func() error {
	ctx, rate := t.Context(), limit.Rate{Count: 1, Per: time.Hour}
	return map[string]func() error{
		"mutex":         func() error { return second(s.Mutex("mutex").TryAcquire(ctx)) },
		"reader":        func() error { return second(s.RWMutex("rwmutex").Reader().TryAcquire(ctx)) },
		"semaphore":     func() error { return second(s.Semaphore("semaphore", 3).TryAcquire(ctx, 2)) },
		"election":      func() error { return second(s.Election("election").TryCampaign(ctx, nil)) },
		"waiter":        func() error { return queue(t, s, "held") },
		"second reader": func() error { return second(s.RWMutex("read").Reader().TryAcquire(ctx)) },
		"proclamation":  func() error { return leader.Proclaim(ctx, []byte("two")) },
		"session":       func() error { return second(s.Session(ctx)) },
		"counter":       func() error { return s.Counter("counter").Store(ctx, 1) },
		"addition":      func() error { return second(s.Counter("old counter").Unsigned().Add(ctx, 1)) },
		"number":        func() error { return second(s.Sequence("sequence").Next(ctx)) },
		"next number":   func() error { return second(s.Sequence("old sequence").Reserve(ctx, 1)) },
		"latch":         func() error { return second(s.Latch("latch", 3).CountDown(ctx, 1)) },
		"key":           func() error { return second(s.KV().Put(ctx, "key", nil)) },
		"value":         func() error { return second(s.KV().Put(ctx, "old key", []byte("two"))) },
		"put and delete": func() error {
			return second(s.KV().Txn(ctx, holdfast.Txn{Then: []holdfast.Op{holdfast.DeleteOp("old key"), holdfast.PutOp("key", nil)}}))
		},
		"limiter":           func() error { return second(s.Limiter("limiter", rate).Allow(ctx, "k")) },
		"rate of a limiter": func() error { return s.Limiter("limiter", rate).SetRate(ctx, rate) },
	}
}

// TestFullServerRefuses: a server that is out of memory takes nothing new, also where a script clears
// something away first, after which Redis would let it do everything.
func TestFullServerRefuses(t *testing.T) {
	server := services.Redis(t)
	s, rc := open(t, server.URL(), holdfast.TTL(long)), admin(t, server.URL())
	leader, err := s.Election("led").Campaign(t.Context(), []byte("one"))
	read, unread := s.RWMutex("read").Reader().Acquire(t.Context())
	acquire(t, s, "held")
	keep(t, read)
	err = errors.Join(err, unread, second(s.Counter("old counter").Unsigned().Add(t.Context(), 1)), second(s.Sequence("old sequence").Next(t.Context())),
		second(s.KV().Put(t.Context(), "old key", []byte("one"))), second(s.Inspect(t.Context(), "held")))
	if err != nil {
		t.Fatal(err)
	}
	before := kept(t, rc)
	for what, add := range additions(t, s, leader) {
		for _, some := range []bool{false, true} {
			fillMemory(t, rc, some)
			if err := add(); !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) || !strings.Contains(err.Error(), "raise maxmemory") {
				t.Errorf("%s, with something to clear away %v: %v", what, some, err)
			}
			freeMemory(t, rc)
		}
	}
	if now := kept(t, rc); now != before {
		t.Errorf("the server has\n%s\nand had\n%s", now, before)
	}
	for what, add := range additions(t, s, leader) {
		if err := add(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%s, with room again: %v", what, err)
		}
	}
}

// kept are the keys of the server, but for what changes by itself and by refused calls.
func kept(t *testing.T, rc rueidis.Client) string {
	t.Helper()
	var list []string
	for _, key := range matching(t, rc, "*") {
		if !strings.HasPrefix(key, "{holdfast}:w:") && key != "{holdfast}:duty" {
			list = append(list, key)
		}
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// TestFullServerIsAsked: what is only looked at is told by a full server, and so is that a name is held.
func TestFullServerIsAsked(t *testing.T) {
	server := services.Redis(t)
	s, rc := open(t, server.URL(), holdfast.TTL(long)), admin(t, server.URL())
	acquire(t, s, "m")
	for _, some := range []bool{false, true} {
		fillMemory(t, rc, some)
		if _, err := s.Mutex("m").TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("a name that is held: %v", err)
		}
		if r, err := s.Inspect(t.Context(), "m"); err != nil || len(r.Holders) != 1 {
			t.Errorf("inspect: %+v, %v", r, err)
		}
		if n, err := s.Counter("none").Load(t.Context()); n != 0 || err != nil {
			t.Errorf("a counter: %d, %v", n, err)
		}
		freeMemory(t, rc)
	}
}

// TestFullServerClears: a server that was filled has room again when some of it is deleted, or has ended
// and is cleared away by calls that are refused.
func TestFullServerClears(t *testing.T) {
	server := services.Redis(t)
	s, rc := open(t, server.URL(), holdfast.TTL(long)), admin(t, server.URL())
	session, err := s.Session(t.Context(), holdfast.TTL(long), holdfast.ManualRenew())
	if err != nil {
		t.Fatal(err)
	}
	do(t, rc, "CONFIG", "SET", "maxmemory", "8mb")
	value, n := bytes.Repeat([]byte("v"), 60_000), 0
	for ; err == nil && n < 1000; n++ {
		opts := []holdfast.PutOption{}
		if n < 40 {
			opts = append(opts, holdfast.Under(session))
		}
		_, err = s.KV().Put(t.Context(), fmt.Sprint("key", n), value, opts...)
	}
	if !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) {
		t.Fatalf("after %d keys: %v", n, err)
	}
	freeMemory(t, rc)
	expire(t, rc, session)
	do(t, rc, "CONFIG", "SET", "maxmemory", "8mb")
	eventually(t, "what has ended does not make room", func() bool { return second(s.Mutex("m").Acquire(t.Context())) == nil })
	for err = nil; err == nil && n < 2000; n++ {
		_, err = s.KV().Put(t.Context(), fmt.Sprint("key", n), value)
	}
	if deleted, err := s.KV().DeleteRange(t.Context(), "key"); err != nil || deleted == 0 {
		t.Fatalf("%d keys are deleted: %v", deleted, err)
	}
	if _, err := s.KV().Put(t.Context(), "key", value); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// TestFullServerKnowsTheRequest: a request that was granted, and was not heard of, is answered when it
// comes again and the server is full by then: it is not told as refused, which would leave the hold with nobody.
func TestFullServerKnowsTheRequest(t *testing.T) {
	server := services.Redis(t)
	d, rc := raw(t, server.URL()), admin(t, server.URL())
	for _, kind := range []driver.ResourceKind{driver.Mutex, driver.RWMutex} {
		r := mutex(fmt.Sprint("m", kind))
		r.Wants[0].Kind = kind
		first, err := d.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		fillMemory(t, rc, false)
		again, err := d.Acquire(t.Context(), r)
		if err != nil || again.Token != first.Token {
			t.Errorf("%v: %+v, %v; it was %+v", kind, again, err, first)
		}
		freeMemory(t, rc)
	}
}

// TestFullServerLetsGo: on a full server a waiter leaves its queue, a session ends with what it has, and a
// latch is counted down.
func TestFullServerLetsGo(t *testing.T) {
	server := services.Redis(t)
	s, rc := open(t, server.URL(), holdfast.TTL(long)), admin(t, server.URL())
	session, err := s.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	writer, err := s.RWMutex("rw", holdfast.Under(session)).Writer().Acquire(t.Context())
	keep(t, writer)
	if err = errors.Join(err, second(s.Latch("latch", 3).CountDown(t.Context(), 1))); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	waits, left := make(chan struct{}), make(chan error, 1)
	go func() {
		left <- second(s.RWMutex("rw", holdfast.OnWait(func(int) { close(waits) })).Reader().Acquire(ctx))
	}()
	<-waits
	other := open(t, server.URL())
	fillMemory(t, rc, false)
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("a waiter that leaves: %v", err)
	}
	for want := int64(1); want >= 0; want-- {
		if n, err := other.Latch("latch", 0).CountDown(t.Context(), 1); n != want || err != nil {
			t.Errorf("a latch is counted down to %d, not %d: %v", n, want, err)
		}
	}
	if err := session.Revoke(); err != nil {
		t.Errorf("a session ends: %v", err)
	}
	if r, err := s.Inspect(t.Context(), "rw"); err != nil || len(r.Holders)+len(r.Waiters) > 0 {
		t.Errorf("what a session and a waiter had: %+v, %v", r, err)
	}
}

// TestFullServerTakesBack: what was taken from a limiter is given back to a full server, and nothing new is taken.
func TestFullServerTakesBack(t *testing.T) {
	server := services.Redis(t)
	s, rc, ctx := open(t, server.URL(), holdfast.TTL(long)), admin(t, server.URL()), t.Context()
	for name, rate := range map[string]limit.Rate{
		"bucket": {Count: 10, Per: 24 * time.Hour}, "log": {Count: 10, Per: 24 * time.Hour, Algorithm: limit.SlidingLog},
	} {
		l := s.Limiter(name, rate)
		r, err := l.Reserve(ctx, "k", 5)
		if err != nil {
			t.Fatal(err)
		}
		fillMemory(t, rc, false)
		if err := r.Settle(ctx, 2); err != nil {
			t.Errorf("%s: some is given back: %v", name, err)
		}
		if n, err := l.Available(ctx, "k"); n != 8 || err != nil {
			t.Errorf("%s: %d are left, %v", name, n, err)
		}
		if _, err := l.Allow(ctx, "k"); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("%s: something new: %v", name, err)
		}
		freeMemory(t, rc)
	}
}

// TestFullServerGoesOn: on a server that is out of memory holds are renewed and given
// back, waits are granted, holds are forced, keys are deleted, and only what is new
// is refused.
func TestFullServerGoesOn(t *testing.T) {
	server := services.Redis(t)
	s, rc := open(t, server.URL(), holdfast.TTL(9*time.Second)), admin(t, server.URL()) // a busy machine renews it in that time
	holds := []*holdfast.Hold{}
	for _, take := range []func() (*holdfast.Hold, error){
		func() (*holdfast.Hold, error) { return s.Mutex("m").Acquire(t.Context()) },
		func() (*holdfast.Hold, error) { return s.RWMutex("rw").Reader().Acquire(t.Context()) },
		func() (*holdfast.Hold, error) { return s.Semaphore("sem", 3).Acquire(t.Context(), 2) },
		func() (*holdfast.Hold, error) { return s.RWMutex("forced").Writer().Acquire(t.Context()) },
	} {
		holds = append(holds, soLong(t, take))
	}
	if _, err := s.KV().Put(t.Context(), "key", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Counter("counter").Store(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	waits, granted := make(chan struct{}), make(chan error, 1)
	go func() {
		h, err := s.Mutex("m", holdfast.OnWait(func(int) { close(waits) })).Acquire(t.Context())
		if err == nil {
			err = h.Release()
		}
		granted <- err
	}()
	<-waits
	do(t, rc, "CONFIG", "SET", "maxmemory", "100kb") // less than it has
	if _, err := s.Mutex("new").TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "raise maxmemory") {
		t.Errorf("a new hold: %v", err)
	}
	first, _ := holds[0].Deadline()
	eventually(t, "the holds are not renewed", func() bool {
		d, _ := holds[0].Deadline()
		return holds[0].Err() != nil || d.After(first.Add(time.Second))
	})
	for i, h := range holds {
		if err := h.Err(); err != nil {
			t.Fatalf("hold %d was lost: %v", i, err)
		}
	}
	if deleted, err := s.KV().Delete(t.Context(), "key"); err != nil || !deleted {
		t.Errorf("delete of a key: %v", err)
	}
	if err := s.Counter("counter").Delete(t.Context()); err != nil {
		t.Errorf("delete of a counter: %v", err)
	}
	if _, err := s.ForceRelease(t.Context(), "forced", holds[3].Token(), holdfast.ForceNow()); err != nil {
		t.Errorf("force release: %v", err)
	}
	for i, h := range holds[:3] {
		if err := h.Release(); err != nil {
			t.Errorf("release of hold %d: %v", i, err)
		}
	}
	if err := <-granted; err != nil {
		t.Errorf("the waiter: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestRefusedLeavesNothing: a full server is not given a mark to keep for each call
// that it refuses.
func TestRefusedLeavesNothing(t *testing.T) {
	server := services.Redis(t)
	s, rc := open(t, server.URL()), admin(t, server.URL())
	hold, err := s.Mutex("m").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	do(t, rc, "CONFIG", "SET", "maxmemory", "100kb") // less than it has
	for range 50 {
		for what, err := range map[string]error{
			"mutex":     second(s.Mutex("new").TryAcquire(t.Context())),
			"semaphore": second(s.Semaphore("sem", 3).TryAcquire(t.Context(), 1)),
		} {
			if !errors.Is(err, holdfast.ErrUnavailable) || !holdfast.NotDone(err) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	if err := hold.Release(); err != nil { // one trip more, after what would be told
		t.Fatal(err)
	}
	for _, d := range members(t, rc, "{holdfast}:due") {
		if d[0] == 'z' {
			t.Fatal("a refused call has left a mark")
		}
	}
}

package pghold_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/driver"
	"github.com/holdfast-io/holdfast/internal/services"
	"github.com/holdfast-io/holdfast/pghold"
)

// TestDeadWaiter: a waiter whose program has gone keeps nobody behind it
// waiting.
func TestDeadWaiter(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	way := services.Proxy(t, pg.Addr())
	a, c := open(t, url), open(t, url)
	gone := must(holdfast.Open(t.Context(), way.URL(url)))(t)
	h := must(a.Mutex("m").Acquire(t.Context()))(t)
	ctx, cancel := context.WithCancel(t.Context())
	waits, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := gone.Mutex("m", holdfast.OnWait(func(int) { close(waits) })).Acquire(ctx)
		ended <- err
	}()
	<-waits
	next := waiting(t, c, "m")
	way.Cut()
	way.Break()
	check(t, h.Release())
	check(t, granted(t, next).Release())
	cancel()
	refused(t, <-ended, context.Canceled)
	way.Heal()
	check(t, gone.Close())
}

// TestDeadSemaphoreHolder: what the dead held of a semaphore is free for waiters
// soon after, although nobody tells them.
func TestDeadSemaphoreHolder(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	way := services.Proxy(t, pg.Addr())
	a, b := open(t, way.URL(url)), open(t, url)
	h := must(a.Semaphore("s", 3).Acquire(t.Context(), 2))(t)
	waits, got := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := b.Semaphore("s", 3, holdfast.OnWait(func(int) { close(waits) })).Acquire(t.Context(), 2)
		got <- err
	}()
	<-waits
	way.Break()
	select {
	case err := <-got:
		check(t, err)
	case <-time.After(patience):
		t.Fatal("the dead one's share did not become free")
	}
	<-h.Done()
}

// TestTokensGoOn: a schema that was dropped and made anew repeats no token.
func TestTokensGoOn(t *testing.T) {
	url := database(t)
	first := must(holdfast.Open(t.Context(), url))(t)
	h := must(first.Mutex("m").Acquire(t.Context()))(t)
	rev := must(first.KV().Put(t.Context(), "k", nil))(t)
	check(t, first.Close())
	_, err := connect(t, url).Exec(t.Context(), "drop schema holdfast cascade")
	check(t, err)
	again := open(t, url)
	if next := must(again.Mutex("m").Acquire(t.Context()))(t); next.Token() <= h.Token() {
		t.Errorf("the next token is %d after %d", next.Token(), h.Token())
	}
	if next := must(again.KV().Put(t.Context(), "k", nil))(t); next <= rev {
		t.Errorf("the next revision is %d after %d", next, rev)
	}
}

// TestSequenceHasNoCache: a cached number could be drawn after a greater one.
func TestSequenceHasNoCache(t *testing.T) {
	url := database(t)
	check(t, must(open(t, url).Mutex("m").Acquire(t.Context()))(t).Release())
	var cache int
	if scan(t, connect(t, url), &cache, "select cache_size from pg_sequences where schemaname = 'holdfast' and sequencename = 'token'"); cache != 1 {
		t.Errorf("the sequence of the tokens caches %d numbers", cache)
	}
}

// TestSessionWithoutTTL: a session lives as long as its connection; Keep asks
// for a sign of life.
func TestSessionWithoutTTL(t *testing.T) {
	url := database(t)
	s, look := open(t, url), connect(t, url)
	ses := must(s.Session(t.Context(), holdfast.TTL(time.Second)))(t)
	h := must(s.Mutex("m", holdfast.Under(ses)).Acquire(t.Context()))(t)
	if at, ok := ses.Deadline(); ok {
		t.Errorf("the session has the deadline %s", at)
	}
	check(t, ses.Keep(t.Context()))
	var killed bool
	scan(t, look, &killed, "select pg_terminate_backend($1)", holderOf(t, look, "m"))
	<-ses.Done()
	refused(t, h.Err(), holdfast.ErrLost)
	refused(t, ses.Keep(t.Context()), holdfast.ErrLost)
}

// TestHoldUnderASessionElsewhere: a hold that was waited for is on another
// connection than its session, and ends with either.
func TestHoldUnderASessionElsewhere(t *testing.T) {
	url := database(t)
	a, b, look := open(t, url), open(t, url), connect(t, url)
	for _, end := range []string{"session", "connection"} {
		ses := must(b.Session(t.Context()))(t)
		h := must(a.Mutex("m").Acquire(t.Context()))(t)
		got := make(chan *holdfast.Hold, 1)
		waits := make(chan struct{})
		go func() {
			h, err := b.Mutex("m", holdfast.Under(ses), holdfast.OnWait(func(int) { close(waits) })).Acquire(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- h
		}()
		<-waits
		check(t, h.Release())
		under := granted(t, got)
		if end == "session" {
			check(t, ses.Revoke())
			check(t, must(a.Mutex("m").TryAcquire(t.Context()))(t).Release())
		} else {
			var killed bool
			scan(t, look, &killed, "select pg_terminate_backend($1)", holderOf(t, look, "m"))
			<-under.Done()
			check(t, ses.Err())
			check(t, ses.Revoke())
		}
		refused(t, under.Err(), holdfast.ErrLost)
		freed(t, func() (*holdfast.Hold, error) { return a.Mutex("m").TryAcquire(t.Context()) })
	}
}

// TestWatchLargeAndExpired: a value that is too large for a notification arrives
// whole, and a key's expiry is told.
func TestWatchLargeAndExpired(t *testing.T) {
	url := database(t)
	s := open(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	value := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	var seen []string
	for ev, err := range s.Watch(ctx, "", 0) {
		check(t, err)
		seen = append(seen, ev.String()+" "+ev.Name)
		switch len(seen) {
		case 1:
			must(s.KV().Put(ctx, "large", value))(t)
			must(s.KV().Put(ctx, "short", nil, holdfast.Expire(50*time.Millisecond)))(t)
		case 2:
			if !bytes.Equal(ev.KV.Value, value) {
				t.Errorf("of %d bytes %d arrived", len(value), len(ev.KV.Value))
			}
		case 4:
			if ev.Reason != "timeout" {
				t.Errorf("the reason of an expiry is told as %q", ev.Reason)
			}
			cancel()
		}
	}
	if want := []string{"watch:ready ", "kv:put large", "kv:put short", "kv:delete short"}; !equal(seen, want) {
		t.Errorf("the watch tells %q; want %q", seen, want)
	}
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// TestCountOnce: a repeated request counts once, also through another client.
func TestCountOnce(t *testing.T) {
	url := database(t)
	r := &driver.CountRequest{ID: [16]byte{1, 2, 3}, Name: "c", Op: driver.CountAdd, A: 5}
	down := &driver.CountDownRequest{ID: [16]byte{4, 5, 6}, Name: "l", Count: 9, By: 2}
	for range 3 {
		pool := must(pgxpool.New(t.Context(), url))(t)
		defer pool.Close()
		d := must(pghold.New(pool, nil))(t)
		if got := must(d.Count(t.Context(), r))(t); got.Value != 5 {
			t.Errorf("the sum is told as %d", got.Value)
		}
		if got := must(d.CountDown(t.Context(), down))(t); got.Left != 7 {
			t.Errorf("the rest is told as %d", got.Left)
		}
		check(t, d.Close(t.Context()))
	}
}

// TestForceOfTheGone: a claim whose program has died cannot be forced, and
// stands in nobody's way.
func TestForceOfTheGone(t *testing.T) {
	pg := services.SharedPostgreSQL(t)
	url := pg.URL(pg.CreateDatabase(t))
	way := services.Proxy(t, pg.Addr())
	a, b := open(t, way.URL(url)), open(t, url)
	h := must(a.Mutex("m").Acquire(t.Context()))(t)
	way.Break()
	<-h.Done()
	eventually(t, "the dead one's name did not become free", func() bool {
		next, err := b.Mutex("m").TryAcquire(t.Context())
		if err == nil {
			defer next.Release()
		} else if !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
		return err == nil
	})
	_, err := b.ForceRelease(t.Context(), "m", h.Token())
	refused(t, err, fs.ErrNotExist)
}

package pghold_test

import (
	"testing"
	"time"

	"github.com/holdfast-io/holdfast"
	"github.com/holdfast-io/holdfast/pghold"
)

// TestHousekeepingEndsNoHold: what is removed in the background, keys that have expired and
// those of a session that was ended, may wait for somebody that writes keys for longer than
// Timeout. No hold is lost by it, and it is done in the end.
func TestHousekeepingEndsNoHold(t *testing.T) {
	t.Parallel()
	url := database(t)
	// Long enough that no answer is late on a busy machine, short enough to be waited for.
	s := openPool(t, url, &pghold.Options{Keepalive: 50 * time.Millisecond, Timeout: 3 * time.Second})
	look := connect(t, url)
	ctx := t.Context()
	h := must(s.Mutex("m").Acquire(ctx))(t)
	must(s.KV().Put(ctx, "expires", nil, holdfast.Expire(time.Second)))(t)
	session := must(s.Session(ctx))(t)
	must(s.KV().Put(ctx, "of the session", nil, holdfast.Under(session)))(t)

	writer := must(connect(t, url).Begin(ctx))(t)
	must(writer.Exec(ctx, "update holdfast.revision set n = n"))(t)
	if err := session.Revoke(); err == nil {
		t.Error("a session with a key is ended beside a transaction that writes keys")
	}
	select {
	case <-time.After(8 * time.Second): // so long is written: the clean-up of the session, and a sweep each 600 ms, give up once at least
	case <-h.Done():
		t.Errorf("a clean-up that waited ended a hold: %v", h.Err())
	}
	check(t, writer.Rollback(ctx))
	eventually(t, "a key stays although its time or session is over", func() bool {
		var n int
		scan(t, look, &n, "select count(*) from holdfast.kv")
		return n == 0
	})
	check(t, h.Release())
}

// TestHousekeepingOfABusyProgram: what has ended is removed also by a program that never rests, so that nobody asks whether
// its connection lives.
func TestHousekeepingOfABusyProgram(t *testing.T) {
	t.Parallel()
	url := database(t)
	s := openPool(t, url, &pghold.Options{Keepalive: 50 * time.Millisecond})
	look := connect(t, url)
	must(s.KV().Put(t.Context(), "expires", nil, holdfast.Expire(100*time.Millisecond)))(t)
	eventually(t, "a key stays although its time is over", func() bool {
		check(t, must(s.Mutex("m").Acquire(t.Context()))(t).Release())
		var n int
		scan(t, look, &n, "select count(*) from holdfast.kv")
		return n == 0
	})
}

// TestLockedTableEndsNoHold: somebody may lock the tables for longer than Timeout, as VACUUM FULL does. What is held
// meanwhile does not depend on them.
func TestLockedTableEndsNoHold(t *testing.T) {
	t.Parallel()
	url := database(t)
	s := openPool(t, url, &pghold.Options{Keepalive: 50 * time.Millisecond, Timeout: time.Second})
	ctx := t.Context()
	session := must(s.Session(ctx))(t)
	watch := make(chan holdfast.Event, 8)
	go func() {
		for ev, err := range s.Watch(ctx, "", 0) {
			if err != nil {
				return
			}
			watch <- ev
		}
	}()
	<-watch // it is ready
	m := must(s.Mutex("m").Acquire(ctx))(t)
	place := must(s.Semaphore("s", 1).Acquire(ctx, 1))(t)
	other := must(connect(t, url).Begin(ctx))(t)
	must(other.Exec(ctx, "lock table holdfast.claim, holdfast.session, holdfast.watcher in access exclusive mode"))(t)
	select {
	case <-time.After(4 * time.Second): // several times Timeout
	case <-m.Done():
		t.Error("the lock is lost:", m.Err())
	case <-place.Done():
		t.Error("the semaphore is lost:", place.Err())
	}
	check(t, other.Rollback(ctx))
	check(t, session.Err())
	check(t, m.Release())
	check(t, place.Release())
}
